"""Panes in a local directory of Parquet files, which readers see as exactly the committed panes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from slackwater import disk
from slackwater.disk import flush_path
from slackwater.errors import DescriptionError, SinkError
from slackwater.spark.sinks.base import PANE_FIELDS, PaneId, Sink, SinkWriter
from slackwater.spark.sinks.durable_files import (
    TEMPORARY,
    DirectoryLock,
    as_sink_error,
    local_directory,
    make_directory,
    remove_temporaries,
    replace_file,
    sync_directory,
)
from slackwater.spark.sinks.growing_file import WRITER_OPTIONS, GrowingFile
from slackwater.spark.sinks.pane_tables import (
    IDENTITY,
    PaneColumns,
    PaneKey,
    RecentPanes,
    pane_keys,
)

_PART = re.compile(r"part-(\d{3,})-(\d{8,})\.parquet")
# A pane sent again after a crash is in the newest file of its lane, or, if the process was killed
# again before that pane's turn came, in the one before.
_FILES_SEARCHED = 2


def parquet(
    path: str | os.PathLike[str],
    *,
    roll_rows: int = 100_000,
    roll_bytes: int = 4 << 20,
    roll_writes: int = 64,
) -> ParquetSink:
    """Write panes as Parquet files into a local directory (a path or a `file:` URI).

    A file grows with every write until it has reached one of the `roll_` bounds.
    """
    directory = local_directory(path, "parquet(path)")
    return ParquetSink(directory, roll_rows, roll_bytes, roll_writes)


def read_panes(path: str | os.PathLike[str]) -> pa.Table:
    """Read all panes of such a directory; `last_panes` keeps the last one of each window."""
    directory = local_directory(path, "read_panes(path)")
    if not _visible(directory):
        return pa.schema(PANE_FIELDS).empty_table()
    return ds.dataset(directory, format="parquet").to_table()


@dataclass(frozen=True)
class ParquetSink(Sink):
    """Name a local directory for panes; one writer at a time."""

    directory: Path
    roll_rows: int
    roll_bytes: int
    roll_writes: int

    def __post_init__(self) -> None:
        for field in ("roll_rows", "roll_bytes", "roll_writes"):
            if getattr(self, field) < 1:
                raise DescriptionError(
                    f"parquet({field}={getattr(self, field)!r}) leaves no room: give at least 1"
                )

    def open(self) -> ParquetWriter:
        """Make the directory if need be, and find out which panes may be sent to it again."""
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
        with as_sink_error(self._directory):
            make_directory(self._directory)
            self._lock = DirectoryLock(self._directory)
            try:
                remove_temporaries(self._directory)
                files = _visible(self._directory)
                lanes = _sequences(files)
                self._lanes = {lane: _Lane(max(found), None) for lane, found in lanes.items()}
                schema = _schema(files[-1]) if files else None
                self._columns = PaneColumns(str(self._directory), schema)
                self._recent = RecentPanes(self._panes_that_may_return(lanes))
                self._large = {file.name for file in files if file.name.startswith("pane-")}
            except BaseException:
                self._lock.release()
                raise

    def write(self, panes: pa.Table, lane: int) -> None:
        """Make these panes durable and visible, all or nothing; leave out those it has already."""
        self._check_open()
        with _reported(self._directory):
            fresh, keys = self._recent.leave_out(self._columns.conform(panes))
            fresh, keys = self._leave_out_large(fresh, keys)
            if keys:
                self._append(fresh, lane)
                self._recent.add(keys)
            # Also where nothing was new: the name of what a killed process wrote may not be
            # durable yet, nor that of a write whose own call failed just here.
            sync_directory(self._directory)

    def write_frame(self, pane: PaneId, frame: DataFrame, lane: int) -> int:
        """Let Spark write one large pane into a file of its own, and publish that.

        Executors must see the directory under the same path. What the frame's own computation
        raises is passed on as it is.
        """
        self._check_open()
        key = (pane.query, pane.window_start_us, pane.pane)
        target = self._directory / _large_name(key)
        schema = to_arrow_schema(frame.schema, timezone="UTC")
        with _reported(self._directory):
            stored = self._columns.conform_schema(schema)
            if target.name not in self._large and key not in self._recent:
                staging = self._directory / f"{TEMPORARY}{lane}-{target.stem}"
                with contextlib.suppress(FileExistsError):
                    disk.current.make_directory(staging)
                try:
                    files = staging / "files"
                    frame.coalesce(1).write.mode("overwrite").parquet(files.as_uri())
                    written = next(files.glob("*.parquet"))
                    if pq.read_metadata(written).num_rows:
                        _restore(written, stored, staging / target.name)
                        disk.current.replace(staging / target.name, target)
                        self._large.add(target.name)
                finally:
                    with contextlib.suppress(OSError):
                        disk.current.remove_tree(staging)
            sync_directory(self._directory)
            if target.exists():
                return int(pq.read_metadata(target).num_rows)
            return 0  # it stands in an ordinary file already

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
        replace_file(self._part(lane, sequence), file.chunks)
        state.file, state.sequence = file, sequence

    def _lane(self, lane: int) -> _Lane:
        with self._growth:
            return self._lanes.setdefault(lane, _Lane(0, None))

    def _part(self, lane: int, sequence: int) -> Path:
        return self._directory / f"part-{lane:03d}-{sequence:08d}.parquet"

    def _panes_that_may_return(self, lanes: dict[int, list[int]]) -> set[PaneKey]:
        found: set[PaneKey] = set()
        for lane, sequences in lanes.items():
            for sequence in sorted(sequences)[-_FILES_SEARCHED:]:
                path = self._part(lane, sequence)
                with _readable(path):
                    found |= pane_keys(pq.ParquetFile(path).read(columns=list(IDENTITY)))
        return found

    def _leave_out_large(
        self, panes: pa.Table, keys: set[PaneKey]
    ) -> tuple[pa.Table, set[PaneKey]]:
        if not self._large:
            return panes, keys
        here = {key for key in keys if _large_name(key) in self._large}
        return RecentPanes(here).leave_out(panes) if here else (panes, keys)

    def _check_open(self) -> None:
        if not self._lock.held:
            raise SinkError(f"the writer of {self._directory} is closed: open the sink again")


def _visible(directory: Path) -> list[Path]:
    return sorted(p for p in directory.glob("*.parquet") if not p.name.startswith(("_", ".")))


def _sequences(files: list[Path]) -> dict[int, list[int]]:
    lanes: dict[int, list[int]] = {}
    for part in filter(None, (_PART.fullmatch(file.name) for file in files)):
        lanes.setdefault(int(part[1]), []).append(int(part[2]))
    return lanes


def _schema(file: Path) -> pa.Schema:
    with _readable(file):
        return pq.read_schema(file)


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


@contextlib.contextmanager
def _readable(file: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as failure:
        raise SinkError(
            f"{file} is not a readable Parquet file ({failure}): move it out of the directory"
        ) from failure


def _large_name(key: PaneKey) -> str:
    digest = hashlib.sha256("\0".join(map(str, key)).encode()).hexdigest()
    return f"pane-{digest[:32]}.parquet"


def _restore(source: Path, schema: pa.Schema, target: Path) -> None:
    """Copy Spark's file with the columns as in all others: Spark writes timestamps as INT96."""
    with (
        pq.ParquetFile(source, coerce_int96_timestamp_unit="us") as file,
        pq.ParquetWriter(target, schema, **WRITER_OPTIONS) as writer,
    ):
        for batch in file.iter_batches():
            table = pa.Table.from_batches([batch]).select(schema.names)
            writer.write_table(table.cast(schema))
    flush_path(target)
