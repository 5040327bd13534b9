"""Records that no window could take, kept with the reason."""

from __future__ import annotations

import os
import re
import threading
from collections import Counter
from enum import StrEnum
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from slackwater.disk import PRIVATE, Access
from slackwater.errors import DescriptionError
from slackwater.spark.sinks.durable_files import (
    as_sink_error,
    local_directory,
    make_directory,
    replace_file,
    sync_directory,
)
from slackwater.spark.sinks.sealed import read_sealed, sealed


class DeadLetterReason(StrEnum):
    """Say why a record went to the dead letters."""

    MALFORMED = "malformed"
    NO_EVENT_TIME = "no event time"
    AHEAD_OF_TIME = "ahead of time"
    BEFORE_TIME = "before time"
    TOO_LATE = "too late"


DEAD_LETTER_SCHEMA = pa.schema(
    [
        pa.field("query", pa.string(), nullable=False),
        pa.field("input", pa.int32()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("event_time", pa.timestamp("us", tz="UTC")),
        pa.field("arrival", pa.timestamp("us", tz="UTC")),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("record", pa.string()),  # as JSON, or its raw text where it could not be parsed
        pa.field("topic", pa.string()),  # where the source has topics
    ]
)
_BATCH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class DeadLetterFiles:
    """Keep dead letters in a local directory, one Parquet file for each batch of them."""

    def __init__(self, directory: str | os.PathLike[str], access: Access = PRIVATE) -> None:
        self._directory = local_directory(directory, "DeadLetterFiles(directory)")
        self._access = access
        self._counts: dict[str, Counter[tuple[str, str]]] = {}
        self._lock = threading.Lock()
        with as_sink_error(self._directory):
            make_directory(self._directory, access)

    def write(self, batch: str, rows: pa.Table) -> None:
        """Make these dead letters durable, all or nothing, in the place of the same batch."""
        if not _BATCH.fullmatch(batch):
            raise DescriptionError(
                f"batch={batch!r} cannot be part of a file name: use letters, digits, '.', '_', '-'"
            )
        if not rows.num_rows:
            return
        rows = _checked(rows)
        content = pa.BufferOutputStream()
        pq.write_table(
            rows, content, compression="zstd", store_schema=False, write_page_checksum=True
        )
        path = self._directory / f"dead-{batch}.parquet"
        with as_sink_error(self._directory):
            replace_file(path, sealed(content.getvalue()), self._access)
            sync_directory(self._directory)
        with self._lock:
            self._counts[path.name] = _count(rows)

    def counts(self) -> dict[tuple[str, str], int]:
        """Count the dead letters of each (query, reason)."""
        total: Counter[tuple[str, str]] = Counter()
        for file in self._files():
            with self._lock:
                known = self._counts.get(file.name)
            if known is None:
                known = _count(read_sealed(file, ["query", "reason"]))
                with self._lock:
                    self._counts.setdefault(file.name, known)
            total.update(known)
        return dict(total)

    def read(self) -> pa.Table:
        """Return all dead letters, batch by batch."""
        empty = DEAD_LETTER_SCHEMA.empty_table()
        tables = [empty, *(read_sealed(file) for file in self._files())]
        return pa.concat_tables(tables, promote_options="default")  # old ones have no topic

    def newest_batch(self) -> int:
        """Return the highest number that a batch has as its name; -1 where none has one."""
        numbers = (re.fullmatch(r"dead-(\d+)\.parquet", file.name) for file in self._files())
        return max((int(number[1]) for number in numbers if number), default=-1)

    def _files(self) -> list[Path]:
        return sorted(self._directory.glob("dead-*.parquet"))


def _checked(rows: pa.Table) -> pa.Table:
    names = DEAD_LETTER_SCHEMA.names
    if sorted(rows.schema.names) != sorted(names):
        raise DescriptionError(f"dead letters have columns {rows.schema.names}: give {names}")
    unknown = set(pc.unique(rows["reason"]).to_pylist()) - set(DeadLetterReason)
    if unknown:
        raise DescriptionError(
            f"reason={sorted(map(str, unknown))!r} is unknown: use one of {list(DeadLetterReason)}"
        )
    return rows.select(names).cast(DEAD_LETTER_SCHEMA)


def _count(rows: pa.Table) -> Counter[tuple[str, str]]:
    groups = rows.group_by(["query", "reason"], use_threads=False).aggregate([([], "count_all")])
    return Counter({(row["query"], row["reason"]): row["count_all"] for row in groups.to_pylist()})
