"""Which windows are due in a span of time, whatever the engine makes of them.

A window is due when the source's watermark that closes it arrives. What is due follows from the
description of the events alone, so it is the same for every policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from slackwater.progress.grid import WindowGrid

WindowKey = tuple[str, int]  # a query's name and the end of one of its windows


@dataclass(frozen=True)
class Span:
    """Name the time from `first_ms` until (without) `until_ms`."""

    first_ms: float
    until_ms: float

    def __contains__(self, moment_ms: float) -> bool:
        return self.first_ms <= moment_ms < self.until_ms

    @property
    def length_ms(self) -> float:
        """Return how long the span is."""
        return self.until_ms - self.first_ms


def due_ends(
    grid: WindowGrid, swept_at: Callable[[int], float], span: Span
) -> Iterator[tuple[int, float]]:
    """List the windows whose closing watermark arrives within the span: their end, its arrival.

    `swept_at` tells when the watermark that passes a moment arrives: never before that moment, and
    never later for an earlier one.

    >>> grid = WindowGrid(size_ms=3_000, slide_ms=3_000)
    >>> list(due_ends(grid, lambda end_ms: end_ms + 500.0, Span(6_500, 12_500)))
    [(9000, 9500.0), (6000, 6500.0)]
    """
    end_ms = grid.next_end(int(span.until_ms)) - grid.slide_ms
    while (swept_ms := swept_at(end_ms)) >= span.first_ms:
        if swept_ms in span:
            yield end_ms, swept_ms
        end_ms -= grid.slide_ms
