"""Parquet files that tell when a byte of them has changed.

Parquet protects pages, if asked to, but neither their headers nor the footer. So each file has a
seal: a few bytes between the last row group and the footer, where no reader looks, with a checksum
of all that is before it and one of all that is behind. Pages have their own as well, for readers
that know nothing of seals.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from slackwater import disk
from slackwater.errors import SinkError

_SEAL: Final = struct.Struct("<8sII")  # magic, CRC of what is before, CRC of what is behind
_MAGIC: Final = b"SLKWSEAL"
_TAIL: Final = struct.Struct("<I4s")  # the footer's length and Parquet's magic
SEAL_BYTES: Final = _SEAL.size
Result = TypeVar("Result")


def seal(body_crc: int, footer: pa.Buffer) -> pa.Buffer:
    """Make the seal of a file whose bytes before and behind it are these."""
    return pa.py_buffer(_SEAL.pack(_MAGIC, body_crc, zlib.crc32(footer)))


def sealed(content: pa.Buffer) -> tuple[pa.Buffer, pa.Buffer, pa.Buffer]:
    """Return the bytes of a whole Parquet file with a seal in their midst."""
    start = _footer_start(content)
    body, footer = content.slice(0, start), content.slice(start)
    return body, seal(zlib.crc32(body), footer), footer


def seal_file(path: Path) -> None:
    """Put a seal into a finished file, and make its bytes durable."""
    with pa.memory_map(str(path)) as file:
        body, mark, footer = sealed(file.read_buffer())
        start, rest = body.size, [mark, pa.py_buffer(footer.to_pybytes())]
    handle = disk.current.open(path, os.O_WRONLY)
    try:
        disk.write_at(handle, rest, start)
        disk.current.sync(handle)
    finally:
        disk.current.close(handle)


def body_size(content: pa.Buffer, place: Path) -> int:
    """Return where row groups end; refuse a file that is not as it was written.

    A file without a seal, of an earlier version or of others, is taken as it is.
    """
    start = _checked_footer(content, place)
    before = start - SEAL_BYTES
    mark = _mark(content, start)
    if mark is None:
        return start
    if zlib.crc32(content.slice(0, before)) != mark[0]:
        raise damaged(place, "its checksum is another")
    return before


def read_sealed(path: Path, columns: list[str] | None = None) -> pa.Table:
    """Read a file of panes or dead letters; raise SinkError if it is damaged."""
    return _explained(path, lambda content: _read(content, path, columns))


def find_rows(
    path: Path, columns: list[str], wanted: Callable[[pq.RowGroupMetaData], bool]
) -> pa.Table | None:
    """Read some columns of those row groups whose metadata say that they are wanted."""

    def find(content: pa.Buffer) -> pa.Table | None:
        _checked_footer(content, path)
        file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        count = file.metadata.num_row_groups
        groups = [at for at in range(count) if wanted(file.metadata.row_group(at))]
        if not groups:
            return None
        body_size(content, path)
        return file.read_row_groups(groups, columns=columns)

    return _explained(path, find)


def damaged(place: Path, why: object) -> SinkError:
    """Say of a file that it cannot be read, and what to do."""
    return SinkError(
        f"{place} is not a readable Parquet file ({why}): restore it from a backup, or move it "
        "out of the directory, which gives its rows up"
    )


def _explained(path: Path, read: Callable[[pa.Buffer], Result]) -> Result:
    try:
        with pa.memory_map(str(path)) as file:
            return read(file.read_buffer())
    except (pa.ArrowException, OSError, ValueError) as failure:
        raise damaged(path, failure) from failure


def _read(content: pa.Buffer, path: Path, columns: list[str] | None) -> pa.Table:
    body_size(content, path)
    file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
    return file.read(columns=columns)


def _checked_footer(content: pa.Buffer, place: Path) -> int:
    try:
        start = _footer_start(content)
    except ValueError as failure:
        raise damaged(place, failure) from failure
    mark = _mark(content, start)
    if mark is None and re.search(_MAGIC, content):
        raise damaged(place, "its seal is not where its footer begins")
    if mark is not None and zlib.crc32(content.slice(start)) != mark[1]:
        raise damaged(place, "its footer's checksum is another")
    return start


def _mark(content: pa.Buffer, footer_start: int) -> tuple[int, int] | None:
    """Return both checksums of a seal that ends where the footer begins; None where none does."""
    if footer_start < SEAL_BYTES:
        return None
    raw = content.slice(footer_start - SEAL_BYTES, SEAL_BYTES).to_pybytes()
    magic, before, behind = _SEAL.unpack(raw)
    return (before, behind) if magic == _MAGIC else None


def _footer_start(content: pa.Buffer) -> int:
    if content.size < 2 * _TAIL.size:
        raise ValueError(f"it has {content.size} bytes")
    length, magic = _TAIL.unpack(content.slice(content.size - _TAIL.size).to_pybytes())
    start = int(content.size) - _TAIL.size - int(length)
    if magic != b"PAR1" or start < len(magic):
        raise ValueError("it does not end as a Parquet file does")
    return start
