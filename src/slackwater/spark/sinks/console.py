"""Panes printed as they come."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from slackwater.errors import DescriptionError, SinkError
from slackwater.spark.sinks.base import Sink, SinkWriter
from slackwater.spark.sinks.pane_tables import RecentPanes

_GAP = "  "  # between columns


def console(rows: int = 20) -> ConsoleSink:
    """Print panes to standard output, at most `rows` lines of each batch."""
    return ConsoleSink(rows)


@dataclass(frozen=True)
class ConsoleSink(Sink):
    """Name the standard output of this process."""

    rows: int = 20

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise DescriptionError(f"console(rows={self.rows!r}) shows nothing: give at least 1")

    def open(self) -> SinkWriter:
        """Make a writer that prints."""
        return _ConsoleWriter(self.rows)


class _ConsoleWriter(SinkWriter):
    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._written = RecentPanes()
        self._lock = threading.Lock()

    def write(self, panes: pa.Table, lane: int) -> None:
        with self._lock:
            fresh, new, sent = self._written.leave_out(panes)
            if not new:
                return
            try:
                self._print(fresh)
            except (OSError, ValueError) as failure:
                raise SinkError(
                    f"cannot print panes: {failure}: restore standard output, or use another sink"
                ) from failure
            self._written.add(sent)

    def _print(self, panes: pa.Table) -> None:
        columns = [_column(*pair) for pair in zip(panes.schema, self._shown(panes), strict=True)]
        lines = [_GAP.join(cells).rstrip() for cells in zip(*columns, strict=True)]
        if panes.num_rows > self._rows:
            lines.append(f"... and {panes.num_rows - self._rows:,} more rows")
        # Standard output is looked up each time: notebooks and tests put another in its place.
        print(*lines, sep="\n", file=sys.stdout, flush=True)

    def _shown(self, panes: pa.Table) -> list[list[Any]]:
        return [column.to_pylist() for column in panes.slice(0, self._rows).columns]


def _column(field: pa.Field, values: list[Any]) -> list[str]:
    """Write a column below its name, numbers to the right."""
    cells = [field.name, *map(_show, values)]
    width = max(map(len, cells))
    number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
    return [cell.rjust(width) if number else cell.ljust(width) for cell in cells]


def _show(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, datetime):
        utc = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        return utc.isoformat(timespec="milliseconds") + ("Z" if value.tzinfo else "")
    return " ".join(str(value).splitlines())
