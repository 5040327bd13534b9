"""Panes in memory, for tests and notebooks."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa

from slackwater.spark.sinks.base import PANE_FIELDS, Sink, SinkWriter
from slackwater.spark.sinks.pane_tables import PaneColumns, RecentPanes, last_panes

_PLACE = "this memory sink"


def memory() -> MemorySink:
    """Keep all panes in this process, to be read from the sink itself; none is ever forgotten."""
    return MemorySink()


class MemorySink(Sink):
    """Hold panes, each once, for as long as the sink lives; opening it again goes on with them."""

    def __init__(self) -> None:
        self._tables: list[pa.Table] = []
        self._columns = PaneColumns(_PLACE)
        self._written = RecentPanes(forgets=False)
        self._lock = threading.Lock()

    def open(self) -> SinkWriter:
        """Make a writer that adds to this sink."""
        with self._lock:
            if not self._tables:  # nothing was written that would say which columns there are
                self._columns = PaneColumns(_PLACE)
        return _MemoryWriter(self)

    def table(self) -> pa.Table:
        """Return the rows of all panes, in the order they came."""
        with self._lock:
            tables = list(self._tables)
        return pa.concat_tables(tables) if tables else pa.schema(PANE_FIELDS).empty_table()

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of all panes as dictionaries, in the order they came."""
        rows: list[dict[str, Any]] = self.table().to_pylist()
        return rows

    def last_panes(self) -> pa.Table:
        """Return the rows that hold now: those of each window's highest pane."""
        return last_panes(self.table())

    def admit(self, schema: pa.Schema) -> None:
        """Refuse other columns than those that are here."""
        self._columns.conform_schema(schema)

    def take(self, panes: pa.Table) -> None:
        """Add those panes that are not here yet."""
        panes = self._columns.conform(panes)
        with self._lock:
            fresh, new, _ = self._written.leave_out(panes)
            if new:
                self._tables.append(fresh)
                self._written.add(new)


class _MemoryWriter(SinkWriter):
    def __init__(self, sink: MemorySink) -> None:
        self._sink = sink

    def admit(self, schema: pa.Schema) -> None:
        self._sink.admit(schema)

    def write(self, panes: pa.Table, lane: int) -> None:
        self._sink.take(panes)
