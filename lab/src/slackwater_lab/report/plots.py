"""The plots of one comparison, and the one over all of them; None where the data is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from matplotlib.axes import Axes

from slackwater.cli.consoles import show_latency
from slackwater_lab.report.drawing import (
    COLOURS,
    HATCHES,
    MARKERS,
    Plot,
    draw,
    legend_above,
    line_style,
    plain_number,
    write_plainly,
)
from slackwater_lab.report.drawing import shortened as short
from slackwater_lab.report.figure_rows import Show
from slackwater_lab.report.grouping import Comparison, PolicyRuns
from slackwater_lab.report.reading import ReportedRun

_POINTS: Final = 400  # of a distribution: more cannot be told apart
_SPACED: Final = np.linspace(0, 100, _POINTS)


def distribution(
    comparison: Comparison, field: str, name: str, title: str, axis: str, show: Show
) -> Plot | None:
    """Draw which share of windows stayed within which value, one line for each policy."""
    pooled = {column.label: column.pooled(field) for column in comparison.columns}
    known = {label: values for label, values in pooled.items() if values}
    if not known:
        return None

    def paint(axes: Axes) -> None:
        for place, (label, values) in enumerate(pooled.items()):
            if values:
                bounded = np.maximum(np.percentile(values, _SPACED), 1e-1)
                axes.plot(bounded, _SPACED, label=short(label), **line_style(place))
        axes.set_xscale("log")
        write_plainly(axes.xaxis)
        axes.set_ylim(0, 101)
        axes.set_xlabel(axis)
        axes.set_ylabel("% of windows")
        axes.grid(visible=True, which="both")
        legend_above(axes)

    said = "; ".join(f"{label}: {_spread(values, show)}" for label, values in known.items())
    return draw(name, title, f"Share of windows within a value, by policy. {said}.", paint)


def bars(
    comparison: Comparison,
    field: str,
    name: str,
    title: str,
    axis: str,
    show: Show,
    *,
    mark: tuple[str, float] | None = None,
) -> Plot | None:
    """Draw one figure of each policy as a bar; `mark` is a line to compare with."""
    found = [(column.label, column.number(field)) for column in comparison.columns]
    known = [(label, value) for label, value in found if value is not None]
    if not known:
        return None

    def paint(axes: Axes) -> None:
        for place, (_, value) in enumerate(known):
            axes.barh(
                place,
                value,
                height=0.6,
                facecolor=COLOURS[place % len(COLOURS)],
                edgecolor="white",
                hatch=HATCHES[place % len(HATCHES)],
            )
            axes.annotate(
                show(value), (value, place), (4, 0), textcoords="offset points", va="center"
            )
        if mark is not None:
            axes.axvline(mark[1], color=COLOURS[-1], linestyle="--", label=mark[0])
            legend_above(axes)
        axes.set_yticks(range(len(known)), [short(label) for label, _ in known])
        axes.invert_yaxis()
        axes.margins(x=0.18)
        axes.set_xlim(left=0)
        axes.xaxis.set_major_formatter(plain_number)
        axes.set_xlabel(axis)
        axes.grid(visible=True, axis="x")

    said = "; ".join(f"{label}: {show(value)}" for label, value in known)
    height = 1.3 + 0.42 * len(known)
    return draw(name, title, f"One bar for each policy. {said}.", paint, height=height)


def over_time(
    comparison: Comparison,
    name: str,
    title: str,
    axis: str,
    course: Callable[[Sequence[Sequence[float]]], list[float]],
    show: Show,
) -> Plot | None:
    """Draw what a run used of the machine, sample by sample: the first run of each policy."""
    courses: dict[str, tuple[list[float], list[float]]] = {}
    for column in comparison.columns:
        samples = _samples(column.runs[0])
        if len(samples) >= 3:
            began_ms = samples[0][0]
            moments = [(row[0] - began_ms) / 1_000 for row in samples[1:]]
            courses[column.label] = moments, course(samples)
    if not courses:
        return None

    def paint(axes: Axes) -> None:
        for place, column in enumerate(comparison.columns):
            if column.label in courses:
                moments, values = courses[column.label]
                axes.plot(moments, values, label=short(column.label), **line_style(place))
        axes.set_xlabel("seconds since the first sample")
        axes.set_ylabel(axis)
        axes.set_ylim(bottom=0)
        axes.grid(visible=True)
        legend_above(axes)

    said = "; ".join(
        f"{label}: {show(float(np.mean(values)))} on average, {show(max(values))} at most"
        for label, (_, values) in courses.items()
    )
    return draw(name, title, f"Course over time, by policy. {said}.", paint)


def cores_busy(samples: Sequence[Sequence[float]]) -> list[float]:
    """Tell how many cores were busy between each sample and the next.

    >>> cores_busy([[0, 1.0, 50], [500, 1.5, 50], [1_000, 2.5, 60]])
    [1.0, 2.0]
    """
    return [
        (after[1] - before[1]) / (after[0] - before[0]) * 1_000
        for before, after in pairwise(samples)
    ]


def resident_mb(samples: Sequence[Sequence[float]]) -> list[float]:
    """Return the resident memory at each sample but the first."""
    return [row[2] for row in samples[1:]]


def mean_by_queries(
    compared: Sequence[Comparison], field: str, name: str, title: str
) -> Plot | None:
    """Draw a mean against the number of queries, one line for each policy, all else being alike.

    Only configurations that differ in nothing but the number of queries are put on one line; the
    largest such set is drawn. Whiskers go from the lowest to the highest of repeated runs.
    """
    alike: dict[tuple[object, ...], list[Comparison]] = {}
    for comparison in compared:
        rest = tuple(pair for pair in comparison.configuration if pair[0] != "queries")
        alike.setdefault(rest, []).append(comparison)
    chosen = max(alike.values(), key=len)
    lines: dict[str, list[tuple[float, float, PolicyRuns]]] = {}
    for comparison in chosen:
        for column in comparison.columns:
            mean = column.number(field)
            if mean is not None:
                point = (float(comparison.value("queries")), mean, column)
                lines.setdefault(column.policy, []).append(point)
    if max((len(points) for points in lines.values()), default=0) < 2:
        return None

    def paint(axes: Axes) -> None:
        for place, (policy, points) in enumerate(lines.items()):
            points.sort(key=lambda point: point[0])
            low = [mean - (column.extremes(field) or (mean,))[0] for _, mean, column in points]
            high = [(column.extremes(field) or (mean,))[-1] - mean for _, mean, column in points]
            axes.errorbar(
                [queries for queries, _, _ in points],
                [mean for _, mean, _ in points],
                yerr=(np.maximum(low, 0), np.maximum(high, 0)),
                capsize=3,
                marker=MARKERS[place % len(MARKERS)],
                label=short(policy),
                **line_style(place),
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        write_plainly(axes.yaxis)
        counts = sorted({queries for points in lines.values() for queries, _, _ in points})
        axes.set_xticks(counts, [f"{count:,.0f}" for count in counts])
        axes.minorticks_off()
        axes.set_xlabel("queries")
        axes.set_ylabel("milliseconds")
        axes.grid(visible=True)
        legend_above(axes)

    said = "; ".join(
        f"{policy}: "
        + ", ".join(f"{show_latency(mean)} with {queries:,.0f}" for queries, mean, _ in points)
        for policy, points in _in_order(lines).items()
    )
    return draw(name, title, f"Mean against the number of queries. {said}.", paint)


def _in_order(
    lines: Mapping[str, list[tuple[float, float, PolicyRuns]]],
) -> dict[str, list[tuple[float, float, PolicyRuns]]]:
    return {name: sorted(points, key=lambda point: point[0]) for name, points in lines.items()}


def _samples(run: ReportedRun) -> list[list[float]]:
    """Return a run's samples in order of time, each moment once."""
    rows = sorted(run.rows("samples", 3))
    return [row for place, row in enumerate(rows) if place == 0 or row[0] > rows[place - 1][0]]


def _spread(values: Sequence[float], show: Show) -> str:
    half, most = np.percentile(values, [50, 99]).tolist()
    return f"half within {show(half)}, 99 % within {show(most)}"
