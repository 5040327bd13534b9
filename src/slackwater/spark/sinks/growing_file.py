"""A Parquet file that grows by one row group a write, and whose bytes so far never change.

Replacing a file by a longer one is not enough for readers that listed it before. Spark gives its
tasks the length it listed, and a task reads the row groups whose middle lies within: in a file
written anew as one larger row group it finds none, and rows that were there are missing. A pyarrow
dataset that has cached a footer reads garbage. Here every row group stays where it was, so a stale
listing or footer gives the older content, whole. And only the new rows have to be encoded.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from slackwater import disk
from slackwater.errors import SinkError
from slackwater.spark.sinks.sealed import body_size, seal

# Arrow's own schema is left out: it would take more room than the rows of a small write.
WRITER_OPTIONS: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 1,
    "use_dictionary": ["query", "timing"],
    "write_statistics": ["query", "window_start", "window_end"],
    "write_page_checksum": True,
    "store_schema": False,
}
_MAGIC = b"PAR1"
_EMPTY = pa.py_buffer(_MAGIC)
_EMPTY_CRC = zlib.crc32(_MAGIC)
_TAIL_BYTES = 8  # the footer's length and the magic


@dataclass(frozen=True)
class GrowingFile:
    """Hold the bytes of a file; `grown` makes the next version of it."""

    groups: pa.Buffer = field(default_factory=lambda: _EMPTY)
    footer: pa.Buffer | None = None
    rows: int = 0
    writes: int = 0
    crc: int = _EMPTY_CRC  # of the groups

    @property
    def chunks(self) -> tuple[pa.Buffer, ...]:
        """Give the bytes of the file, in their order."""
        if self.footer is None:
            return (self.groups,)
        footer = self.footer.slice(len(_MAGIC))
        return (self.groups, seal(self.crc, footer), footer)

    @property
    def size_bytes(self) -> int:
        """Tell how long the file is."""
        return sum(chunk.size for chunk in self.chunks)

    def grown(self, table: pa.Table) -> GrowingFile:
        """Return the file with these rows behind its own, in one row group."""
        groups, added = _encode(self.groups, table)
        if self.footer is None:
            merged = added
        else:
            merged = pq.read_metadata(pa.BufferReader(self.footer))
            merged.append_row_groups(added)
        footer = pa.BufferOutputStream()
        merged.write_metadata_file(footer)
        return GrowingFile(
            groups,
            footer.getvalue(),
            self.rows + table.num_rows,
            self.writes + 1,
            zlib.crc32(groups.slice(self.groups.size), self.crc),
        )

    @staticmethod
    def load(path: Path, schema: pa.Schema) -> GrowingFile | None:
        """Read a file back to go on with it; None where its columns are stored differently."""
        content = pa.py_buffer(disk.current.read(path))
        groups = content.slice(0, body_size(content, path))
        metadata = pq.read_metadata(pa.BufferReader(content))
        _, fresh = _encode(_EMPTY, schema.empty_table())
        if not metadata.schema.equals(fresh.schema):
            return None
        footer = pa.BufferOutputStream()
        metadata.write_metadata_file(footer)
        rows, writes = metadata.num_rows, metadata.num_row_groups
        return GrowingFile(groups, footer.getvalue(), rows, writes, zlib.crc32(groups))


def _encode(groups: pa.Buffer, table: pa.Table) -> tuple[pa.Buffer, pq.FileMetaData]:
    """Return the groups with a new one behind them, and the new one's metadata."""
    stream = pa.BufferOutputStream()
    with pq.ParquetWriter(stream, table.schema, **WRITER_OPTIONS) as writer:
        # The writer has begun the file with the magic, and takes each group's offset from the
        # stream: what is put in between moves the new group to behind the others.
        stream.write(groups.slice(len(_MAGIC)))
        writer.write_table(table, row_group_size=max(table.num_rows, 1))
        if table.schema.metadata:  # which keys tell windows apart
            writer.add_key_value_metadata(table.schema.metadata)
    content = stream.getvalue()
    metadata = pq.read_metadata(pa.BufferReader(content))
    if metadata.num_row_groups:
        first = metadata.row_group(0).column(0)
        offset = first.dictionary_page_offset or first.data_page_offset
        if offset != groups.size:
            raise SinkError(
                f"pyarrow {pa.__version__} placed a row group at {offset}, not {groups.size}: "
                "install the version that Slackwater names"
            )
    return content.slice(0, content.size - _TAIL_BYTES - metadata.serialized_size), metadata
