"""The journal's files: checksummed records in segments and snapshots, and how to read them back.

    segment-000000000003.log     appended records; the highest number is being written
    snapshot-000000000003.snap   one record that replaces all segments before number 3
    *.tmp                        a file in the making, without meaning until it is renamed

Each file opens with 20 bytes: `SLKW`, format version, kind, number, their CRC. Then come records:

    header bytes u32 | payload bytes u64 | CRC of content u32 | CRC of these 16 bytes u32
    header (JSON) | payload | end mark

The lengths have a checksum of their own, so that a damaged length cannot pass for a record that
was cut short. The end mark is never zero, so that a write which left zeros behind (a file that
grew before its bytes arrived) can be told from damage to a finished record.

A segment that another follows ends in a seal, a record without header and payload: so none can lose
its last records without a trace. Only the last segment may be found torn, and only after what is
known to be durable (durable_mark.py). Files of version 2 have neither seal nor mark, nor that CRC
after their first 16 bytes.
"""

from __future__ import annotations

import json
import logging
import os
import re
import struct
import zlib
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from slackwater import disk
from slackwater.disk import PRIVATE, Access, remove_if_there, write_at
from slackwater.errors import JournalError, JournalVersionError
from slackwater.runtime.durable_mark import NAME, Mark, read_mark

VERSION = 3
_OLDEST = 2
_MAGIC = b"SLKW"
_FILE_HEADER = struct.Struct("<4sHHQ")
_LENGTHS = struct.Struct("<IQI")
_CRC = struct.Struct("<I")
_PREFIX_BYTES = _LENGTHS.size + _CRC.size
_END_MARK = b"\xa5"
_NAME = re.compile(r"(segment|snapshot)-(\d{12,})\.(log|snap)(\.tmp)?")
_encode_json = json.JSONEncoder(separators=(",", ":")).encode
_log = logging.getLogger(__name__)


class FileKind(Enum):
    """Tell the two kinds of files apart, by the number in their headers."""

    SEGMENT = 1
    SNAPSHOT = 2

    def path(self, directory: Path, number: int) -> Path:
        """Name the file of this kind and number."""
        suffix = "log" if self is FileKind.SEGMENT else "snap"
        return directory / f"{self.name.lower()}-{number:012d}.{suffix}"

    def file_header(self, number: int, version: int = VERSION) -> bytes:
        """Write the bytes that open the file of this kind and number."""
        opening = _FILE_HEADER.pack(_MAGIC, version, self.value, number)
        return opening if version == _OLDEST else opening + _CRC.pack(zlib.crc32(opening))


@dataclass(frozen=True)
class Record:
    """Hold one journaled fact: a small JSON header and a binary payload."""

    header: dict[str, Any]
    payload: bytes = b""


@dataclass(frozen=True)
class Recovered:
    """Hold what a journal knew: the newest snapshot, and all records after it, oldest first."""

    snapshot: Record | None = None
    records: list[Record] = field(default_factory=list)
    torn_bytes: int = 0


@dataclass(frozen=True)
class Loaded:
    """Tell what was recovered, and from which files.

    Segments `first` to `last` are needed (`last` is 0 in an empty directory); `tail_bytes` of the
    last one are good (0: not even its file header), and more can be written after these if it
    `goes_on`; `record_bytes` counts the records in all.
    """

    recovered: Recovered
    first: int = 1
    last: int = 0
    tail_bytes: int = 0
    record_bytes: int = 0
    goes_on: bool = True


def frame(header: dict[str, Any], payload: bytes) -> list[bytes]:
    """Lay out a record as the buffers that make it up in a file."""
    text = _encode_json(header).encode()
    crc = zlib.crc32(_END_MARK, zlib.crc32(payload, zlib.crc32(text)))
    lengths = _LENGTHS.pack(len(text), len(payload), crc)
    return [lengths + _CRC.pack(zlib.crc32(lengths)) + text, payload, _END_MARK]


def seal() -> bytes:
    """Return what ends a segment that another follows."""
    lengths = _LENGTHS.pack(0, 0, zlib.crc32(_END_MARK))
    return lengths + _CRC.pack(zlib.crc32(lengths)) + _END_MARK


_SEAL = seal()


def stage(
    kind: FileKind,
    path: Path,
    number: int,
    buffers: list[bytes],
    durable: bool,
    access: Access = PRIVATE,
) -> tuple[int, Path]:
    """Write a whole file under a temporary name; return it open, and that name."""
    temporary = path.with_name(path.name + ".tmp")
    fd = disk.current.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, access.file_mode)
    try:
        write_at(fd, [kind.file_header(number), *buffers], 0)
        if durable:
            flush(fd)
    except BaseException:
        disk.current.close(fd)
        remove_if_there(temporary)
        raise
    return fd, temporary


def flush(fd: int) -> None:
    """Return once the bytes of an open file are durable."""
    disk.current.sync_data(fd)


def load(directory: Path) -> Loaded:
    """Read the newest good snapshot and every segment after it, changing nothing."""
    mark = read_mark(directory)  # first: what is written meanwhile comes after it
    known = mark or Mark()
    segments = _numbers(directory, FileKind.SEGMENT)
    snapshots = _numbers(directory, FileKind.SNAPSHOT)
    if not segments and not snapshots and not known.number:
        return Loaded(Recovered())
    snapshot, first, damage = _newest_snapshot(directory, snapshots)
    live = [number for number in segments if number >= first]
    # A snapshot is only ever installed beside its segment: without that one, records are missing.
    expected = range(first, max([*live, *snapshots, first, known.number]) + 1)
    if live != list(expected):
        if damage is not None:
            raise damage
        missing = next(number for number in expected if number not in live)
        raise JournalError(
            f"{FileKind.SEGMENT.path(directory, missing)} is missing (byte offset 0): put the file "
            "back, restore the directory from a copy, or move it away to start anew"
        )
    if damage is not None:
        _log.warning("%s; the records it replaced are still there and are used instead", damage)
    records: list[Record] = []
    record_bytes = 0
    for number in live:
        found = _read_segment(
            directory, number, last=number == live[-1], durable_bytes=known.of(number)
        )
        records += found.records
        record_bytes += found.record_bytes
    if mark is None and found.version == VERSION:
        _log.warning(
            "%s is missing: nobody can tell whether the last records of the journal are all there",
            directory / NAME,
        )
    recovered = Recovered(snapshot, records, found.torn_bytes)
    goes_on = found.version == VERSION
    return Loaded(recovered, first, live[-1], found.good_bytes, record_bytes, goes_on)


def unfinished_files(directory: Path) -> list[Path]:
    """List the files whose making a crash cut short."""
    return [path for path, name in _files(directory) if name[4]]


def replaced_files(directory: Path, first: int) -> list[Path]:
    """List the files that the snapshot beside segment `first` replaces, oldest first."""
    return [path for path, name in _files(directory) if int(name[2]) < first and not name[4]]


def _newest_snapshot(
    directory: Path, numbers: list[int]
) -> tuple[Record | None, int, JournalError | None]:
    damage: JournalError | None = None
    for number in reversed(numbers):
        try:
            return _read_snapshot(directory, number), number, damage
        except JournalVersionError:
            raise
        except JournalError as error:
            damage = damage or error
    return None, 1, damage


def _read_snapshot(directory: Path, number: int) -> Record:
    path = FileKind.SNAPSHOT.path(directory, number)
    data = disk.current.read(path)
    version = _version(path, data, FileKind.SNAPSHOT, number)
    if not version:
        raise _damaged(path, 0)
    start = len(FileKind.SNAPSHOT.file_header(number, version))
    parsed = _parse(memoryview(data), start)
    if parsed is None:
        raise _damaged(path, start)
    record, end = parsed
    if end != len(data):
        raise _damaged(path, end)
    return record


@dataclass(frozen=True)
class _ReadSegment:
    """Hold a segment's records, how many bytes are good, and how many of a torn write follow."""

    records: list[Record]
    good_bytes: int = 0
    record_bytes: int = 0
    torn_bytes: int = 0
    version: int = VERSION


def _read_segment(directory: Path, number: int, *, last: bool, durable_bytes: int) -> _ReadSegment:
    path = FileKind.SEGMENT.path(directory, number)
    data = disk.current.read(path)
    version = _version(path, data, FileKind.SEGMENT, number)
    if not version:
        unfinished = FileKind.SEGMENT.file_header(number).startswith(data.rstrip(b"\0"))
        if last and unfinished and not durable_bytes:
            return _ReadSegment([], torn_bytes=len(data))
        raise _damaged(path, 0, durable_bytes)
    records: list[Record] = []
    view = memoryview(data)
    start = offset = len(FileKind.SEGMENT.file_header(number, version))
    sealed = False
    while offset < len(data) and not sealed:
        parsed = _parse(view, offset)
        if parsed is not None:
            record, offset = parsed
            records.append(record)
        elif version > _OLDEST and data[offset:] == _SEAL:
            sealed = True
        elif last and _never_finished(view, offset):
            break
        else:
            raise _damaged(path, offset, durable_bytes)
    if offset < durable_bytes or not (last or sealed or version == _OLDEST):
        raise _damaged(path, offset, durable_bytes)
    torn_bytes = 0 if sealed else len(data) - offset
    return _ReadSegment(records, offset, offset - start, torn_bytes, version)


def _version(path: Path, data: bytes, kind: FileKind, number: int) -> int:
    """Return a file's format version; 0 where it does not open as the file it should be."""
    version = 0
    if data.startswith(_MAGIC) and len(data) >= 6:
        version = int.from_bytes(data[4:6], "little")
        if version > VERSION:
            raise JournalVersionError(
                f"{path} has format version {version}, and this Slackwater reads up to {VERSION}: "
                "upgrade Slackwater, or use another directory"
            )
        if 0 < version < _OLDEST:  # zeros are a header that was never written
            raise JournalVersionError(
                f"{path} has format version {version}, and this Slackwater reads {_OLDEST} to "
                f"{VERSION}: run its queries to their end with the version that wrote it, or use "
                "another directory"
            )
    checksum = kind.file_header(number)[_FILE_HEADER.size :]
    if version == _OLDEST and data.startswith(checksum, _FILE_HEADER.size):
        return 0  # ours, with a damaged version
    return version if version and data.startswith(kind.file_header(number, version)) else 0


def _parse_lengths(data: memoryview, offset: int) -> tuple[int, int, int] | None:
    """Return where the payload starts, where the record ends, and the checksum in between."""
    content = offset + _PREFIX_BYTES
    if content > len(data):
        return None
    (crc,) = _CRC.unpack_from(data, content - _CRC.size)
    if zlib.crc32(data[offset : content - _CRC.size]) != crc:
        return None
    header_bytes, payload_bytes, content_crc = _LENGTHS.unpack_from(data, offset)
    payload = content + header_bytes
    return payload, payload + payload_bytes + len(_END_MARK), content_crc


def _parse(data: memoryview, offset: int) -> tuple[Record, int] | None:
    """Return the record at an offset and where the next one starts; None where there is none."""
    lengths = _parse_lengths(data, offset)
    if lengths is None:
        return None
    payload, end, crc = lengths
    content = offset + _PREFIX_BYTES
    if payload == content:
        return None  # a seal
    if end > len(data) or zlib.crc32(data[content:end]) != crc:
        return None
    header = json.loads(bytes(data[content:payload]))
    return Record(header, bytes(data[payload : end - len(_END_MARK)])), end


def _never_finished(data: memoryview, offset: int) -> bool:
    """Tell a write that a crash cut short, perhaps with zeros after the cut, from damage."""
    content = offset + _PREFIX_BYTES
    if content > len(data):
        return True
    lengths = _parse_lengths(data, offset)
    if lengths is None:
        return _all_zero(data[content:])
    _, end, _ = lengths
    return end > len(data) or _all_zero(data[end - len(_END_MARK) :])


def _all_zero(data: memoryview) -> bool:
    return bytes(data).count(0) == len(data)


def _numbers(directory: Path, kind: FileKind) -> list[int]:
    wanted = kind.name.lower()
    return [int(name[2]) for _, name in _files(directory) if name[1] == wanted and not name[4]]


def _files(directory: Path) -> list[tuple[Path, re.Match[str]]]:
    names = (_NAME.fullmatch(name) for name in sorted(os.listdir(directory)))
    return [(directory / name[0], name) for name in names if name]


def _damaged(path: Path, offset: int, durable_bytes: int = 0) -> JournalError:
    gone = f" ({durable_bytes} bytes of it had been durable)" if durable_bytes > offset else ""
    return JournalError(
        f"{path} is damaged at byte offset {offset}: restore the directory from a copy, or move it "
        f"away to start anew{gone}"
    )
