"""Put together what can be compared: runs of one configuration, and of these each policy's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

from slackwater_lab.report.reading import ReportedRun

# What makes runs comparable. Not the seed: runs that differ in nothing else are repetitions.
CONFIGURATION: Final = (
    "workload",
    "queries",
    "rate",
    "load",
    "delay",
    "distinct",
    "phase",
    "start",
    "seconds",
    "warmup",
)


@dataclass(frozen=True)
class PolicyRuns:
    """Hold a policy's runs under one configuration; its figures are means over them."""

    label: str
    runs: tuple[ReportedRun, ...]

    @property
    def policy(self) -> str:
        """Return the name of the policy or peer."""
        return self.runs[0].policy

    def number(self, field: str) -> float | None:
        """Average a figure; None where a run has none."""
        numbers = [run.number(field) for run in self.runs]
        known = [number for number in numbers if number is not None]
        return fmean(known) if len(known) == len(numbers) else None

    def extremes(self, field: str) -> tuple[float, float] | None:
        """Return the lowest and the highest of several runs."""
        known = [number for run in self.runs if (number := run.number(field)) is not None]
        return (min(known), max(known)) if len(known) > 1 else None

    def pooled(self, field: str) -> list[float]:
        """Take together what each run says of every window."""
        return [value for run in self.runs for value in run.each_window(field)]


@dataclass(frozen=True)
class Comparison:
    """Hold all that ran under one configuration, in the order of the files."""

    configuration: tuple[tuple[str, Any], ...]
    columns: tuple[PolicyRuns, ...]

    def value(self, field: str) -> Any:
        """Return one value of the configuration."""
        return dict(self.configuration).get(field)

    @property
    def title(self) -> str:
        """Say what ran, in a line."""
        rate, queries = self.columns[0].runs[0].number("rate"), self.value("queries")
        load = "" if rate is None else f" x {rate:,.0f} events/s"
        return f"{self.value('workload')}: {queries:,} queries{load}, delay {self.value('delay')}"


def comparisons(runs: Iterable[ReportedRun]) -> list[Comparison]:
    """Sort runs into configurations, and within each by policy."""
    sorted_out: dict[tuple[tuple[str, Any], ...], dict[str, list[ReportedRun]]] = {}
    for run in runs:
        key = tuple((field, _plain(run.values.get(field))) for field in CONFIGURATION)
        sorted_out.setdefault(key, {}).setdefault(run.policy, []).append(run)
    return [
        Comparison(key, tuple(PolicyRuns(_label(its), tuple(its)) for its in policies.values()))
        for key, policies in sorted_out.items()
    ]


def _label(runs: Sequence[ReportedRun]) -> str:
    """Name the setting of a peer only where all of its runs did best with the same."""
    labels = {run.label for run in runs}
    return labels.pop() if len(labels) == 1 else runs[0].policy


def _plain(value: Any) -> Any:
    """Make any JSON value fit for a key."""
    return value if isinstance(value, str | int | float | None) else str(value)
