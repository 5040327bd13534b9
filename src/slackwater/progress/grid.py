"""The arithmetic of tumbling and sliding windows, cut into slices that windows share.

A sliding window need not hold every event several times. Between two neighbouring edges (a start
or an end of some window) all events belong to the same windows, so state is kept once per *slice*
and a window is a run of slices. With windows of 5 s every 3 s:

    windows   [0..........5)
                     [3..........8)
                            [6..........11)
    slices    [0....3)[3.5)[5.6)[6.8)[8..
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

_GOLDEN = 0.6180339887498949


@dataclass(frozen=True)
class WindowGrid:
    """Place windows of `size_ms`, one every `slide_ms`, the first starting at `offset_ms`.

    >>> grid = WindowGrid(size_ms=5, slide_ms=3)
    >>> [grid.slice_start(t) for t in range(7)]
    [0, 0, 2, 3, 3, 5, 6]
    >>> list(grid.slices_of(0)), list(grid.windows_of(3))
    ([0, 2, 3], [0, 3])
    """

    size_ms: int
    slide_ms: int
    offset_ms: int = 0

    @property
    def fragment_ms(self) -> int:
        """Return where, within a slide, window ends fall (0: on window starts)."""
        return self.size_ms if self.slide_ms > self.size_ms else self.size_ms % self.slide_ms

    @property
    def has_gaps(self) -> bool:
        """Tell whether some events belong to no window at all."""
        return self.slide_ms > self.size_ms

    def slice_start(self, time_ms: int) -> int | None:
        """Return the slice that holds a moment; None where no window does."""
        within_ms = (time_ms - self.offset_ms) % self.slide_ms
        base_ms = time_ms - within_ms
        if within_ms < self.fragment_ms or self.fragment_ms == 0:
            return base_ms
        return None if self.has_gaps else base_ms + self.fragment_ms

    def next_slice(self, slice_ms: int) -> int:
        """Return the edge after a slice's start."""
        within_ms = (slice_ms - self.offset_ms) % self.slide_ms
        if within_ms < self.fragment_ms:
            return slice_ms - within_ms + self.fragment_ms
        return slice_ms - within_ms + self.slide_ms

    def slices_of(self, window_ms: int) -> Iterator[int]:
        """List the slices of the window that starts at `window_ms`."""
        slice_ms = window_ms
        while slice_ms < window_ms + self.size_ms:
            yield slice_ms
            slice_ms = self.next_slice(slice_ms)

    def last_window_of(self, slice_ms: int) -> int:
        """Return the start of the last window that holds a slice."""
        return slice_ms - (slice_ms - self.offset_ms) % self.slide_ms

    def windows_of(self, slice_ms: int) -> range:
        """List the starts of the windows that hold a slice."""
        last_ms = self.last_window_of(slice_ms)
        earlier = (self.size_ms - 1 - (slice_ms - last_ms)) // self.slide_ms
        return range(last_ms - earlier * self.slide_ms, last_ms + 1, self.slide_ms)

    def next_end(self, time_ms: int) -> int:
        """Return the first window end after a moment.

        >>> WindowGrid(3000, 3000).next_end(3000)
        6000
        """
        first_ms = self.offset_ms + self.size_ms
        return first_ms + ((time_ms - first_ms) // self.slide_ms + 1) * self.slide_ms

    def slice_sql(self, time_ms_sql: str, offset_sql: str) -> str:
        """Write `slice_start` as a Spark SQL expression (null where no window holds the event)."""
        within = f"pmod({time_ms_sql} - {offset_sql}, {self.slide_ms}L)"
        base = f"({time_ms_sql} - {within})"
        if self.fragment_ms == 0:
            return base
        beyond = "NULL" if self.has_gaps else f"{base} + {self.fragment_ms}L"
        return f"CASE WHEN {within} < {self.fragment_ms}L THEN {base} ELSE {beyond} END"


def spread_stride(slide_ms: int) -> int:
    """Return the step by which window phases of successive queries are spread evenly over a slide.

    Multiples of a stride near the golden section leave no large gap for any number of queries;
    having no common factor with the slide, they repeat only after `slide_ms` queries.

    >>> [query * spread_stride(3000) % 3000 for query in range(4)]
    [0, 1859, 718, 2577]
    """
    stride = max(1, round(slide_ms * _GOLDEN))
    while math.gcd(stride, slide_ms) != 1:
        stride += 1
    return stride
