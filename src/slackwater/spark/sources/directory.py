"""A directory that keeps growing: which files are in it, in what order they were found.

Files get offsets 0, 1, 2... in order of discovery, oldest first within one listing. What was found
is never forgotten while it is still there, so each file is read once; the names of files that
somebody has archived elsewhere are dropped at the next snapshot. No Spark here.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from slackwater.errors import SourceError

# Measuring a file means opening it: a long backlog is taken in over several listings.
_FILES_PER_LOOK = 1_000


class FoundFile(NamedTuple):
    """Name one file, as it was when found; `path` is relative to the directory."""

    path: str
    size: int
    arrival_ms: int
    records: int


@dataclass
class Directory:
    """Follow one directory and its sub-directories; symbolic links to directories are left alone.

    `measure(path, size)` counts a file's records (0: there is nothing to read in it). `before_look`
    is called ahead of each listing, `follow=False` makes the first listing the only one.
    """

    root: Path
    pattern: str
    poll_ms: int
    measure: Callable[[Path, int], int]
    follow: bool = True
    before_look: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        """Start at offset 0."""
        self.records = 0  # of all files found, since offset 0
        self.complete = False  # no listing will find more
        self.caught_up = False  # the last listing was taken in to its end
        self.quiet_since_ms: float | None = (
            None  # when a listing last found something, or the first
        )
        self._looked_ms: float | None = None
        self._first = 0  # offset of the first file in _files
        self._files: list[FoundFile] = []
        self._seen: set[str] = set()
        self._position = 0
        self._snapshot_position = 0
        self._identity = _identity(self.root)

    @property
    def until(self) -> int:
        """Return the offset after the last file found."""
        return self._first + len(self._files)

    def look(self, now_ms: float) -> None:
        """List the directory, unless that was done less than `poll_ms` ago."""
        if self.complete:
            return
        if self._looked_ms is not None and 0 <= now_ms - self._looked_ms < self.poll_ms:
            return
        if self.before_look is not None:
            self.before_look()
        found = sorted(self._list())
        taken = found[:_FILES_PER_LOOK] if self.follow else found
        for _, path, size, arrival_ms in taken:
            try:
                records = self.measure(self.root / path, size)
            except FileNotFoundError:
                continue  # taken away again since it was listed
            except OSError as error:
                raise vanished(str(self.root / path), error) from error
            self._seen.add(path)
            if records:
                self._files.append(FoundFile(path, size, arrival_ms, records))
                self.records += records
        if found or self.quiet_since_ms is None:
            self.quiet_since_ms = now_ms
        self._looked_ms = now_ms
        self.caught_up = len(taken) == len(found)
        self.complete = not self.follow

    def clock_set(self, by_ms: float) -> None:
        """Take note that the machine's clock was set: nothing has become quieter by that."""
        self._looked_ms = None
        if self.quiet_since_ms is not None:
            self.quiet_since_ms += by_ms

    def unread(self, position: int) -> Sequence[FoundFile]:
        """Return the files found at `position` and after."""
        if position < self._first:
            raise SourceError(
                f"{self.root}: file number {position} was asked for again, but its name was let go "
                "at a snapshot: read it by its journaled range"
            )
        self._position = position
        return self._files[position - self._first :]

    def first_unread(self, position: int) -> FoundFile | None:
        """Return the file at `position`, if it has been found."""
        index = position - self._first
        return self._files[index] if 0 <= index < len(self._files) else None

    def state(self) -> dict[str, Any]:
        """Return what a restart needs to know: files not long read in full, of others the names."""
        # What was being read at one snapshot is in the next one still, so that it can be replanned.
        keep = max(self._first, min(self._snapshot_position, self._position))
        self._snapshot_position = self._position
        del self._files[: keep - self._first]
        self._first = keep
        listed = {file.path for file in self._files}
        # An unmounted directory looks empty: that must not make every file new again.
        if self._identity is not None and _identity(self.root) == self._identity:
            self._seen = {p for p in self._seen if p in listed or os.path.exists(self.root / p)}
        return {
            "first": self._first,
            "files": [list(file) for file in self._files],
            "read": sorted(self._seen - listed),
            "records": self.records,
            "complete": self.complete,
        }

    def restore(
        self, position: int, state: Mapping[str, Any] | None, planned: Mapping[int, FoundFile]
    ) -> None:
        """Go back to a snapshot (None: to the start) and add the files planned since, by offset."""
        known = state or {"first": 0, "files": [], "read": [], "records": 0, "complete": False}
        self._first, self.records = int(known["first"]), int(known["records"])
        self._files = [FoundFile(*file) for file in known["files"]]
        self._seen = {*known["read"], *(file.path for file in self._files)}
        self.complete = bool(known["complete"]) and not self.follow
        for offset in sorted(planned):
            file = planned[offset]
            self._seen.add(file.path)
            if self._first <= offset < self.until:
                self._files[offset - self._first] = file
            elif offset == self.until:
                self._files.append(file)
                self.records += file.records
            elif offset > self.until:
                self._refuse(offset)
        if position > self.until:
            self._refuse(position)
        self._position = self._snapshot_position = position
        self._looked_ms = self.quiet_since_ms = None
        self.caught_up = False

    def _refuse(self, offset: int) -> None:
        raise SourceError(
            f"{self.root}: the journal goes on at file number {offset}, but names only the first "
            f"{self.until}: reset the query, or restore the whole journal"
        )

    def _list(self) -> list[tuple[int, str, int, int]]:
        """Find the files not seen yet, as (mtime in ns, path, size, mtime in ms)."""
        found = []
        folders = [""]
        while folders:
            folder = folders.pop()
            try:
                entries = os.scandir(self.root / folder)
            except FileNotFoundError as error:
                if folder:
                    continue  # archived since its parent was listed
                raise SourceError(
                    f"{self.root} is not there: create the directory, then resume the query"
                ) from error
            with entries:
                for entry in entries:
                    path = folder + entry.name
                    if path in self._seen or _being_written(entry.name):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(path + "/")
                    elif fnmatchcase(entry.name, self.pattern):
                        status = _status(entry)
                        # A file without content has just been created, not yet written.
                        if status is not None and status.st_size > 0:
                            _require_readable_name(self.root, path)
                            mtime_ns = status.st_mtime_ns
                            found.append((mtime_ns, path, status.st_size, mtime_ns // 1_000_000))
        return found


def require_unchanged(root: str, file: FoundFile) -> str:
    """Return a file's full path, or say that it is not what was found."""
    path = os.path.join(root, file.path)
    try:
        size = os.stat(path).st_size
    except OSError as error:
        raise vanished(path, error) from error
    if size != file.size:
        raise changed(path, file.size, size)
    return path


def vanished(path: str, error: OSError) -> SourceError:
    """Say that a file cannot be read any more."""
    return SourceError(
        f"{path} was found but cannot be read now ({error.strerror}): make it readable until "
        "its query has committed it, then resume; archive files only after that"
    )


def changed(path: str, size_then: int, size_now: int) -> SourceError:
    """Say that a file has grown or shrunk since it was found."""
    return SourceError(
        f"{path} had {size_then} bytes when it was found and has {size_now} now: restore it, then "
        "resume; write files under another name (such as .name or name.tmp) and rename them when "
        "complete, and never append to one"
    )


def _being_written(name: str) -> bool:
    return name.startswith((".", "_")) or name.endswith(".tmp")


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        status = entry.stat()
    except FileNotFoundError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _require_readable_name(root: Path, path: str) -> None:
    if ":" in path or not path.isprintable():
        raise SourceError(
            f"{str(root / path)!a}: Spark cannot read files whose name has a colon or an "
            "unprintable character: rename it, then resume"
        )


def _identity(root: Path) -> tuple[int, int] | None:
    try:
        status = root.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
