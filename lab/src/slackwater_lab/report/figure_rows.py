"""The figures of a comparison as rows of a table, each with its ratio to the first policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from slackwater.cli.consoles import show_latency
from slackwater_lab.report.grouping import CONFIGURATION, Comparison, PolicyRuns
from slackwater_lab.report.reading import as_number

Show = Callable[[float], str]


@dataclass(frozen=True)
class Cell:
    """Hold one figure as text, its ratio to the first policy's, and its range over several runs.

    What there is not is empty.
    """

    text: str
    ratio: str = ""
    spread: str = ""


def show_count(value: float) -> str:
    """Write a number of things; a mean of several runs may be no whole one.

    >>> show_count(1599.0), show_count(2.5), show_count(80_008.3)
    ('1,599', '2.5', '80,008')
    """
    return f"{value:,.0f}" if value == int(value) or value >= 1_000 else f"{value:,.3g}"


def show_share(value: float) -> str:
    """Write a share as a percentage.

    >>> show_share(0.1234)
    '12.3 %'
    """
    return f"{value * 100:.1f} %"


def show_mb(value: float) -> str:
    """Write megabytes."""
    return f"{value:,.0f} MB"


def show_cores(value: float) -> str:
    """Write how many cores were busy."""
    return f"{value:.2f} cores"


def show_times(value: float) -> str:
    """Write a factor.

    >>> show_times(0.236), show_times(52.2)
    ('0.24x', '52x')
    """
    return f"{value:,.0f}x" if value >= 10 else f"{value:.2f}x"


ROWS: Final[dict[str, tuple[str, Show]]] = {
    "mean_ms": ("latency, mean", show_latency),
    "p50_ms": ("latency, median", show_latency),
    "p95_ms": ("latency, 95th percentile", show_latency),
    "p99_ms": ("latency, 99th percentile", show_latency),
    "max_ms": ("latency, highest", show_latency),
    "propagation_mean_ms": ("propagation, mean", show_latency),
    "propagation_p50_ms": ("propagation, median", show_latency),
    "propagation_p99_ms": ("propagation, 99th percentile", show_latency),
    "slowdown_mean": ("slowdown, mean", show_times),
    "slowdown_p50": ("slowdown, median", show_times),
    "slowdown_p99": ("slowdown, 99th percentile", show_times),
    "windows_fired": ("windows fired", show_count),
    "windows_due": ("windows due", show_count),
    "events": ("events", show_count),
    "events_per_s": ("events a second", show_count),
    "steps": ("steps", show_count),
    "queries_per_step": ("queries a step", show_count),
    "cpu_share": ("CPU, of all cores", show_share),
    "memory_peak_mb": ("memory, peak", show_mb),
    "overhead_share": ("deciding, of the time", show_share),
    "decide_mean_ms": ("deciding, mean", show_latency),
    "decide_p99_ms": ("deciding, 99th percentile", show_latency),
    "swm_coverage": ("SWM coverage", show_share),
    "late_rows": ("rows too late", show_count),
}
_NO_FIGURES: Final = {*CONFIGURATION, "seed"}


def figure_rows(comparison: Comparison) -> Iterator[tuple[str, list[Cell]]]:
    """List every figure that some policy has: its name, and a cell for each policy."""
    for field in (*ROWS, *_other_fields(comparison)):
        name, show = ROWS.get(field, (field, _shown_by_name(field)))
        first = comparison.columns[0].number(field)
        if any(column.number(field) is not None for column in comparison.columns):
            yield name, [_cell(column, field, first, show) for column in comparison.columns]
    yield from _text_rows(comparison)


def _cell(column: PolicyRuns, field: str, first: float | None, show: Show) -> Cell:
    value, extremes = column.number(field), column.extremes(field)
    if value is None:
        return Cell("-")
    ratio = show_times(value / first) if first and value else ""
    if extremes is None or extremes[0] == extremes[1]:
        return Cell(show(value), ratio)
    return Cell(show(value), ratio, f"{show(extremes[0])} to {show(extremes[1])}")


def _other_fields(comparison: Comparison) -> list[str]:
    """Find the figures that this module has no name for: newer files may have them."""
    found: dict[str, None] = {}
    for column in comparison.columns:
        for run in column.runs:
            found |= dict.fromkeys(
                field for field, value in run.values.items() if as_number(value) is not None
            )
    return [field for field in found if field not in ROWS and field not in _NO_FIGURES]


def _shown_by_name(field: str) -> Show:
    return show_latency if field.endswith("_ms") else show_count


def _text_rows(comparison: Comparison) -> Iterator[tuple[str, list[Cell]]]:
    """List what is no number, but may differ between policies."""
    for field, name in (("durable", "durable"), ("sink", "sink")):
        if any(field in run.values for column in comparison.columns for run in column.runs):
            yield name, [Cell(_agreed(column, field)) for column in comparison.columns]
    yield "runs (seeds)", [Cell(_seeds(column)) for column in comparison.columns]


def _agreed(column: PolicyRuns, field: str) -> str:
    texts = {_text(run.values.get(field)) for run in column.runs}
    return texts.pop() if len(texts) == 1 else "differs"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else str(value)


def _seeds(column: PolicyRuns) -> str:
    seeds = ", ".join(_text(run.values.get("seed")) for run in column.runs)
    return f"{len(column.runs)} ({seeds})"
