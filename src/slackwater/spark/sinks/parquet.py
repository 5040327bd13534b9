"""Panes in a local directory of Parquet files, which readers see as exactly the committed panes."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.disk import PRIVATE, SHARED, Access
from slackwater.errors import DescriptionError, SinkError
from slackwater.spark.sinks.base import PANE_FIELDS, Sink, SinkWriter
from slackwater.spark.sinks.durable_files import (
    DirectoryLock,
    as_sink_error,
    local_directory,
    open_directory,
    remove_temporaries,
    replace_file,
    sync_directory,
)
from slackwater.spark.sinks.growing_file import WRITER_OPTIONS, GrowingFile
from slackwater.spark.sinks.pane_files import StagedFile, find_panes
from slackwater.spark.sinks.pane_tables import PaneColumns, RecentPanes
from slackwater.spark.sinks.sealed import damaged, read_sealed

_PART = re.compile(r"part-(\d{3,})-(\d{8,})\.parquet")


def parquet(
    path: str | os.PathLike[str],
    *,
    roll_rows: int = 100_000,
    roll_bytes: int = 4 << 20,
    roll_writes: int = 64,
    shared: bool = False,
) -> ParquetSink:
    """Write panes as Parquet files into a local directory (a path or a `file:` URI).

    A file grows with every write until it has reached one of the `roll_` bounds. Files can be read
    by the user who writes them alone; with `shared=True`, by those whom the umask lets.
    """
    directory = local_directory(path, "parquet(path)")
    return ParquetSink(directory, roll_rows, roll_bytes, roll_writes, shared)


def read_panes(path: str | os.PathLike[str]) -> pa.Table:
    """Read all panes of such a directory; `last_panes` keeps the last one of each window.

    A file that is not as it was written is refused.
    """
    directory = local_directory(path, "read_panes(path)")
    tables = [read_sealed(file) for file in _visible(directory)]
    if not tables:
        return pa.schema(PANE_FIELDS).empty_table()
    return pa.concat_tables(tables, promote_options="default")


@dataclass(frozen=True)
class ParquetSink(Sink):
    """Name a local directory for panes; one writer at a time."""

    directory: Path
    roll_rows: int
    roll_bytes: int
    roll_writes: int
    shared: bool = False

    def __post_init__(self) -> None:
        for field in ("roll_rows", "roll_bytes", "roll_writes"):
            if getattr(self, field) < 1:
                raise DescriptionError(
                    f"parquet({field}={getattr(self, field)!r}) leaves no room: give at least 1"
                )

    @property
    def access(self) -> Access:
        """Say who may read what is written."""
        return SHARED if self.shared else PRIVATE

    def open(self) -> ParquetWriter:
        """Make the directory if need be, and find out which files it has."""
        return ParquetWriter(self)

    def is_full(self, file: GrowingFile) -> bool:
        """Tell whether the next write begins another file."""
        return (
            file.rows >= self.roll_rows
            or file.size_bytes >= self.roll_bytes
            or file.writes >= self.roll_writes
        )


@dataclass
class _Lane:
    """Follow one lane's newest file; `file` is None where it has not been read back yet."""

    sequence: int
    file: GrowingFile | None


class ParquetWriter(SinkWriter):
    """Write each lane's panes into a growing file of its own, replaced atomically at each write."""

    def __init__(self, sink: ParquetSink) -> None:
        self._sink = sink
        self._directory = sink.directory
        self._growth = threading.Lock()
        open_directory(self._directory, "parquet(path)", sink.access)
        with as_sink_error(self._directory):
            self._lock = DirectoryLock(self._directory, sink.access)
            try:
                remove_temporaries(self._directory)
                files = _visible(self._directory)
                self._lanes = {lane: _Lane(last, None) for lane, last in _newest(files).items()}
                schema = _schema(files[-1]) if files else None
                self._columns = PaneColumns(str(self._directory), schema)
                self._recent = RecentPanes()
            except BaseException:
                self._lock.release()
                raise

    def admit(self, schema: pa.Schema) -> None:
        """Refuse other columns than those that are there, and what Parquet cannot hold."""
        with _reported(self._directory):
            stored = self._columns.conform_schema(schema)
            pq.write_table(stored.empty_table(), pa.BufferOutputStream(), **WRITER_OPTIONS)

    def recall(self, queries: Mapping[str, int | None]) -> None:
        """Look through all files for panes of these queries; most need their footers read only."""
        self._check_open()
        if queries:
            with as_sink_error(self._directory):
                for file in _visible(self._directory):
                    self._recent.recall(find_panes(file, queries))

    def write(self, panes: pa.Table, lane: int) -> None:
        """Make these panes durable and visible, all or nothing; leave out those it has already."""
        self._check_open()
        with _reported(self._directory):
            fresh, new, sent = self._recent.leave_out(self._columns.conform(panes))
            if new:
                self._append(fresh, lane)
                self._recent.add(sent)
            # Also where nothing was new: the name of what a killed process wrote may not be
            # durable yet, nor that of a write whose own call failed just here.
            sync_directory(self._directory)

    def stage(self, lane: int) -> StagedFile:
        """Gather a large step in one file. Executors must see the directory under the same path."""
        self._check_open()
        with _reported(self._directory):
            return StagedFile(self._directory, lane, self._columns, self._recent, self._sink.access)

    def close(self) -> None:
        """Let another writer have the directory."""
        self._lock.release()

    def _append(self, table: pa.Table, lane: int) -> None:
        state = self._lane(lane)
        if state.file is None:
            path = self._part(lane, state.sequence)
            state.file = GrowingFile.load(path, table.schema) if path.exists() else None
        file, sequence = state.file, state.sequence
        if file is None or self._sink.is_full(file):
            file, sequence = GrowingFile(), sequence + 1
        file = file.grown(table)
        replace_file(self._part(lane, sequence), file.chunks, self._sink.access)
        state.file, state.sequence = file, sequence

    def _lane(self, lane: int) -> _Lane:
        with self._growth:
            return self._lanes.setdefault(lane, _Lane(0, None))

    def _part(self, lane: int, sequence: int) -> Path:
        return self._directory / f"part-{lane:03d}-{sequence:08d}.parquet"

    def _check_open(self) -> None:
        if not self._lock.held:
            raise SinkError(f"the writer of {self._directory} is closed: open the sink again")


def _visible(directory: Path) -> list[Path]:
    return sorted(p for p in directory.glob("*.parquet") if not p.name.startswith(("_", ".")))


def _newest(files: list[Path]) -> dict[int, int]:
    """Return the highest number of each lane's files."""
    newest: dict[int, int] = {}
    for part in filter(None, (_PART.fullmatch(file.name) for file in files)):
        lane, sequence = int(part[1]), int(part[2])
        newest[lane] = max(sequence, newest.get(lane, 0))
    return newest


def _schema(file: Path) -> pa.Schema:
    try:
        return pq.read_schema(file)
    except (pa.ArrowException, OSError) as failure:
        raise damaged(file, failure) from failure


@contextlib.contextmanager
def _reported(directory: Path) -> Iterator[None]:
    """Turn whatever keeps panes from being stored into a SinkError."""
    with as_sink_error(directory):
        try:
            yield
        except pa.ArrowException as failure:
            raise SinkError(
                f"panes for {directory} cannot be stored as Parquet: {failure}: cast that column"
            ) from failure
