"""Windows as users describe them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from slackwater.app.durations import Duration, to_ms
from slackwater.errors import DescriptionError
from slackwater.progress.grid import WindowGrid, spread_stride

SPREAD: Final = "spread"


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

    def last_end_sql(self, slice_sql: str, query_sql: str) -> str:
        """Write the end of a slice's last window as a Spark SQL expression."""
        within = f"pmod({slice_sql} - {self._offset_sql(query_sql)}, {self.slide_ms}L)"
        return f"({slice_sql} - {within} + {self.size_ms}L)"

    def _offset_sql(self, query_sql: str) -> str:
        if not self.spread:
            return f"{self.offset_ms}L"
        stride = spread_stride(self.slide_ms)
        return f"({self.offset_ms}L + pmod({query_sql} * {stride}L, {self.slide_ms}L))"


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
