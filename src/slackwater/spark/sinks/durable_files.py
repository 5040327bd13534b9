"""Local files that are whole or absent: replaced atomically, durable, by one writer at a time."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from slackwater import disk
from slackwater.disk import (
    PRIVATE,
    Access,
    flush_path,
    make_directories,
    remove_if_there,
    write_at,
)
from slackwater.errors import DescriptionError, SinkError

TEMPORARY = "_tmp-"  # Spark, pandas and pyarrow pass over names that begin with an underscore
_LOCK = "_slackwater.lock"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_GONE = "put the directory back (it is not made again: a disk may be unmounted), then resume"
_REMEDIES = {
    errno.ENOSPC: "free space on that disk, then resume",
    errno.EDQUOT: "free space within this user's quota, then resume",
    errno.EACCES: "let this user write there, then resume",
    errno.EPERM: "let this user write there, then resume",
    errno.EROFS: "mount that disk for writing, then resume",
    errno.ENOENT: _GONE,
    errno.ENOTDIR: _GONE,
    errno.EMFILE: "raise the limit of open files (ulimit -n), then resume",
}


def local_directory(path: str | os.PathLike[str], field: str) -> Path:
    """Turn what a user wrote (a path or a `file:` URI) into an absolute path.

    >>> local_directory("file:///data/my%20out", "parquet(path)")
    PosixPath('/data/my out')
    """
    if not isinstance(path, str | os.PathLike):
        raise DescriptionError(f"{field}={path!r} is no path: write the directory as text")
    text = os.fspath(path)
    scheme = _SCHEME.match(text)
    if text.startswith("file:"):
        uri = urlsplit(text)
        if uri.netloc not in ("", "localhost"):
            raise DescriptionError(
                f"{field}={text!r} names another machine: write file:///directory"
            )
        text = unquote(uri.path)
    elif scheme:
        raise DescriptionError(
            f"{field}={text!r} is on {scheme.group(1)}: only directories of a mounted file system "
            "are supported, given as a path or as file:///directory"
        )
    if not text:
        raise DescriptionError(f"{field}={os.fspath(path)!r} names no directory: write its path")
    return Path(os.path.abspath(os.path.expanduser(text)))


@contextlib.contextmanager
def as_sink_error(place: Path) -> Iterator[None]:
    """Turn failures of the file system into a SinkError that says where, why and what to do."""
    try:
        yield
    except OSError as failure:
        reason = failure.strerror or str(failure)
        remedy = _REMEDIES.get(failure.errno or 0, "mend the disk, then resume")
        raise SinkError(f"cannot write {place}: {reason}: {remedy}") from failure


def open_directory(directory: Path, field: str, access: Access = PRIVATE) -> None:
    """Make a directory that a user named, if need be; say what is wrong if that cannot be done."""
    for path in (directory, *directory.parents):
        if path.exists() and not path.is_dir():
            raise SinkError(
                f"{field}={str(directory)!r}: {path} is a file: name a directory (it is made if "
                "there is none), or move that file away"
            )
    try:
        make_directory(directory, access)
        if not os.access(directory, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(directory))
    except OSError as failure:
        reason = failure.strerror or str(failure)
        remedy = _REMEDIES.get(failure.errno or 0, "mend the disk, then resume")
        remedy = remedy.replace("then resume", "or name another directory")
        raise SinkError(
            f"{field}={str(directory)!r} cannot be used: {reason}: {remedy}"
        ) from failure


def make_directory(directory: Path, access: Access = PRIVATE) -> None:
    """Make a directory whose name survives a power failure."""
    make_directories(directory, access=access)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    flush_path(directory)


def replace_file(path: Path, chunks: Iterable[Any], access: Access = PRIVATE) -> None:
    """Put a whole, durable file in the place of `path`; `sync_directory` makes its name durable."""
    temporary = path.with_name(TEMPORARY + path.name)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        handle = disk.current.open(temporary, flags, access.file_mode)
        try:
            write_at(handle, chunks, 0)
            disk.current.sync(handle)
        finally:
            disk.current.close(handle)
        disk.current.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            remove_if_there(temporary)
        raise


def remove_temporaries(directory: Path) -> None:
    """Remove what a writer that was killed has left unfinished."""
    for leftover in directory.glob(TEMPORARY + "*"):
        if leftover.is_dir():
            disk.current.remove_tree(leftover)
        else:
            disk.current.remove(leftover)


class DirectoryLock:
    """Keep a directory to one writer; the lock goes with the process, however that ends."""

    def __init__(self, directory: Path, access: Access = PRIVATE) -> None:
        flags = os.O_RDWR | os.O_CREAT
        handle = disk.current.open(directory / _LOCK, flags, access.file_mode)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as failure:
            disk.current.close(handle)
            if failure.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            raise SinkError(
                f"{directory} is being written by another runtime, or by this one under a "
                "description with other options: stop that one, or write to another directory "
                "(outputs of one runtime may share a directory, described alike)"
            ) from None
        self._release = weakref.finalize(self, disk.current.close, handle)

    @property
    def held(self) -> bool:
        """Tell whether the lock has not been released yet."""
        return self._release.alive

    def release(self) -> None:
        """Let others write; a second call does nothing."""
        self._release()
