"""The panes of one large step in temporary files, until a sink takes all of them as one table."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from slackwater.spark.sinks.arrow_batches import arrow_batches
from slackwater.spark.sinks.base import PaneId, StepPanes
from slackwater.spark.sinks.pane_tables import PaneColumns


class SpilledPanes(StepPanes):
    """Keep pieces as Arrow files; what is published is mapped into memory, not held there."""

    def __init__(
        self,
        publish: Callable[[pa.Table], None],
        check: Callable[[pa.Table], None] | None = None,
        check_frame: Callable[[DataFrame], None] | None = None,
    ) -> None:
        """Publish through a function; `check` may refuse a piece before anything is written."""
        self._publish = publish
        self._check = check
        self._check_frame = check_frame
        self._columns = PaneColumns("the panes of one step")
        self._directory = tempfile.TemporaryDirectory(prefix="slackwater-panes-")
        self._files: list[Path] = []

    def add(self, panes: pa.Table) -> None:
        """Spill panes that the driver has computed."""
        if panes.num_rows:
            if self._check is not None:
                self._check(panes)
            self._spill([panes])

    def add_frame(self, pane: PaneId, frame: DataFrame) -> int:
        """Spill a pane that Spark computes, a batch of rows at a time."""
        if self._check_frame is not None:
            self._check_frame(frame)
        return self._spill(arrow_batches(frame))

    def publish(self) -> None:
        """Hand all panes over in one call."""
        tables = [pa.ipc.open_stream(pa.memory_map(str(file))).read_all() for file in self._files]
        if tables:
            self._publish(pa.concat_tables(tables))

    def close(self) -> None:
        """Remove the files; what is still mapped stays readable."""
        self._directory.cleanup()

    def _spill(self, tables: Iterable[pa.Table]) -> int:
        rows = 0
        writer = None
        path = Path(self._directory.name, f"{len(self._files)}.arrow")
        try:
            for table in tables:
                stored = self._columns.conform(table)
                if writer is None:
                    writer = pa.ipc.new_stream(str(path), stored.schema)
                writer.write_table(stored)
                rows += stored.num_rows
        finally:
            if writer is not None:
                writer.close()
        if rows:
            self._files.append(path)
        return rows
