"""Latencies as pictures: for the terminal, and as a PNG."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence

import numpy as np
from rich.table import Table
from rich.text import Text

from slackwater.cli.consoles import show_latency

_BAR = 40
_EIGHTHS = " ▏▎▍▌▋▊▉"


def latency_chart(
    latencies_ms: Mapping[str, Sequence[float]],
    path: str | os.PathLike[str],
    *,
    title: str = "Output latency",
) -> None:
    """Draw, for each name, which share of windows was out within which time, as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # only drawing needs it
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for name, values in latencies_ms.items():
        if not len(values):
            continue
        ordered = np.sort(np.maximum(np.asarray(values, dtype=float), 1.0))
        shares = np.arange(1, len(ordered) + 1) / len(ordered)
        middle, tail = np.percentile(ordered, [50, 99])
        label = f"{name}: p50 {show_latency(middle)}, p99 {show_latency(tail)}"
        axes.step(ordered, shares * 100, where="post", label=label)
    axes.set_xscale("log")
    axes.set_xlabel("milliseconds after the window's end")
    axes.set_ylabel("% of windows out")
    axes.set_ylim(0, 101)
    axes.set_title(title)
    axes.grid(True, which="both", alpha=0.25)
    if axes.lines:
        axes.legend(loc="lower right")
    figure.savefig(path, dpi=144, format="png")


def terminal_histogram(
    latencies_ms: Sequence[float], *, title: str | None = None, bins: int = 12
) -> Table:
    """Draw how often each latency came, in bins of equal width up to the slowest percent."""
    table = Table(title=title, title_justify="left", box=None, show_header=False, pad_edge=False)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    for label, count, share in histogram(latencies_ms, bins):
        table.add_row(label, Text(_bar(share), style="cyan"), f"{count:,}")
    return table


def histogram(latencies_ms: Sequence[float], bins: int) -> list[tuple[str, int, float]]:
    """Count latencies in bins of a round width: label, count, share of the fullest bin.

    >>> histogram([12, 14, 450, 900], 2)
    [('0 - 500 ms', 3, 1.0), ('500 - 1,000 ms', 1, 0.3333333333333333)]
    """
    values = np.asarray(latencies_ms, dtype=float)
    if not len(values):
        return []
    low, high = min(0.0, float(values.min())), float(np.percentile(values, 99))
    width = _round_width(max(high - low, 1.0) / bins)
    first = math.floor(low / width)
    places = np.floor(values / width).astype(int) - first
    # The last bin takes all the rest, so that a few stragglers do not squeeze the others together.
    places = np.minimum(places, bins - 1)
    counts = np.bincount(places, minlength=int(places.max()) + 1)
    open_ended = float(values.max()) >= (first + bins) * width
    rows = []
    for place, count in enumerate(counts.tolist()):
        edge = (first + place) * width
        last = place == bins - 1 and open_ended
        label = f"{edge:,g} ms +" if last else f"{edge:,g} - {edge + width:,g} ms"
        rows.append((label, count, count / int(counts.max())))
    return rows


def _round_width(least: float) -> float:
    """Return the smallest of 1, 2, 2.5, 5 times a power of ten that is at least this."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= least * (1 - 1e-9))


def _bar(share: float) -> str:
    eighths = round(share * _BAR * 8)
    if share > 0:
        eighths = max(1, eighths)
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")
