"""One bit of one file is another: that is noticed, with the file's name, or it changes nothing."""

from __future__ import annotations

import logging
import random
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.faults.arrow_steps import without_spark
from tests.faults.faulty_disk import Fault, FaultyDisk, Kind
from tests.faults.sweep import area
from tests.faults.workload import expected, found, in_a_hurry, live, require_same, using

from slackwater.errors import SlackwaterError

KILLED_AT = 0.4  # of the operations: the rest of the run reads much of what is there by then
TIMES = 40
# Of so many flips, at least so many have to be noticed: what was replaced, or is never read again,
# may be other.
DETECTED = {
    "state/journal/segment-N.log": 5,
    "state/journal/snapshot-N.snap": 0,
    "state/journal/durable-mark": 0,
    "state/storage-name": TIMES,
    "state/dead-letters/dead-N.parquet": 5,
    "out/totals/part-N-N.parquet": 5,
    "storage/N/block": 1,
}
HARMLESS = ("state/journal/lock", "out/totals/_slackwater.lock")


@pytest.fixture(scope="module")
def no_spark() -> Iterator[Any]:
    """Put plain Python in the place of Spark, and keep quiet about what is noticed."""
    with pytest.MonkeyPatch.context() as patch:
        in_a_hurry(patch)
        logging.disable()
        yield without_spark(patch)
        logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def files(no_spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Leave what a process had written when it was killed."""
    plain, killed = (tmp_path_factory.mktemp(name) for name in ("plain", "killed"))
    with using(FaultyDisk(plain)) as disk:
        live(no_spark, plain)
    fault = Fault(int(len(disk.done) * KILLED_AT), Kind.KILLED)
    with using(FaultyDisk(killed, fault)) as disk:
        with pytest.raises(SlackwaterError):
            live(no_spark, killed)
        disk.abandon()
    return killed


def go_on(spark: Any, files: Path, directory: Path, name: str, place: int, bit: int) -> str:
    """Finish from a copy with another bit; tell how it ended."""
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(files, directory)
    content = bytearray((directory / name).read_bytes())
    content[place] ^= 1 << bit
    (directory / name).write_bytes(content)
    try:
        with using(FaultyDisk(directory)):
            live(spark, directory, resumes=True)
        require_same(found(directory), expected())
    except (SlackwaterError, AssertionError) as error:  # a query that was stopped says why
        named = Path(name).name in str(error)
        return "detected" if named else f"bit {bit} of byte {place} of {name}: {error}"
    except Exception as error:
        return f"bit {bit} of byte {place} of {name}: {type(error).__name__}: {error}"
    return "harmless"


def flipped(spark: Any, files: Path, directory: Path, kind: str, times: int) -> Counter[str]:
    """Flip bits all over the files of one kind; count how it ended."""
    chance = random.Random(kind)
    alike = defaultdict(list)
    for file in sorted(path for path in files.rglob("*") if path.is_file()):
        name = str(file.relative_to(files))
        alike[area(name)].append((name, file.stat().st_size))
    assert kind in alike, f"{kind} is not among {sorted(alike)}"
    found = Counter[str]()
    for _ in range(times):
        name, size = chance.choice(alike[kind])
        place, bit = chance.randrange(size), chance.randrange(8)
        found[go_on(spark, files, directory, name, place, bit)] += 1
    return found


def test_every_kind_of_file_is_tried(files: Path) -> None:
    kinds = {area(str(path.relative_to(files))) for path in files.rglob("*") if path.is_file()}
    finished = {kind for kind in kinds if "_tmp-" not in kind and not kind.endswith(".tmp")}
    tried = {kind.replace("totals", each) for kind in (*DETECTED, *HARMLESS) for each in _SINKS}
    assert finished <= tried


@pytest.mark.parametrize("kind", DETECTED)
def test_another_bit_is_detected_or_harmless(
    kind: str, no_spark: Any, files: Path, tmp_path: Path
) -> None:
    outcomes = flipped(no_spark, files, tmp_path / "case", kind, 5)
    assert set(outcomes) <= {"detected", "harmless"}, outcomes


@pytest.mark.slow
@pytest.mark.parametrize("kind", DETECTED)
def test_no_bit_of_any_file_gives_other_values(
    kind: str, no_spark: Any, files: Path, tmp_path: Path
) -> None:
    outcomes = flipped(no_spark, files, tmp_path / "case", kind, TIMES)
    assert set(outcomes) <= {"detected", "harmless"}, outcomes
    assert outcomes["detected"] >= DETECTED[kind], outcomes


@pytest.mark.parametrize("kind", HARMLESS)
def test_nothing_is_read_from_a_lock(kind: str, no_spark: Any, files: Path, tmp_path: Path) -> None:
    (name,) = [p for p in files.rglob("*") if area(str(p.relative_to(files))) == kind]
    if name.stat().st_size:
        assert go_on(no_spark, files, tmp_path / "case", str(name.relative_to(files)), 0, 3) == (
            "harmless"
        )


_SINKS = ("totals", "sliding", "chain", "session")
