"""Windows as users describe them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from slackwater.app.durations import Duration, show_ms, to_ms
from slackwater.errors import DescriptionError
from slackwater.progress.grid import WindowGrid, spread_stride

SPREAD: Final = "spread"
_COUNTED_CELL_MS = 1_000
_MOST_PATIENCE_MS = 1_000


@dataclass(frozen=True)
class Windows:
    """Describe windows of `size_ms` every `slide_ms`.

    With `spread`, each query gets a phase of its own, so that the windows of many queries do not
    all close at the same instant.
    """

    size_ms: int
    slide_ms: int
    offset_ms: int = 0
    spread: bool = False

    @property
    def reach_ms(self) -> int:
        """Return how far from an event a window that it is in may begin or end."""
        return self.size_ms

    def grid(self, query: int) -> WindowGrid:
        """Place the windows of one query, by its number."""
        offset_ms = self.offset_ms
        if self.spread:
            offset_ms += query * spread_stride(self.slide_ms) % self.slide_ms
        return WindowGrid(self.size_ms, self.slide_ms, offset_ms)

    def slice_sql(self, time_ms_sql: str, query_sql: str) -> str:
        """Write the slice of an event as a Spark SQL expression over its time and query number."""
        grid = WindowGrid(self.size_ms, self.slide_ms)
        return grid.slice_sql(time_ms_sql, self._offset_sql(query_sql))

    def substream_sql(self, time_ms_sql: str, query_sql: str, width_ms: int) -> str:
        """Write the start of an event's sub-stream; sub-streams divide slices evenly."""
        return f"({time_ms_sql} - pmod({time_ms_sql} - {self._offset_sql(query_sql)}, {width_ms}L))"

    def last_end_sql(self, slice_sql: str, query_sql: str) -> str:
        """Write the end of a slice's last window as a Spark SQL expression."""
        within = f"pmod({slice_sql} - {self._offset_sql(query_sql)}, {self.slide_ms}L)"
        return f"({slice_sql} - {within} + {self.size_ms}L)"

    def _offset_sql(self, query_sql: str) -> str:
        if not self.spread:
            return f"{self.offset_ms}L"
        stride = spread_stride(self.slide_ms)
        return f"({self.offset_ms}L + pmod({query_sql} * {stride}L, {self.slide_ms}L))"

    @property
    def text(self) -> str:
        """Write the windows the way people read them."""
        if self.size_ms == self.slide_ms:
            return f"tumbling {show_ms(self.size_ms)}"
        return f"sliding {show_ms(self.size_ms)} by {show_ms(self.slide_ms)}"


@dataclass(frozen=True, kw_only=True)
class KeyedWindows(Windows):
    """Describe windows that each key has for itself, made by its own events.

    `gap_ms` is how long a key may pause before it begins anew. What is too late is decided by
    *cells*, the windows of the description that this one extends.
    """

    gap_ms: int

    @property
    def reach_ms(self) -> int:
        """Return how long after an event its window ends, or the cell that it is in does."""
        return self.gap_ms + self.size_ms

    @property
    def patience_ms(self) -> int:
        """Return how long an ended window may wait for others that end soon after it."""
        return min(max(1, self.gap_ms // 20), _MOST_PATIENCE_MS)


@dataclass(frozen=True, kw_only=True)
class SessionWindows(KeyedWindows):
    """Describe sessions: events of a key, none more than `gap_ms` after the one before.

    Events of one cell are always in one session, because a cell is as long as the gap.
    """

    @property
    def text(self) -> str:
        """Write the windows the way people read them."""
        return f"sessions {show_ms(self.gap_ms)}"


@dataclass(frozen=True, kw_only=True)
class CountWindows(KeyedWindows):
    """Describe windows of `events` events of a key each, a new one every `every` events."""

    events: int
    every: int

    @property
    def patience_ms(self) -> int:
        """Return how long a full window may wait for others that are full soon after it."""
        return 200

    @property
    def text(self) -> str:
        """Write the windows the way people read them."""
        slide = "" if self.every == self.events else f" every {self.every:,}"
        return f"{self.events:,} events{slide}"


def tumbling(size: Duration, offset: Duration | Literal["spread"] = "0 s") -> Windows:
    """Cut time into windows of `size`, one after the other.

    `offset` moves their edges; "spread" gives each query its own, which evens out the load.

    >>> tumbling("3 seconds").size_ms
    3000
    """
    return sliding(size, size, offset)


def sliding(
    size: Duration, slide: Duration, offset: Duration | Literal["spread"] = "0 s"
) -> Windows:
    """Begin a window of `size` every `slide`; any slide will do, also one larger than the size."""
    size_ms, slide_ms = to_ms(size, "size"), to_ms(slide, "slide")
    if offset == SPREAD:
        return Windows(size_ms, slide_ms, spread=True)
    offset_ms = to_ms(offset, "offset", allow_zero=True)
    if offset_ms >= slide_ms:
        raise DescriptionError(
            f"offset={offset!r} is not smaller than the slide ({slide_ms} ms): "
            f"{offset_ms % slide_ms} ms places the same windows"
        )
    return Windows(size_ms, slide_ms, offset_ms)


def sessions(gap: Duration) -> SessionWindows:
    """Put the events of a key together until none comes for longer than `gap`.

    >>> sessions("30 minutes").text
    'sessions 1800 s'
    """
    gap_ms = to_ms(gap, "gap")
    return SessionWindows(size_ms=gap_ms, slide_ms=gap_ms, gap_ms=gap_ms)


def counted(events: int, slide: int | None = None, *, pause: Duration = "1 hour") -> CountWindows:
    """Put every `events` events of a key together, in the order of their time.

    A new window begins every `slide` events (default: when one is full). A key without events for
    longer than `pause` begins anew: what it has by then is emitted, as a shorter window.

    >>> counted(100, slide=10).text
    '100 events every 10'
    """
    every = events if slide is None else slide
    for field, value in (("events", events), ("slide", every)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise DescriptionError(f"counted({field}={value!r}): give a whole number, at least 1")
    if every > events:
        raise DescriptionError(
            f"counted({events}, slide={every}): events between two windows would be in none; "
            "give a slide that is at most the number of events"
        )
    pause_ms = to_ms(pause, "pause")
    cell_ms = min(pause_ms, _COUNTED_CELL_MS)
    return CountWindows(
        size_ms=cell_ms, slide_ms=cell_ms, gap_ms=pause_ms, events=events, every=every
    )
