"""A compact append-only log with snapshots in a directory, which survives `kill -9` at any moment.

It stores records and knows nothing of their meaning. A writer appends (cheap), syncs (durable when
it returns, one flush for all who wait) and now and then rotates: records go on into a new segment
while a snapshot of everything before it is installed, perhaps by another thread, and old files go.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from slackwater import disk
from slackwater.disk import PRIVATE, Access, flush_path, make_directories, write_at
from slackwater.errors import JournalError, JournalLockedError, JournalVersionError
from slackwater.runtime.durable_mark import DurableMark
from slackwater.runtime.segments import (
    FileKind,
    Loaded,
    Record,
    Recovered,
    flush,
    frame,
    load,
    replaced_files,
    seal,
    stage,
    unfinished_files,
)

__all__ = ["Journal", "Record", "Recovered", "Rotation"]

_LOCK = "lock"
_READ_ATTEMPTS = 5


class Journal:
    """Append records, make them durable, and replace old ones by snapshots. Safe for many threads.

    With `durable=False` nothing is flushed: records survive the process, not the machine.
    """

    def __init__(
        self, directory: Path, lock: int, loaded: Loaded, *, durable: bool, access: Access
    ) -> None:
        """Take over a locked directory; use `Journal.open` instead."""
        self._directory = directory
        self._access = access
        self._lock = lock
        self._durable = durable
        self._recovered = loaded.recovered
        self._failure: str | None = None
        # Locks are taken in this order. Positions count the bytes of records, found and appended.
        self._installing = threading.Lock()
        self._flushing = threading.Lock()  # guards _durable_position, _directory_stale
        self._writing = threading.Lock()  # guards the rest
        self._appended = self._durable_position = loaded.record_bytes
        self._records = len(loaded.recovered.records)
        self._replaced_bytes = self._replaced_records = 0
        self._snapshot_number = loaded.first
        self._number = max(loaded.last, loaded.first) + (0 if loaded.goes_on else 1)
        self._directory_stale = False
        self._mark = DurableMark(directory, durable=durable, access=access)
        try:
            self._segment, self._segment_bytes = self._settle(loaded)
        except BaseException:
            self._mark.close()
            raise
        self._base = self._appended - self._segment_bytes  # the segment's place among positions
        if durable:
            self._mark.write(self._number, self._segment_bytes)
            self._mark.sync()

    @classmethod
    def open(
        cls, directory: Path | str, *, durable: bool = True, access: Access = PRIVATE
    ) -> Journal:
        """Lock a directory (made if need be), recover what it holds, and go on from there."""
        directory = Path(directory)
        with _explained(f"cannot open the journal in {directory}"):
            make_directories(directory, durable=durable, access=access)
            lock = _take_lock(directory, access)
            try:
                return cls(directory, lock, load(directory), durable=durable, access=access)
            except BaseException:
                disk.current.close(lock)
                raise

    @staticmethod
    def read_only(directory: Path | str) -> Recovered:
        """Read a journal that another process may be writing, without a lock or any change."""
        directory = Path(directory)
        problem: Exception | None = None
        for _ in range(_READ_ATTEMPTS):  # files may be replaced between listing and reading them
            try:
                loaded = load(directory)
                if loaded.last or (directory / _LOCK).exists():
                    return loaded.recovered
                raise JournalError(f"{directory} holds no journal: name the directory of one")
            except JournalVersionError:
                raise
            except (JournalError, OSError) as error:
                problem = error
        if isinstance(problem, JournalError):
            raise problem
        raise JournalError(
            f"{directory} cannot be read as a journal ({problem}): name the directory of one"
        ) from problem

    @property
    def directory(self) -> Path:
        """Tell where the journal lives."""
        return self._directory

    @property
    def recovered(self) -> Recovered:
        """Return what the journal held when opened; empty once a snapshot has replaced that."""
        return self._recovered

    @property
    def bytes_since_snapshot(self) -> int:
        """Count the bytes of the records that the newest snapshot does not replace."""
        return self._appended - self._replaced_bytes

    @property
    def records_since_snapshot(self) -> int:
        """Count the records that the newest snapshot does not replace."""
        return self._records - self._replaced_records

    def append(self, header: dict[str, Any], payload: bytes = b"") -> int:
        """Write a record and return its position, which `sync` makes durable.

        Where that fails the record is taken back, so that the next one may be tried.
        """
        buffers = frame(header, payload)
        length = sum(map(len, buffers))
        with self._writing:
            self._check()
            start = self._segment_bytes
            try:
                write_at(self._segment, buffers, start)
                self._segment_bytes += length
            except BaseException as error:
                self._take_back(start)
                if isinstance(error, OSError):
                    raise JournalError(
                        f"{self._segment_path} did not take a record ({error}): free space on that "
                        "disk or mend it, then try again"
                    ) from error
                raise
            self._appended += length
            self._records += 1
            return self._appended

    def sync(self, position: int) -> None:
        """Return once every record up to a position is durable; those who wait share a flush."""
        self._check()
        if position > self._appended:
            raise JournalError(f"position {position} was never appended: sync what append returned")
        if not self._durable or self._durable_position >= position:
            return
        with self._flushing:
            if self._durable_position < position:
                self._check()
                self._flush_segment()

    def fail(self, reason: str) -> None:
        """Refuse everything from now on, for a reason; the first one stays."""
        with self._writing:
            self._failure = self._failure or reason

    def rotate(self) -> Rotation:
        """Start a new segment for all later records, and return what can replace the earlier ones.

        All records appended before this call, and none appended after it, belong to the snapshot.
        """
        with self._flushing:
            self._check()
            self._flush_segment()  # so that little is left to flush while appends have to wait
            path = FileKind.SEGMENT.path(self._directory, self._number + 1)
            with _explained(f"cannot start {path}"):
                segment, temporary = stage(
                    FileKind.SEGMENT, path, self._number + 1, [], self._durable, self._access
                )
                try:
                    with self._writing:
                        self._check()
                        # Only the last segment may ever be found torn, or without a seal.
                        try:
                            write_at(self._segment, [seal()], self._segment_bytes)
                            self._flush_segment(sealed=True)
                            disk.current.replace(temporary, path)
                        except BaseException as error:
                            if path.exists():  # renamed all the same: nothing may follow the seal
                                self._failure = (
                                    f"{path} was begun and that failed ({error}): mend the disk "
                                    "and start again, which goes on with it"
                                )
                            else:
                                self._take_back(self._segment_bytes)
                            raise
                        self._segment, segment = segment, self._segment
                        self._segment_bytes = os.fstat(self._segment).st_size
                        self._base = self._appended - self._segment_bytes
                        self._number += 1
                        self._directory_stale = True
                        return Rotation(self, self._number, self._appended, self._records)
                finally:
                    disk.current.close(segment)

    def close(self) -> None:
        """Make everything durable and release the directory; closing twice is fine."""
        with self._installing, self._flushing:
            if self._segment < 0:
                return
            try:
                if self._failure is None:
                    self._flush_segment()
                    self._mark.write(self._number, self._segment_bytes)
                    self._mark.sync()
            finally:
                with self._writing:
                    self._failure = f"the journal in {self._directory} is closed: open it again"
                    self._mark.close()
                    disk.current.close(self._segment)
                    disk.current.close(self._lock)
                    self._segment = self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def _segment_path(self) -> Path:
        return FileKind.SEGMENT.path(self._directory, self._number)

    def _check(self) -> None:
        if self._failure is not None:
            raise JournalError(self._failure)

    def _settle(self, loaded: Loaded) -> tuple[int, int]:
        """Remove what crashes left behind, and open the segment to go on with."""
        for unfinished in unfinished_files(self._directory):
            with suppress(OSError):  # it means nothing, and its name may be written over
                disk.current.remove(unfinished)
        segment, temporary = self._opened_tail(loaded)
        try:
            if temporary is None:
                disk.current.truncate(segment, loaded.tail_bytes)
            else:
                disk.current.replace(temporary, self._segment_path)
            if self._durable:  # the caller will act on what was recovered, flushed or not by then
                if loaded.recovered.snapshot is not None:
                    flush_path(FileKind.SNAPSHOT.path(self._directory, loaded.first))
                for number in range(loaded.first, self._number + 1):
                    flush_path(FileKind.SEGMENT.path(self._directory, number))
                flush_path(self._directory)
            for replaced in replaced_files(self._directory, loaded.first):
                with suppress(OSError):  # the next open, or the next snapshot, tries again
                    disk.current.remove(replaced)
            return segment, os.fstat(segment).st_size
        except BaseException:
            disk.current.close(segment)
            raise

    def _opened_tail(self, loaded: Loaded) -> tuple[int, Path | None]:
        """Open the segment to go on with, or stage a new one, under the name returned."""
        if loaded.tail_bytes and loaded.goes_on:
            return disk.current.open(self._segment_path, os.O_WRONLY), None
        if loaded.tail_bytes:  # of an earlier version: it must be whole, for one of ours follows
            last = FileKind.SEGMENT.path(self._directory, loaded.last)
            earlier = disk.current.open(last, os.O_WRONLY)
            try:
                disk.current.truncate(earlier, loaded.tail_bytes)
                if self._durable:
                    flush(earlier)
            finally:
                disk.current.close(earlier)
        path, access = self._segment_path, self._access
        return stage(FileKind.SEGMENT, path, self._number, [], self._durable, access)

    def _take_back(self, start: int) -> None:
        self._segment_bytes = start
        try:
            disk.current.truncate(self._segment, start)
        except OSError as error:
            self._failure = (
                f"{self._segment_path} ends in an unfinished record that cannot be removed "
                f"({error}): mend the disk and start again, which removes it"
            )

    def _flush_segment(self, *, sealed: bool = False) -> None:
        """Make all records durable; needs `_flushing`, under which the segment does not change."""
        position = self._appended
        stale = self._durable_position < position or self._directory_stale
        if self._durable and (stale or sealed):
            try:
                flush(self._segment)
                if self._directory_stale:
                    flush_path(self._directory)
            except OSError as error:
                # What the kernel could not write it may forget: a second flush would prove nothing.
                self._failure = (
                    f"{self._segment_path} could not be flushed ({error}): mend the disk and start "
                    "again, which recovers all that is durable"
                )
                raise JournalError(self._failure) from error
            self._mark.write(self._number, position - self._base)
        self._directory_stale = False
        self._durable_position = position

    def _install(self, rotation: Rotation, snapshot: list[bytes]) -> None:
        with self._installing:
            self._check()
            if rotation.number <= self._snapshot_number:
                return
            path = FileKind.SNAPSHOT.path(self._directory, rotation.number)
            with _explained(f"cannot install {path}"):
                staged, temporary = stage(
                    FileKind.SNAPSHOT, path, rotation.number, snapshot, self._durable, self._access
                )
                disk.current.close(staged)
                disk.current.replace(temporary, path)
                if self._durable:
                    flush_path(self._directory)
            with self._writing:
                self._snapshot_number = rotation.number
                self._replaced_bytes = rotation.position
                self._replaced_records = rotation.records
                self._recovered = Recovered()
            for replaced in replaced_files(self._directory, rotation.number):
                with suppress(OSError):  # the next open, or the next snapshot, tries again
                    disk.current.remove(replaced)


@dataclass(frozen=True)
class Rotation:
    """Stand for all records before segment `number`, which one snapshot may replace."""

    journal: Journal
    number: int
    position: int
    records: int

    def install(self, header: dict[str, Any], payload: bytes = b"") -> None:
        """Write the snapshot, durably, then remove the files it replaces.

        May run beside appends. Where it fails nothing is lost, and it may be tried again. It does
        nothing where this or a later rotation has been installed already.
        """
        self.journal._install(self, frame(header, payload))


def _take_lock(directory: Path, access: Access) -> int:
    lock = disk.current.open(directory / _LOCK, os.O_RDWR | os.O_CREAT, access.file_mode)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        disk.current.truncate(lock, 0)
        write_at(lock, [str(os.getpid()).encode()], 0)
    except BlockingIOError:
        holder = os.pread(lock, 32, 0).decode(errors="replace") or "unknown"
        disk.current.close(lock)
        raise JournalLockedError(
            f"the journal in {directory} is in use by process {holder}: stop that one, or use "
            "another directory"
        ) from None
    except BaseException:
        disk.current.close(lock)
        raise
    return lock


@contextmanager
def _explained(problem: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise JournalError(
            f"{problem} ({error}): check its permissions and the space on its disk, then try again"
        ) from error
