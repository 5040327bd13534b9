"""What a report shows of one comparison: its plots, and why some are missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from slackwater.cli.consoles import show_latency
from slackwater_lab.report.drawing import Plot
from slackwater_lab.report.figure_rows import (
    Show,
    show_cores,
    show_count,
    show_mb,
    show_share,
    show_times,
)
from slackwater_lab.report.grouping import Comparison
from slackwater_lab.report.plots import (
    bars,
    cores_busy,
    distribution,
    mean_by_queries,
    over_time,
    resident_mb,
)

_UNPROFILED: Final = "the file does not hold every window (slackwater bench --profile keeps them)"
_UNSAMPLED: Final = "the file holds no samples over time (slackwater bench --profile keeps them)"


@dataclass(frozen=True)
class Missing:
    """Say what is not shown, and why."""

    title: str
    why: str


def plots_of(comparison: Comparison, number: int) -> list[Plot | Missing]:
    """Draw all that can be drawn of one comparison, numbered within the report."""

    def spread(field: str, name: str, title: str, axis: str, show: Show) -> Plot | None:
        return distribution(comparison, field, f"{number}-{name}", title, axis, show)

    def compare(field: str, name: str, title: str, axis: str, show: Show) -> Plot | None:
        return bars(comparison, field, f"{number}-{name}", title, axis, show)

    def slowdown(title: str) -> Plot | None:
        axis = "propagation, as a multiple of a step that serves one query alone"
        every = spread("slowdowns", "slowdown", title, axis, show_times)
        return every or compare("slowdown_mean", "slowdown", title, f"mean {axis}", show_times)

    def throughput(title: str) -> Plot | None:
        offered = (comparison.columns[0].number("rate") or 0) * float(comparison.value("queries"))
        return bars(
            comparison,
            "events_per_s",
            f"{number}-throughput",
            title,
            "events a second",
            show_count,
            mark=("offered", offered),
        )

    after_end = "milliseconds after the window's end"
    after_closing = "milliseconds after the arrival of what closes the window"
    within = "share of sweeping watermarks within their predicted interval"
    deciding = "share of the time spent on deciding"
    attempts: list[tuple[str, str, Callable[[str], Plot | None]]] = [
        (
            "Output latency",
            _UNPROFILED,
            lambda title: spread("latencies_ms", "latency", title, after_end, show_latency),
        ),
        (
            "Propagation",
            _UNPROFILED,
            lambda title: spread(
                "propagations_ms", "propagation", title, after_closing, show_latency
            ),
        ),
        ("Throughput", "no result has it", throughput),
        (
            "Slowdown",
            "what a step costs alone was not measured (slackwater bench --load does)",
            slowdown,
        ),
        (
            "CPU over time",
            _UNSAMPLED,
            lambda title: over_time(
                comparison, f"{number}-cpu", title, "cores busy", cores_busy, show_cores
            ),
        ),
        (
            "Memory over time",
            _UNSAMPLED,
            lambda title: over_time(
                comparison, f"{number}-memory", title, "MB resident", resident_mb, show_mb
            ),
        ),
        (
            "SWM coverage",
            "no result has it (only policies that forecast watermarks can have it)",
            lambda title: compare("swm_coverage", "coverage", title, within, show_share),
        ),
        (
            "Scheduling overhead",
            "no result has it (only Slackwater's own policies have it)",
            lambda title: compare("overhead_share", "overhead", title, deciding, show_share),
        ),
    ]
    return [draw(title) or Missing(title, why) for title, why, draw in attempts]


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
