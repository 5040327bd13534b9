"""Panes printed as they come."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table
from rich.text import Text

from slackwater.errors import DescriptionError, SinkError
from slackwater.spark.sinks.base import Sink, SinkWriter
from slackwater.spark.sinks.pane_tables import RecentPanes

_WIDE = 1_000  # columns of something that is no terminal, such as a log file


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
            fresh, keys = self._written.leave_out(panes)
            if not keys:
                return
            try:
                self._print(fresh)
            except (OSError, ValueError) as failure:
                raise SinkError(
                    f"cannot print panes: {failure}: restore standard output, or use another sink"
                ) from failure
            self._written.add(keys)

    def _print(self, panes: pa.Table) -> None:
        # Standard output is looked up each time: notebooks and tests put another in its place.
        width = None if sys.stdout.isatty() else _WIDE
        output = Console(file=sys.stdout, width=width)
        table = Table(box=None, pad_edge=False)
        for field in panes.schema:
            number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
            table.add_column(field.name, no_wrap=True, justify="right" if number else "left")
        for row in panes.slice(0, self._rows).to_pylist():
            table.add_row(*(Text(_show(value)) for value in row.values()))
        output.print(table)
        if panes.num_rows > self._rows:
            output.print(Text(f"... and {panes.num_rows - self._rows:,} more rows"))
        sys.stdout.flush()


def _show(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, datetime):
        utc = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        return utc.isoformat(timespec="milliseconds") + ("Z" if value.tzinfo else "")
    return " ".join(str(value).splitlines())
