"""How the files of a directory are planned, and read: sent along, or by a Spark scan."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from slackwater.errors import SourceError
from slackwater.progress.times import END_OF_TIME_MS
from slackwater.spark.sources.base import Range, ScanReader
from slackwater.spark.sources.directory import (
    Directory,
    FoundFile,
    changed,
    require_unchanged,
    vanished,
)
from slackwater.spark.sources.filescan import WantedFile, scan_json, scan_parquet
from slackwater.spark.sources.inline import InlineRows, JsonRecords, block, inline_entry

if TYPE_CHECKING:
    from slackwater.spark.sources.files import Files

_COMPRESSED = {".gz", ".bz2", ".zst", ".lz4", ".snappy", ".deflate", ".xz", ".zip"}
_COUNTED_BYTES = 1_048_576  # JSON files up to this size are counted, larger ones estimated
_SAMPLED_BYTES = 65_536


class FilesReader(ScanReader):
    """Plan the files of one directory, as one partition."""

    def __init__(self, description: Files, schema: StructType) -> None:
        """Start at the directory's first file."""
        self.schema = schema
        self.event_time = description.event_time
        self.watermark = description.watermark
        self.max_ahead_ms = description.max_ahead_ms
        self._description = description
        self._directory = Directory(
            root=Path(description.path),
            pattern=description.pattern,
            poll_ms=description.poll_ms,
            measure=self._measure,
            follow=description.follow,
        )

    @property
    def fusion_key(self) -> Hashable:
        """Fuse readers of any directories whose records look the same."""
        d = self._description
        reading = (d.format, self.schema.json(), d.epoch, d.inline_bytes)
        return ("files", *reading, self.event_time, self.watermark, self.max_ahead_ms)

    def restore(self, committed: Mapping[int, int], state: Any, ranges: Sequence[Range]) -> None:
        """Take up the files of a snapshot and those planned since."""
        planned = {
            offset: file
            for piece in ranges
            for offset, file in zip(
                range(piece.first, piece.until), files_of(piece)[1], strict=True
            )
        }
        self._directory.restore(committed.get(0, 0), state, planned)
        if any(piece.watermark_ms == END_OF_TIME_MS for piece in ranges):
            self._directory.complete = not self._directory.follow

    def state(self) -> Any:
        """Return the names of the files seen that are still there, and where reading stands."""
        return self._directory.state()

    def plan(self, positions: Mapping[int, int], now_ms: float, max_events: int) -> list[Range]:
        """Plan whole files, at most `max_events` records but at least one file."""
        self._directory.look(now_ms)
        first = positions.get(0, 0)
        unread = self._directory.unread(first)
        taken: list[FoundFile] = []
        events = 0
        for file in unread:
            if taken and events + file.records > max_events:
                break
            taken.append(file)
            events += file.records
        last = self._directory.complete and len(taken) == len(unread)
        return [
            Range(
                partition=0,
                first=first,
                until=first + len(taken),
                events=events,
                watermark_ms=END_OF_TIME_MS if last else None,
                idle=not unread and self._quiet(now_ms),
                detail={"root": self._description.path, "files": [list(file) for file in taken]},
            )
        ]

    def oldest_arrival_ms(self, positions: Mapping[int, int], now_ms: float) -> float | None:
        """Return when the next file to be read was written."""
        self._directory.look(now_ms)
        file = self._directory.first_unread(positions.get(0, 0))
        return None if file is None else file.arrival_ms

    def split(self, piece: Range, parts: int) -> list[Range]:
        """Cut a range between files, into parts of about equal size."""
        root, found = files_of(piece)
        share = sum(file.size for file in found) / max(1, parts)
        cuts, size = [0], 0
        for index, file in enumerate(found[:-1]):
            size += file.size
            if size >= share * len(cuts):
                cuts.append(index + 1)
        groups = [found[a:b] for a, b in zip(cuts, [*cuts[1:], len(found)], strict=True)]
        return [
            Range(
                partition=piece.partition,
                first=piece.first + cut,
                until=piece.first + cut + len(group),
                events=sum(file.records for file in group),
                watermark_ms=piece.watermark_ms,
                idle=piece.idle,
                detail={"root": root, "files": [list(file) for file in group]},
            )
            for cut, group in zip(cuts, groups, strict=True)
        ]

    def finished(self, positions: Mapping[int, int], now_ms: float) -> bool:
        """Tell whether all files have been read and no more are looked for."""
        self._directory.look(now_ms)
        return self._directory.complete and positions.get(0, 0) >= self._directory.until

    def available_one(self, now_ms: float) -> int:
        """Count the records of all files found (estimated for large JSON files)."""
        self._directory.look(now_ms)
        return self._directory.records

    def clock_set(self, by_ms: float) -> None:
        """Take note that the machine's clock was set."""
        self._directory.clock_set(by_ms)

    def _quiet(self, now_ms: float) -> bool:
        since_ms = self._directory.quiet_since_ms
        return since_ms is not None and now_ms - since_ms >= self._description.idle_after_ms

    @abstractmethod
    def _measure(self, path: Path, size: int) -> int:
        """Count the records of a file."""


class ParquetReader(FilesReader):
    """Read Parquet files, each step by one Spark scan."""

    def scan(self, spark: SparkSession, ranges: Sequence[tuple[int, Range]]) -> DataFrame:
        """Read the files of many queries at once."""
        return scan_parquet(spark, self.schema, _wanted(ranges))

    def _measure(self, path: Path, size: int) -> int:
        try:
            footer = pq.read_metadata(path)
        except FileNotFoundError:
            raise
        except (pa.ArrowException, OSError) as error:
            raise SourceError(
                f"{path} is not a complete Parquet file ({error}): take it out of the directory, "
                "then resume; write files under another name and rename them when complete"
            ) from error
        if self.event_time not in footer.schema.to_arrow_schema().names:
            raise SourceError(
                f"{path} has no column {self.event_time!r}, the event time: take it out of the "
                "directory, then resume"
            )
        return int(footer.num_rows)


class JsonReader(FilesReader, InlineRows):
    """Read JSON lines: sent along where they are few, else by one Spark scan."""

    def __init__(self, description: Files, schema: StructType) -> None:
        """Start at the directory's first file."""
        super().__init__(description, schema)
        self.records = JsonRecords(schema, description.epoch)

    def suits(self, ranges: Sequence[tuple[int, Range]]) -> bool:
        """Send lines along if all files together have at most `inline_bytes`."""
        total = sum(file.size for _, piece in ranges for file in files_of(piece)[1])
        return total <= self._description.inline_bytes

    def entry(self, query: int, piece: Range) -> dict[str, Any]:
        """Read the files of a range into a specification entry."""
        root, found = files_of(piece)
        blocks = [
            block((piece.first + index) << 32, file.arrival_ms, _lines(root, file))
            for index, file in enumerate(found)
        ]
        return inline_entry(query, piece.partition, blocks)

    def scan(self, spark: SparkSession, ranges: Sequence[tuple[int, Range]]) -> DataFrame:
        """Read the files of many queries at once."""
        return scan_json(spark, self.records, _wanted(ranges))

    def _measure(self, path: Path, size: int) -> int:
        if path.suffix in _COMPRESSED:
            raise SourceError(
                f"{path} is compressed, which JSON files must not be: unpack it, then resume"
            )
        with path.open("rb") as stream:
            if size <= _COUNTED_BYTES:
                return sum(1 for line in stream.read().splitlines() if line.strip(b" \t"))
            sample = stream.read(_SAMPLED_BYTES)
        return max(1, round(size * sample.count(b"\n") / len(sample)))


def files_of(piece: Range) -> tuple[str, list[FoundFile]]:
    """Return the directory and the files that a range names."""
    return piece.detail["root"], [FoundFile(*file) for file in piece.detail["files"]]


def _wanted(ranges: Sequence[tuple[int, Range]]) -> list[WantedFile]:
    return [
        WantedFile(
            query=query,
            partition=piece.partition,
            offset=piece.first + index,
            path=require_unchanged(root, file),
            size=file.size,
            arrival_ms=file.arrival_ms,
        )
        for query, piece in ranges
        for root, found in [files_of(piece)]
        for index, file in enumerate(found)
    ]


def _lines(root: str, file: FoundFile) -> list[str]:
    path = os.path.join(root, file.path)
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise vanished(path, error) from error
    if len(content) != file.size:
        raise changed(path, file.size, len(content))
    return [line.decode("utf-8", "replace") for line in content.splitlines()]
