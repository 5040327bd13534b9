"""What a report shows of one comparison: its plots, and why some are missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from slackwater.bench.report.drawing import Plot
from slackwater.bench.report.figure_rows import show_count, show_mb, show_share, show_times
from slackwater.bench.report.grouping import Comparison
from slackwater.bench.report.plots import (
    bars,
    cores_busy,
    distribution,
    mean_by_queries,
    over_time,
    resident_mb,
)
from slackwater.bench.table import show_latency

_UNPROFILED: Final = "the file does not hold every window (slackwater bench --profile keeps them)"
_UNSAMPLED: Final = "the file holds no samples over time (slackwater bench --profile keeps them)"


@dataclass(frozen=True)
class Missing:
    """Say what is not shown, and why."""

    title: str
    why: str


def plots_of(comparison: Comparison, number: int) -> list[Plot | Missing]:
    """Draw all that can be drawn of one comparison, numbered within the report."""

    def name(of: str) -> str:
        return f"{number}-{of}"

    offered = comparison.columns[0].number("rate") or 0.0
    offered *= float(comparison.value("queries"))
    drawn: list[tuple[str, Plot | None, str]] = []

    def show(title: str, plot: Plot | None, why_missing: str) -> None:
        drawn.append((title, plot, why_missing))

    title, axis = "Output latency", "milliseconds after the window's end"
    plot = distribution(comparison, "latencies_ms", name("latency"), title, axis, show_latency)
    show(title, plot, _UNPROFILED)
    title, axis = "Propagation", "milliseconds after the arrival of what closes the window"
    plot = distribution(
        comparison, "propagations_ms", name("propagation"), title, axis, show_latency
    )
    show(title, plot, _UNPROFILED)
    title, axis = "Throughput", "events a second"
    mark = ("offered", offered)
    plot = bars(comparison, "events_per_s", name("throughput"), title, axis, show_count, mark=mark)
    show(title, plot, "no result has it")
    title, axis = "Slowdown", "propagation, as a multiple of a step that serves one query alone"
    plot = distribution(comparison, "slowdowns", name("slowdown"), title, axis, show_times)
    plot = plot or bars(comparison, "slowdown_mean", name("slowdown"), title, axis, show_times)
    show(title, plot, "what a step costs alone was not measured (slackwater bench --load does)")
    title = "CPU over time"
    plot = over_time(comparison, name("cpu"), title, "cores busy", cores_busy, show_count)
    show(title, plot, _UNSAMPLED)
    title = "Memory over time"
    plot = over_time(comparison, name("memory"), title, "MB resident", resident_mb, show_mb)
    show(title, plot, _UNSAMPLED)
    title, axis = "SWM coverage", "share of sweeping watermarks within their predicted interval"
    plot = bars(comparison, "swm_coverage", name("coverage"), title, axis, show_share)
    show(title, plot, "no policy here predicts when watermarks arrive")
    title, axis = "Scheduling overhead", "share of the time spent on deciding"
    plot = bars(comparison, "overhead_share", name("overhead"), title, axis, show_share)
    show(title, plot, "no policy here decides by itself")
    return [Missing(title, why) if plot is None else plot for title, plot, why in drawn]


def plots_of_all(compared: Sequence[Comparison]) -> list[Plot | Missing]:
    """Draw what spans several comparisons."""
    found: list[Plot | Missing] = []
    for field, name, title in (
        ("mean_ms", "latency-by-queries", "Mean latency by number of queries"),
        ("propagation_mean_ms", "propagation-by-queries", "Mean propagation by number of queries"),
    ):
        plot = mean_by_queries(compared, field, name, title)
        why = "no policy was run with two numbers of queries and the same options otherwise"
        found.append(plot or Missing(title, why))
    return found
