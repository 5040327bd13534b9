"""Files that appear in a directory: Parquet, or JSON lines, each read exactly once.

Offsets count files. A record's OFFSET is its file's offset in the upper 32 bits and its row number
in the lower ones; in a JSON file above 16 MiB, which tasks read in parts, a hash of the line stands
for the row number. It depends on nothing but the file, however it is read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from slackwater.app.durations import Duration, to_ms
from slackwater.app.watermarks import FromSource, WatermarkStrategy, bounded
from slackwater.errors import DescriptionError, SourceError
from slackwater.spark.sources.base import SourceDescription, SourceReader
from slackwater.spark.sources.files_reader import JsonReader, ParquetReader
from slackwater.spark.sources.filescan import LARGE_FILE_BYTES
from slackwater.spark.sources.inline import Epoch, JsonRecords, checked_schema

FileFormat = Literal["parquet", "json"]

_FORMATS: Mapping[str, FileFormat] = {
    ".parquet": "parquet",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}


@dataclass(frozen=True)
class Files(SourceDescription):
    """Describe a directory of files; `files(...)` writes it with good defaults."""

    path: str
    format: FileFormat
    schema: StructType | str
    event_time: str
    watermark: WatermarkStrategy
    max_ahead_ms: int
    poll_ms: int
    idle_after_ms: int
    pattern: str = "*"
    follow: bool = True
    inline_bytes: int = 262_144
    epoch: Epoch | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if self.format not in ("parquet", "json"):
            raise DescriptionError(f"format={self.format!r} is unknown: use 'parquet' or 'json'")
        require_mounted_path("path", self.path)
        if not 0 <= self.inline_bytes <= LARGE_FILE_BYTES:
            raise DescriptionError(
                f"inline_bytes={self.inline_bytes!r} must be between 0 and {LARGE_FILE_BYTES}"
            )
        if self.format == "parquet" and self.epoch is not None:
            raise DescriptionError("epoch is for JSON: Parquet files say what their timestamps are")
        if self.follow and isinstance(self.watermark, FromSource):
            raise DescriptionError(
                "watermark=from_source(): files carry no watermarks; use bounded(...) or "
                "punctuated(...)"
            )
        if isinstance(self.schema, StructType):
            JsonRecords(checked_schema(self.schema, self.event_time), self.epoch)

    def open(self, spark: SparkSession) -> SourceReader:
        """Make the reader; the directory must be there."""
        schema = checked_schema(self.schema, self.event_time)
        _require_directory(self.path)
        return JsonReader(self, schema) if self.format == "json" else ParquetReader(self, schema)


def files(
    path: str | os.PathLike[str],
    *,
    schema: StructType | str,
    event_time: str,
    format: FileFormat | None = None,
    watermark: WatermarkStrategy | None = None,
    max_ahead: Duration = "1 minute",
    poll: Duration = "200 ms",
    idle_after: Duration = "5 seconds",
    pattern: str = "*",
    follow: bool = True,
    inline_bytes: int = 262_144,
    epoch: Epoch | None = None,
) -> Files:
    """Read the files that appear in a directory, and in directories below it, each exactly once.

    Write a file under a name that starts with `.` or `_` or ends with `.tmp`, which are ignored,
    and rename it when it is complete. A record arrives when its file was last modified. The
    directory is listed at most once per `poll`; without a new file for `idle_after` it holds no
    other input back. `watermark` is `bounded("1 second")` unless given. `follow=False` reads what
    is there, then ends. `epoch` is the unit of timestamps that JSON files give as numbers. JSON
    steps of at most `inline_bytes` take the fast way: the driver sends the lines along.
    """
    directory = os.path.abspath(path) if "://" not in str(path) else str(path)
    return Files(
        path=directory,
        format=format or _inferred_format(directory, pattern),
        schema=schema,
        event_time=event_time,
        watermark=watermark or bounded("1 second"),
        max_ahead_ms=to_ms(max_ahead, "max_ahead", allow_zero=True),
        poll_ms=to_ms(poll, "poll", allow_zero=True),
        idle_after_ms=to_ms(idle_after, "idle_after", allow_zero=True),
        pattern=pattern,
        follow=follow,
        inline_bytes=inline_bytes,
        epoch=epoch,
    )


def _require_directory(path: str) -> None:
    """Refuse a path that no directory is at, and say what is there instead."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    if os.path.exists(path):
        raise SourceError(
            f"path={path!r} is a file: files(...) follows a directory; give {parent!r}, with "
            f"pattern={os.path.basename(path)!r} if only that one is meant"
        )
    if any(mark in path for mark in "*?["):
        raise SourceError(
            f"path={path!r} is no directory: give the directory, and what its files are called as "
            f"pattern={os.path.basename(path)!r}"
        )
    raise SourceError(f"path={path!r} does not exist: create the directory, or mend the path")


def require_mounted_path(field: str, path: str) -> None:
    """Refuse addresses that are not paths of this machine."""
    if "://" in path:
        raise DescriptionError(
            f"{field}={path!r} is not a directory of this machine: mount it, or follow it with "
            "spark.readStream and read_stream(...)"
        )
    if ":" in path or not path.isprintable():
        raise DescriptionError(
            f"{field}={path!a} has a colon or an unprintable character, which Spark cannot read: "
            "use another directory"
        )


def _inferred_format(path: str, pattern: str) -> FileFormat:
    if "://" not in path:
        _require_directory(path)
    found = sorted(os.listdir(path)) if os.path.isdir(path) else []
    names = [pattern, path, *found]
    for name in names:
        suffix = os.path.splitext(name)[1].lower()
        if suffix in _FORMATS:
            return _FORMATS[suffix]
    there = f"there is {found[0]!r}" if found else "it is empty"
    raise DescriptionError(
        f"format is not given, and nothing in path={path!r} ({there}) or pattern={pattern!r} tells "
        "it: say format='parquet' or format='json'"
    )
