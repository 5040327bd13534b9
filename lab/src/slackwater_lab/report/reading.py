"""Read what `slackwater bench --json` wrote, from any file that claims to be that."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from slackwater.errors import SlackwaterError
from slackwater.parsing import read_json
from slackwater_lab.bench.figures import RESULT_FIELDS
from slackwater_lab.bench.options import variant_text

_TEXTS: Final = ("policy", "workload", "delay")
_NEEDED: Final = ("policy", "workload", "queries", "rate", "mean_ms")
_OF_WINDOWS: Final = {"latencies_ms": 1, "propagations_ms": 2}  # windows: due, then these
_LISTS: Final = ("latencies_ms", "propagations_ms", "slowdowns")


class ReportError(SlackwaterError):
    """Report a file that holds no benchmark results: give one that `bench --json` wrote."""


@dataclass(frozen=True)
class ReportedRun:
    """Hold one result: a policy, once, under one configuration. Everything in it is the file's."""

    file: str
    values: Mapping[str, Any]

    @property
    def policy(self) -> str:
        """Return the name of the policy or peer."""
        return str(self.values["policy"])

    @property
    def label(self) -> str:
        """Name the policy, and the setting that it did best with."""
        variant = self.values.get("trigger")
        if not variant:
            return self.policy
        return f"{self.policy} ({variant_text(self.policy, str(variant))})"

    def number(self, field: str) -> float | None:
        """Return a figure; None where it is missing, does not apply, or is no number."""
        return as_number(self.values.get(field))

    def each_window(self, field: str) -> list[float]:
        """Return a figure of every window, as far as the run was profiled."""
        found = self.values.get(field)
        if isinstance(found, list):
            return [float(value) for value in found]
        place = _OF_WINDOWS.get(field)
        return [] if place is None else [row[place] for row in self.rows("windows", 3)]

    def rows(self, field: str, width: int) -> list[list[float]]:
        """Return a table of figures, without the rows that are not complete."""
        found = self.values.get(field)
        rows = [row for row in found if isinstance(row, list)] if isinstance(found, list) else []
        whole = [[as_number(value) for value in row[:width]] for row in rows if len(row) >= width]
        return [[value for value in row if value is not None] for row in whole if None not in row]


def as_number(value: Any) -> float | None:
    """Return a finite number as a float, and None for everything else.

    >>> as_number(3), as_number(True), as_number(float("nan")), as_number("3")
    (3.0, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # JSON has whole numbers of any length
        return None
    return number if math.isfinite(number) else None


def read_runs(paths: Sequence[Path]) -> list[ReportedRun]:
    """Read all results of all files, in order."""
    runs = [run for path in paths for run in _read_file(path)]
    if not runs:
        raise ReportError(f"{', '.join(map(str, paths))}: no results in it, nothing to report")
    return runs


def _read_file(path: Path) -> list[ReportedRun]:
    try:
        held = read_json(path)
    except OSError as error:
        raise ReportError(
            f"{path} cannot be read: {error.strerror}: name a file that slackwater bench --json "
            "wrote"
        ) from error
    except ValueError as error:  # no JSON, or no text at all
        raise ReportError(
            f"{path} holds no JSON to report ({error}): give a file that slackwater bench --json "
            "wrote"
        ) from error
    results = held.get("results") if isinstance(held, dict) else held
    if not isinstance(results, list):
        raise ReportError(
            f"{path} holds no list of results: give a file that slackwater bench --json wrote"
        )
    for place, values in enumerate(results):
        _check(values, f"{path}: result {place + 1}")
    return [ReportedRun(path.name, values) for values in results]


def _check(values: Any, where: str) -> None:
    """Refuse what would make the page say something wrong."""
    if not isinstance(values, dict):
        raise ReportError(f"{where} is no JSON object, but {_shown(values)}")
    for field in _NEEDED:
        if field not in values:
            raise ReportError(f"{where} has no {field!r}: slackwater bench did not write this")
    for field in ("queries", "rate"):
        if values[field] is None:
            raise ReportError(f"{where}: {field!r} is null: slackwater bench did not write this")
    for field in _TEXTS:
        if field in values and not isinstance(values[field], str):
            raise ReportError(f"{where}: {field!r} is no text, but {_shown(values[field])}")
    for field in set(RESULT_FIELDS) - set(_TEXTS):
        value = values.get(field)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise ReportError(f"{where}: {field!r} is no number, but {_shown(value)}")
        if isinstance(value, int) and as_number(value) is None:
            raise ReportError(f"{where}: {field!r} is a number too large to show: {_shown(value)}")
    for field in _LISTS:
        found = values.get(field, [])
        if not isinstance(found, list) or any(as_number(value) is None for value in found):
            raise ReportError(f"{where}: {field!r} is no list of numbers")


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
