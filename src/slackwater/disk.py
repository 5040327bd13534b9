"""Every operation on files that must survive a crash, in one place: the seam where tests break it.

Journal, blocks, sinks and dead letters reach their files through `disk.current` and nothing else: a
test that puts another `Disk` there makes any one operation fail, tear, or be forgotten.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

Place = str | os.PathLike[str]


@dataclass(frozen=True)
class Access:
    """Say who may use what is made: the permissions of files and of directories."""

    file_mode: int
    directory_mode: int


PRIVATE: Final = Access(0o600, 0o700)  # this user alone
SHARED: Final = Access(0o666, 0o777)  # whoever the umask lets


class Disk:
    """Do what is asked, by one call of the operating system each."""

    def __init__(self) -> None:
        """Know of no directory yet that its name is durable."""
        self.settled: set[Path] = set()

    def open(self, path: Place, flags: int, mode: int = PRIVATE.file_mode) -> int:
        """Open a file or a directory; a process started meanwhile does not inherit it."""
        return os.open(path, flags | os.O_CLOEXEC, mode)

    def close(self, handle: int) -> None:
        """Give an open file back."""
        os.close(handle)

    def write(self, handle: int, buffers: Sequence[Any], offset: int) -> int:
        """Write buffers at an offset, and return how many bytes were taken."""
        return os.pwritev(handle, buffers, offset)

    def truncate(self, handle: int, size: int) -> None:
        """Cut an open file to a length."""
        os.ftruncate(handle, size)

    def sync(self, handle: int) -> None:
        """Return once an open file, or the names in an open directory, are durable."""
        os.fsync(handle)

    def sync_data(self, handle: int) -> None:
        """Return once the bytes of an open file are durable."""
        os.fdatasync(handle)

    def read(self, path: Place) -> bytes:
        """Return all bytes of a file."""
        with open(path, "rb") as file:
            return file.read()

    def replace(self, source: Place, target: Place) -> None:
        """Give a file another name, in the place of whatever has it."""
        os.replace(source, target)

    def remove(self, path: Place) -> None:
        """Remove a file."""
        os.unlink(path)

    def make_directory(self, path: Place, mode: int = PRIVATE.directory_mode) -> None:
        """Make one directory, in one that is there."""
        os.mkdir(path, mode)

    def remove_directory(self, path: Place) -> None:
        """Remove an empty directory."""
        os.rmdir(path)
        self.settled.discard(Path(path))

    def remove_tree(self, path: Place) -> None:
        """Remove a directory with all that is in it."""
        shutil.rmtree(path)


current = Disk()

_NOT_OURS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL)
_BUFFERS_AT_ONCE = 512  # the system takes 1,024 in one call


def write_at(handle: int, buffers: Iterable[Any], offset: int) -> None:
    """Write all buffers at an offset, with one call as long as the system takes them whole."""
    pending = [memoryview(buffer) for buffer in buffers]
    while pending:
        written = current.write(handle, pending[:_BUFFERS_AT_ONCE], offset)
        offset += written
        while pending and written >= len(pending[0]):
            written -= len(pending.pop(0))
        if pending:
            pending[0] = pending[0][written:]


def remove_if_there(path: Place) -> None:
    """Remove a file; gone already is fine."""
    try:
        current.remove(path)
    except FileNotFoundError:
        return


def flush_path(path: Place) -> None:
    """Return once a file's bytes, or a directory's names, are durable."""
    handle = current.open(path, os.O_RDONLY)
    try:
        current.sync(handle)
    finally:
        current.close(handle)


def make_directories(directory: Path, *, durable: bool = True, access: Access = PRIVATE) -> None:
    """Make a directory and those above it, so that their names survive a power failure.

    Those that are there stay as they are.
    """
    for path in reversed(_doubtful(directory)):
        there = path.exists()
        if not there:
            with suppress(FileExistsError):  # made by another at this moment
                current.make_directory(path, access.directory_mode)
        if durable:
            _settle(path, ours=not there)
    if not directory.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(directory))


def _doubtful(directory: Path) -> list[Path]:
    """List a directory and those above it whose names may not be durable, the lowest first.

    One that is there may have been made by a process that was killed before it came to that.
    """
    found: list[Path] = []
    for path in (directory, *directory.parents):
        if path.is_dir() and (path in current.settled or path.is_mount()):
            break
        found.append(path)
    return found


def _settle(directory: Path, *, ours: bool) -> None:
    """Make a directory's name durable; one that another made may be where we may not."""
    try:
        flush_path(directory.parent)
    except OSError as failure:
        if ours or failure.errno not in _NOT_OURS:
            raise
    current.settled.add(directory)
