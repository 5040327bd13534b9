"""Make a run with one fault in it, then finish it with a sound disk, and compare."""

from __future__ import annotations

import errno
import logging
import random
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.faulty_disk import Fault, FaultyDisk, Kind, Operation
from tests.faults.workload import Result, found, live, require_same, using

from slackwater.errors import SlackwaterError

_ERRORS = (errno.EIO, errno.ENOSPC)


@dataclass(frozen=True)
class Point:
    """Name a fault, and what was done there in the run that the faults were chosen from."""

    fault: Fault
    operation: Operation
    then: Fault | None = None  # in the next process

    def __str__(self) -> str:
        kind = self.fault.kind.name
        then = "" if self.then is None else f", then {self.then}"
        told = f"Fault({self.fault.number}, Kind.{kind}, {self.fault.error}){then}"
        return f"{told}: {self.operation}"


def chosen_points(operations: Sequence[Operation], each: int, seed: int = 1) -> list[Point]:
    """Choose so many points for every kind of fault in every kind of operation on every place."""
    chance = random.Random(seed)
    alike: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number, operation in enumerate(operations, start=1):
        alike[operation.name, area(operation.path)].append(number)
    points = []
    for (name, _), numbers in sorted(alike.items()):
        for kind in Kind:
            if kind.tears and name != "write":
                continue
            for number in chance.sample(numbers, min(each, len(numbers))):
                fault = Fault(number, kind, chance.choice(_ERRORS))
                points.append(Point(fault, operations[number - 1]))
    return points


def area(path: str) -> str:
    """Tell which of the product's files a path is, leaving out what differs from file to file."""
    place = re.sub(r"[0-9a-f]{32}|\d+", "N", path)
    return re.sub(r"(query|slice)=.*", "block", place)


def run_through(
    spark: Any,
    directory: Path,
    fault: Fault,
    wanted: Result,
    *,
    then: Fault | None = None,
    **settings: Any,
) -> None:
    """Live with a fault (and once more with another); be started again; compare what is there.

    One process may be stopped by an error that says what happened. The next must find its way.
    """
    broken = FaultyDisk(directory, fault)
    _live_with(broken, spark, directory, **settings)
    if then is not None:
        after = broken if fault.kind in (Kind.KILLED, Kind.KILLED_TORN) else None
        again = FaultyDisk(directory, then, after=after)
        _live_with(again, spark, directory, resumes=True, **settings)
    with using(FaultyDisk(directory)) as sound:
        live(spark, directory, resumes=True, **settings)
    assert not sound.open_handles(), f"left open: {sound.open_handles()}"
    require_same(found(directory), wanted)
    leftovers = [path for path in directory.rglob("*") if path.name.startswith("_tmp-")]
    leftovers += (directory / "state" / "journal").glob("*.tmp")
    leftovers += [path for path in directory.glob("storage/**/*") if path.is_file()]
    assert not leftovers, f"left behind: {leftovers}"


def _live_with(disk: FaultyDisk, spark: Any, directory: Path, **settings: Any) -> None:
    with using(disk):
        try:
            live(spark, directory, **settings)
        except SlackwaterError as error:
            if len(str(error)) < 20:
                raise AssertionError(f"unclear: {error!r}") from error
        except OSError as error:
            if not disk.dead:
                raise AssertionError(f"not explained: {error!r}") from error
        if disk.dead:
            disk.abandon()
    assert not disk.open_handles(), f"left open: {disk.open_handles()}"


def sweep(
    spark: Any, directory: Path, points: Sequence[Point], wanted: Result, **settings: Any
) -> list[str]:
    """Go through points; tell what went wrong where."""
    failures = []
    logging.disable()
    try:
        for place, point in enumerate(points):
            try:
                own = directory / f"{place}"
                run_through(spark, own, point.fault, wanted, then=point.then, **settings)
            except Exception as error:
                failures.append(f"{point}: {type(error).__name__}: {error}")
    finally:
        logging.disable(logging.NOTSET)
    return failures
