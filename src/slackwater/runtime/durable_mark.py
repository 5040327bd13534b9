"""How far a journal is known to be durable: what tells a torn record from one that is gone.

The end of the last segment alone cannot: a file that was cut, emptied or filled with zeros looks
like one whose last write never finished. So a small file beside the segments, `durable-mark`, says
of which segment how many bytes have been flushed. It has two places, in sectors of their own, which
are written in turn:

    SLKM | number of the segment u64 | bytes of it u64 | CRC of these 20 bytes u32

It is written after each flush and not flushed itself, so it costs no waiting. It survives the
process, and reaches the disk with the system's next writeback; whatever is found there is true, if
perhaps not the latest: it was written once the bytes it speaks of were durable.
"""

from __future__ import annotations

import logging
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from slackwater import disk
from slackwater.disk import PRIVATE, Access, flush_path, write_at
from slackwater.errors import JournalError

NAME = "durable-mark"
_MAGIC = b"SLKM"
_MARK = struct.Struct("<4sQQ")
_CRC = struct.Struct("<I")
_APART = 512  # bytes: a write that is torn spoils one of the two places
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, order=True)
class Mark:
    """Say that so many bytes of a segment, and all segments before it, are durable."""

    number: int = 0
    bytes: int = 0

    def of(self, number: int) -> int:
        """Return how many bytes of a segment are known to be durable, where it is the last."""
        return self.bytes if number == self.number else 0


class DurableMark:
    """Keep the mark of a journal that is open."""

    def __init__(self, directory: Path, *, durable: bool, access: Access = PRIVATE) -> None:
        """Go on with a directory's mark, or make one that says nothing yet."""
        self._path = directory / NAME
        self._durable = durable
        self._told = False
        if not self._path.exists():
            self._make(access)
        places = _places(disk.current.read(self._path))
        self._next = 0 if places[0] is None or places[0] < (places[1] or Mark()) else 1
        self._file = disk.current.open(self._path, os.O_WRONLY)

    def write(self, number: int, size: int) -> None:
        """Note that so much of a segment is durable; where that fails the older mark stays true."""
        with self._optional():
            write_at(self._file, [_packed(Mark(number, size))], self._next * _APART)
            self._next = 1 - self._next

    def sync(self) -> None:
        """Make the newest mark durable, if that is wanted at all."""
        if self._durable:
            with self._optional():
                disk.current.sync_data(self._file)

    @contextmanager
    def _optional(self) -> Iterator[None]:
        """Do without a mark that cannot be written: what it speaks of is durable all the same."""
        try:
            yield
        except OSError as error:
            if not self._told:
                _logger.warning(
                    "%s could not be written (%s): damage to the newest records may not be told "
                    "from a crash",
                    self._path,
                    error,
                )
            self._told = True

    def close(self) -> None:
        """Give the file back."""
        disk.current.close(self._file)

    def _make(self, access: Access) -> None:
        temporary = self._path.with_name(NAME + ".tmp")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        file = disk.current.open(temporary, flags, access.file_mode)
        try:
            mark = _packed(Mark())
            write_at(file, [mark + bytes(_APART - len(mark)) + mark], 0)
            if self._durable:
                disk.current.sync_data(file)
        finally:
            disk.current.close(file)
        disk.current.replace(temporary, self._path)
        if self._durable:
            flush_path(self._path.parent)


def read_mark(directory: Path) -> Mark | None:
    """Return the newest mark of a directory; None where it has none, as of earlier versions."""
    path = directory / NAME
    try:
        content = disk.current.read(path)
    except FileNotFoundError:
        return None
    found = [mark for mark in _places(content) if mark is not None]
    if not found:
        raise JournalError(
            f"{path} is damaged at byte offset 0: restore the directory from a copy. If you know "
            "that the segments beside it are whole, remove this one file instead; what is missing "
            "at the end of the last one is then taken for a crash"
        )
    return max(found)


def _packed(mark: Mark) -> bytes:
    content = _MARK.pack(_MAGIC, mark.number, mark.bytes)
    return content + _CRC.pack(zlib.crc32(content))


def _places(content: bytes) -> list[Mark | None]:
    found: list[Mark | None] = []
    for start in (0, _APART):
        packed = content[start : start + _MARK.size + _CRC.size]
        good = len(packed) == _MARK.size + _CRC.size and packed.startswith(_MAGIC)
        mark = Mark(*_MARK.unpack_from(packed)[1:]) if good else None
        found.append(mark if mark is not None and _packed(mark) == packed else None)
    return found
