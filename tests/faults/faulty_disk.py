"""A disk that breaks at a chosen operation, and forgets at a power failure what was not synced.

    disk = FaultyDisk(root, Fault(17, Kind.TORN))

counts the operations of the product on its durable files, and spoils the 17th of them.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from slackwater.disk import Disk, Place

T = TypeVar("T")


class Kind(Enum):
    """Say what becomes of an operation, and of all that come after it."""

    REFUSED = "fails before it does anything; the next ones work"
    UNSAID = "is done, and fails all the same; the next ones work"
    TORN = "writes the first half and fails; the next ones work"
    FULL = "fails, and so does all else that takes space, for a while"
    KILLED = "is the process's last, and is not done"
    KILLED_TORN = "is the process's last, and is half done"
    LOST = "is done before a power failure: all that was not synced is gone"
    ZEROED = "is done before a power failure: names and lengths are kept, other bytes are zeros"

    @property
    def ends_the_process(self) -> bool:
        """Tell whether nothing works any more until the next process."""
        return self in _DEADLY

    @property
    def tears(self) -> bool:
        """Tell whether it makes sense for writes only."""
        return self in (Kind.TORN, Kind.KILLED_TORN)


_DEADLY = (Kind.KILLED, Kind.KILLED_TORN, Kind.LOST, Kind.ZEROED)
_TAKES_SPACE = ("write", "make_directory", "replace", "open")
_FULL_FOR = 6  # operations: longer than one step takes, shorter than three tries


@dataclass(frozen=True)
class Fault:
    """Name one operation by its number, from 1, and what becomes of it."""

    number: int
    kind: Kind
    error: int = errno.EIO


@dataclass(frozen=True)
class Operation:
    """Remember one operation: what was done, and to what, as seen from the root."""

    name: str
    path: str


@dataclass(eq=False)
class _Node:
    """Follow one file or directory, whatever it is called; what it holds for sure."""

    directory: bool
    synced: bytes = b""  # of a file, as last synced
    names: dict[str, _Node] = field(default_factory=dict)  # of a directory, as last synced


class FaultyDisk(Disk):
    """Do what is asked until the fault, then as the fault says. Only files below the root count."""

    def __init__(
        self, root: Path, fault: Fault | None = None, *, after: FaultyDisk | None = None
    ) -> None:
        """Take all below the root for durable; `after` another process, what that one synced."""
        super().__init__()
        root.mkdir(parents=True, exist_ok=True)
        self._root = root
        self._prefix = f"{root}{os.sep}"
        self.settled.add(root)
        self._fault = fault
        self._lock = threading.RLock()
        self.done: list[Operation] = []
        self.hit: Operation | None = None
        self.dead = False
        self._handles: dict[int, Path] = {}
        self._nodes: dict[Path, _Node] = {} if after is None else after._nodes
        if after is None:
            self._take_all_for_durable()

    # The operations.

    def open(self, path: Place, flags: int, mode: int = 0o666) -> int:
        place = Path(path)

        def act() -> int:
            handle = super(FaultyDisk, self).open(place, flags, mode)
            self._handles[handle] = place
            self._node(place)
            return handle

        return self._do("open", place, act, undo=self.close)

    def close(self, handle: int) -> None:
        """Never fails, or the test would hold files that nobody can give back."""
        with self._lock:
            if self._handles.pop(handle, None) is not None:
                super().close(handle)

    def write(self, handle: int, buffers: Sequence[Any], offset: int) -> int:
        content = b"".join(buffers)

        def half() -> None:
            os.pwrite(handle, content[: len(content) // 2], offset)

        return self._do(
            "write",
            self._place(handle),
            lambda: super(FaultyDisk, self).write(handle, buffers, offset),
            half=half,
        )

    def truncate(self, handle: int, size: int) -> None:
        act = super().truncate
        self._do("truncate", self._place(handle), lambda: act(handle, size))

    def sync(self, handle: int) -> None:
        """Remember what would be there after a power failure; the real flush is left out."""
        self._do("sync", self._place(handle), lambda: self._synced(handle))

    def sync_data(self, handle: int) -> None:
        self._do("sync_data", self._place(handle), lambda: self._synced(handle))

    def read(self, path: Place) -> bytes:
        act = super().read
        return self._do("read", Path(path), lambda: act(path))

    def replace(self, source: Place, target: Place) -> None:
        act = super().replace

        def moved() -> None:
            act(source, target)
            before, after = Path(source), Path(target)
            node = self._nodes.pop(before, None) or _Node(after.is_dir())
            if node.directory:
                for place in [p for p in self._nodes if p.is_relative_to(before)]:
                    self._nodes[after / place.relative_to(before)] = self._nodes.pop(place)
            self._nodes[after] = node
            for handle, place in self._handles.items():
                if place == before:
                    self._handles[handle] = after

        self._do("replace", Path(target), moved)

    def remove(self, path: Place) -> None:
        act = super().remove

        def removed() -> None:
            act(path)
            self._nodes.pop(Path(path), None)

        self._do("remove", Path(path), removed)

    def make_directory(self, path: Place, mode: int = 0o777) -> None:
        act = super().make_directory

        def made() -> None:
            act(path, mode)
            self._node(Path(path))

        self._do("make_directory", Path(path), made)

    def remove_directory(self, path: Place) -> None:
        act = super().remove_directory

        def removed() -> None:
            act(path)
            self._nodes.pop(Path(path), None)

        self._do("remove_directory", Path(path), removed)

    def remove_tree(self, path: Place) -> None:
        act = super().remove_tree

        def removed() -> None:
            act(path)
            for place in [p for p in self._nodes if p.is_relative_to(path)]:
                del self._nodes[place]

        self._do("remove_tree", Path(path), removed)

    # What tests ask.

    def abandon(self) -> None:
        """End the process: its files and locks are given back; then lose what a crash loses."""
        with self._lock:
            self.dead = True
            for handle in list(self._handles):
                self.close(handle)
            if self._fault is not None and self._fault.kind is Kind.LOST:
                self._lose_all()
            elif self._fault is not None and self._fault.kind is Kind.ZEROED:
                self._lose_bytes()

    def open_handles(self) -> list[Path]:
        """List what nobody has closed."""
        return sorted(self._handles.values())

    # How.

    def _take_all_for_durable(self) -> None:
        for base, directories, names in os.walk(self._root, topdown=False):
            node = self._node(Path(base))
            for name in names:
                place = Path(base, name)
                self._node(place).synced = place.read_bytes()
            node.names = {name: self._node(Path(base, name)) for name in (*directories, *names)}

    def _do(
        self,
        name: str,
        place: Path,
        act: Callable[[], T],
        *,
        half: Callable[[], object] | None = None,
        undo: Callable[[T], object] = lambda _: None,
    ) -> T:
        with self._lock:
            operation = Operation(name, str(place).removeprefix(self._prefix))
            if self.dead:
                raise OSError(errno.EIO, "the process is dead", str(place))
            self.done.append(operation)
            fault, number = self._fault, len(self.done)
            if fault is None or number < fault.number:
                return act()
            failure = OSError(fault.error, os.strerror(fault.error), str(place))
            if number > fault.number:
                full = fault.kind is Kind.FULL and number <= fault.number + _FULL_FOR
                if full and name in _TAKES_SPACE:
                    raise failure
                return act()
            self.hit = operation
            self.dead = fault.kind.ends_the_process
            if fault.kind in (Kind.UNSAID, Kind.LOST, Kind.ZEROED):
                undo(act())
            elif fault.kind.tears and half is not None:
                half()
            raise failure

    def _place(self, handle: int) -> Path:
        try:
            return self._handles[handle]
        except KeyError:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from None

    def _node(self, place: Path) -> _Node:
        node = self._nodes.get(place)
        if node is None:
            node = self._nodes[place] = _Node(place.is_dir())
        return node

    def _synced(self, handle: int) -> None:
        place = self._place(handle)
        node = self._node(place)
        if node.directory:
            node.names = {name: self._node(place / name) for name in os.listdir(place)}
        else:
            node.synced = Path(f"/proc/self/fd/{handle}").read_bytes()  # opened for writing only

    def _lose_all(self) -> None:
        """Put back what was synced, under the names that were."""

        def restore(node: _Node, place: Path) -> None:
            if not node.directory:
                place.write_bytes(node.synced)
                return
            place.mkdir()
            for name, child in node.names.items():
                restore(child, place / name)

        root = self._node(self._root)
        for name in os.listdir(self._root):
            place = self._root / name
            shutil.rmtree(place) if place.is_dir() else place.unlink()
        for name, child in root.names.items():
            restore(child, self._root / name)

    def _lose_bytes(self) -> None:
        for base, _, names in os.walk(self._root):
            for name in names:
                place = Path(base, name)
                synced = self._node(place).synced
                length = place.stat().st_size
                place.write_bytes(synced[:length].ljust(length, b"\0"))
