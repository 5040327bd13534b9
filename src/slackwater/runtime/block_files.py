"""Where block files lie: a local directory, or any filesystem that pyarrow and Spark both reach."""

from __future__ import annotations

import os
import re
import uuid
import zlib
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from pyarrow import fs

from slackwater import disk
from slackwater.disk import PRIVATE, Access, remove_if_there
from slackwater.errors import DescriptionError, JournalError
from slackwater.spark.sinks.durable_files import make_directory, replace_file, sync_directory

_STORAGE_NAME = "storage-name"
_NAME = re.compile(r"([0-9a-f]{32})(?: ([0-9a-f]{8}))?")  # and its checksum
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")


class BlockFiles(Protocol):
    """Keep whole files under relative names. A file that was written is durable."""

    def write(self, path: str, content: pa.Buffer) -> None:
        """Write a file, durably, under a name that no other content ever has."""
        ...

    def read(self, path: str) -> pa.Buffer:
        """Return the content of a file."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file, and its directories once they are empty; gone already is fine."""
        ...

    def names(self) -> list[str]:
        """List all files, those of unfinished writes included."""
        ...

    def for_spark(self, path: str) -> str:
        """Say how Spark's executors name a file."""
        ...


class LocalBlockFiles:
    """Keep block files in a directory of a mounted file system."""

    def __init__(self, directory: Path, access: Access = PRIVATE) -> None:
        """Use a directory, which Spark's executors must see under the same path."""
        self._directory = directory
        self._access = access

    def write(self, path: str, content: pa.Buffer) -> None:
        """Write beside, flush, rename; then flush the name."""
        place = self._directory / path
        make_directory(place.parent, self._access)
        try:
            replace_file(place, [content], self._access)
        except FileNotFoundError:  # its directory was empty, and removed at this moment
            make_directory(place.parent, self._access)
            replace_file(place, [content], self._access)
        sync_directory(place.parent)

    def read(self, path: str) -> pa.Buffer:
        """Read a whole file."""
        return pa.py_buffer(disk.current.read(self._directory / path))

    def remove(self, path: str) -> None:
        """Remove a file and the directories above it that are empty."""
        place = self._directory / path
        remove_if_there(place)
        for directory in self._above(place)[:-1]:
            try:
                disk.current.remove_directory(directory)
            except OSError:
                return  # not empty

    def names(self) -> list[str]:
        """Walk the directory."""
        return [
            str(Path(base, name).relative_to(self._directory))
            for base, _, names in os.walk(self._directory)
            for name in names
        ]

    def for_spark(self, path: str) -> str:
        """Name the file by its path."""
        return str(self._directory / path)

    def _above(self, place: Path) -> list[Path]:
        """List the directories above a file, from its own up to that of all blocks."""
        return [up for up in place.parents if up.is_relative_to(self._directory)]


class RemoteBlockFiles:
    """Keep block files in an object store or HDFS.

    What pyarrow has closed there is durable. A write that was cut short leaves no object in an
    object store, and in HDFS a file that nothing names and that the next start removes.
    """

    def __init__(self, files: Any, root: str, uri: str) -> None:
        """Use a pyarrow filesystem below `root`, which Spark knows as `uri`."""
        self._files = fs.SubTreeFileSystem(root, files)
        self._uri = re.sub(r"^s3://", "s3a://", uri.rstrip("/"))

    def write(self, path: str, content: pa.Buffer) -> None:
        """Write a file; object stores show it once it is closed."""
        if "/" in path:
            self._files.create_dir(path.rpartition("/")[0], recursive=True)
        with self._files.open_output_stream(path) as stream:
            stream.write(content)

    def read(self, path: str) -> pa.Buffer:
        """Read a whole file."""
        with self._files.open_input_file(path) as stream:
            return stream.read_buffer()

    def remove(self, path: str) -> None:
        """Remove a file; empty directories of HDFS go with the last file in them."""
        if self._files.get_file_info(path).type == fs.FileType.NotFound:
            return
        self._files.delete_file(path)
        while "/" in path:
            path = path.rpartition("/")[0]
            if self._files.get_file_info(fs.FileSelector(path, allow_not_found=True)):
                return
            if self._files.get_file_info(path).type == fs.FileType.Directory:
                self._files.delete_dir(path)

    def names(self) -> list[str]:
        """List everything below the root."""
        everything = fs.FileSelector("", recursive=True, allow_not_found=True)
        found = self._files.get_file_info(everything)
        return [info.path for info in found if info.type == fs.FileType.File]

    def for_spark(self, path: str) -> str:
        """Name the file by its URI."""
        return f"{self._uri}/{path}"


def storage_files(
    journal: Path, storage: str | os.PathLike[str] | None, access: Access = PRIVATE
) -> BlockFiles:
    """Open where a journal's blocks lie: beside it, or in a directory of their own in `storage`.

    Its name is written down beside the journal, so that both can move, and many can share a place.
    """
    if storage is None:
        return block_files(journal / "blocks", "storage", access)
    own = _own_name(journal, access)
    return block_files(f"{os.fspath(storage).rstrip('/')}/{own}", "storage", access)


def _own_name(journal: Path, access: Access) -> str:
    """Return the name that is written down beside a journal; the first time, make one."""
    place = journal / _STORAGE_NAME
    try:
        if not place.exists():
            make_directory(journal, access)
            name = uuid.uuid4().hex
            replace_file(place, [f"{name} {zlib.crc32(name.encode()):08x}".encode()], access)
        sync_directory(journal)  # each time: a process before this one may not have come so far
        content = disk.current.read(place)
    except OSError as error:
        raise JournalError(
            f"{place} cannot be used ({error}): check its permissions and the space on its disk, "
            "then try again"
        ) from error
    written = _NAME.fullmatch(content.decode(errors="replace"))
    if written is None or (written[2] and int(written[2], 16) != zlib.crc32(written[1].encode())):
        raise JournalError(
            f"{place} is damaged: it should name this journal's directory in storage=: write that "
            "name (32 digits) into it, or restore it from a copy"
        )
    return written[1]


def block_files(place: str | os.PathLike[str], field: str, access: Access = PRIVATE) -> BlockFiles:
    """Open the place that a user named: a directory, or a URI that pyarrow and Spark know.

    Who may read files in another filesystem is for that one to say.
    """
    text = os.fspath(place)
    scheme = _SCHEME.match(text)
    if scheme is None or scheme[1] == "file":
        return LocalBlockFiles(
            Path(os.path.abspath(os.path.expanduser(text.removeprefix("file://")))), access
        )
    try:
        files, root = fs.FileSystem.from_uri(text)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DescriptionError(
            f"{field}={text!r} cannot be reached ({error}): use a directory, or a URI that pyarrow "
            "knows, such as s3://bucket/path, gs://bucket/path or hdfs://host:port/path"
        ) from error
    return RemoteBlockFiles(files, root, text)
