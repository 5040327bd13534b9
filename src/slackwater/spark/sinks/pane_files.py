"""Files of panes besides the growing ones: a large step in one, and panes looked up in any."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from slackwater import disk
from slackwater.disk import Access
from slackwater.errors import SinkError
from slackwater.spark.sinks.base import PaneId, StepPanes
from slackwater.spark.sinks.durable_files import TEMPORARY, as_sink_error, sync_directory
from slackwater.spark.sinks.growing_file import WRITER_OPTIONS
from slackwater.spark.sinks.pane_tables import (
    IDENTITY,
    PaneColumns,
    PaneKey,
    RecentPanes,
    pane_keys,
)
from slackwater.spark.sinks.sealed import find_rows, seal_file


class StagedFile(StepPanes):
    """Gather the panes of a step in one file that readers pass over until it is renamed.

    What the computation of a frame raises is passed on as it is.
    """

    def __init__(
        self, directory: Path, lane: int, columns: PaneColumns, recent: RecentPanes, access: Access
    ) -> None:
        self._directory = directory
        self._columns = columns
        self._recent = recent
        self._sent: set[PaneKey] = set()
        self._new: set[PaneKey] = set()
        self._writer: pq.ParquetWriter | None = None
        self._frames = 0
        self._staging = directory / f"{TEMPORARY}step-{lane}"
        if self._staging.exists():  # it could not be removed
            disk.current.remove_tree(self._staging)
        disk.current.make_directory(self._staging, access.directory_mode)
        self._path = self._staging / "panes.parquet"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        disk.current.close(disk.current.open(self._path, flags, access.file_mode))

    def add(self, panes: pa.Table) -> None:
        """Write those panes that the sink does not have."""
        with self._reported():
            fresh, new, sent = self._recent.leave_out(self._columns.conform(panes))
            self._sent |= sent
            self._new |= new
            if new:
                self._open(fresh.schema).write_table(fresh)

    def add_frame(self, pane: PaneId, frame: DataFrame) -> int:
        """Let Spark write a pane, and copy it with the columns as in all other files."""
        key = (pane.query, pane.window_start_us, pane.pane)
        with self._reported():
            schema = self._columns.conform_schema(to_arrow_schema(frame.schema, timezone="UTC"))
            if key in self._recent:
                self._sent.add(key)
                return frame.count()
            self._frames += 1
            files = self._staging / f"frame-{self._frames}"
            frame.coalesce(1).write.mode("overwrite").parquet(files.as_uri())
            rows = 0
            for table in _tables(files, schema):
                rows += table.num_rows
                self._open(schema).write_table(table)
            disk.current.remove_tree(files)
            if rows:
                self._sent.add(key)
                self._new.add(key)
            return rows

    def publish(self) -> None:
        """Give the file its name, which follows from its panes."""
        with self._reported():
            if self._writer is not None:
                self._writer.close()
                self._writer = None
                if self._came_meanwhile():
                    sync_directory(self._directory)
                    return
                seal_file(self._path)
                disk.current.replace(self._path, self._directory / _name(self._new))
                self._recent.add(self._sent)
            sync_directory(self._directory)

    def _came_meanwhile(self) -> bool:
        """Tell whether a step that was given up has written these panes since they were added."""
        there = {key for key in self._new if key in self._recent}
        if there and there != self._new:
            raise SinkError(
                f"some panes for {self._directory} were written meanwhile, by a step that was "
                "given up: resume, which leaves them out"
            )
        return bool(there)

    def close(self) -> None:
        """Remove what was staged."""
        if self._writer is not None:
            with contextlib.suppress(pa.ArrowException, OSError):
                self._writer.close()
        with contextlib.suppress(OSError):
            disk.current.remove_tree(self._staging)

    def _open(self, schema: pa.Schema) -> pq.ParquetWriter:
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._path, schema, **WRITER_OPTIONS)
            if schema.metadata:  # which keys tell windows apart
                self._writer.add_key_value_metadata(schema.metadata)
        return self._writer

    @contextlib.contextmanager
    def _reported(self) -> Iterator[None]:
        with as_sink_error(self._directory):
            try:
                yield
            except pa.ArrowException as failure:
                raise SinkError(
                    f"panes for {self._directory} cannot be stored as Parquet: {failure}: "
                    "cast that column"
                ) from failure


def find_panes(file: Path, queries: Mapping[str, int | None]) -> set[PaneKey]:
    """Find the panes of some queries in a file; of each query, those of windows from a start on."""

    def may_hold(group: pq.RowGroupMetaData) -> bool:
        least, most = _bounds(group, "query")
        _, newest_us = _bounds(group, "window_start")
        return any(
            (least is None or least <= query.encode() <= most)
            and (since is None or newest_us is None or newest_us >= since)
            for query, since in queries.items()
        )

    found = find_rows(file, list(IDENTITY), may_hold)
    if found is None:
        return set()
    names = pa.array(list(queries), pa.string())
    keys = pane_keys(found.filter(pc.is_in(found["query"], value_set=names)))
    since = {query: start for query, start in queries.items() if start is not None}
    return {key for key in keys if key[0] not in since or key[1] >= since[key[0]]}


def _bounds(group: pq.RowGroupMetaData, column: str) -> tuple[Any, Any]:
    """Return the least and the greatest value of a column as stored; None where not known."""
    for at in range(group.num_columns):
        part = group.column(at)
        if part.path_in_schema == column:
            told = part.statistics
            if told is not None and told.has_min_max:
                return told.min_raw, told.max_raw
            break
    return None, None


def _name(panes: Iterable[PaneKey]) -> str:
    digest = hashlib.sha256(repr(sorted(panes)).encode()).hexdigest()
    return f"panes-{digest[:32]}.parquet"


def _tables(files: Path, schema: pa.Schema) -> Iterator[pa.Table]:
    """Read what Spark wrote, which writes timestamps as INT96, a piece at a time."""
    for file in sorted(files.glob("*.parquet")):
        with pq.ParquetFile(file, coerce_int96_timestamp_unit="us") as written:
            for batch in written.iter_batches():
                table = pa.Table.from_batches([batch]).select(schema.names)
                yield table.cast(schema)
