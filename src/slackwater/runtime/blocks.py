"""State rows outside the driver: Parquet blocks by query and slice, written once, never changed."""

from __future__ import annotations

import logging
import math
import re
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.errors import JournalError, StateError
from slackwater.runtime.block_files import BlockFiles
from slackwater.runtime.state import Block

logger = logging.getLogger("slackwater")

TRUST_S = 60.0  # for which a file is what it was when it was written or read
RETRY_S = 60.0  # before a file that could not be removed is tried again

# Blocks, and those that were being written; earlier versions put them into one directory.
_OURS = re.compile(
    r"query=\d+/slice=-?\d+/(_tmp-)?[0-9a-f]{32}\.parquet|(_tmp-)?block-\d+-\d+--?\d+\.parquet"
)
_QUERY = re.compile(r"query=(\d+)/")


class BlockStore:
    """Write, find and remove blocks. A block exists for the journal only once it is committed.

    A file that somebody may be reading is removed once all who were reading have finished. One
    that cannot be removed is nobody's failure: nothing names it any more. It is tried again later,
    and by the next start.
    """

    def __init__(
        self, files: BlockFiles, *, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        """Keep blocks as these files."""
        self._files = files
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._tickets = 0
        self._reading: set[int] = set()
        self._condemned: list[tuple[frozenset[int], list[str]]] = []
        self._trusted_until_s: dict[str, float] = {}
        self._stuck: list[str] = []
        self._stuck_until_s = 0.0

    def write(self, query: int, start_ms: int, table: pa.Table) -> Block:
        """Write the rows of one slice, durably."""
        return self.put(*packed(new_block(query, start_ms, table), table))

    def put(self, block: Block, content: pa.Buffer) -> Block:
        """Write a block that was packed before, durably; where that fails nothing is left."""
        try:
            self._files.write(block.path, content)
        except BaseException:
            self.remove([block])
            raise
        self._trusted_until_s[block.path] = self._monotonic_s() + TRUST_S
        return block

    def fetch(self, block: Block) -> pa.Buffer:
        """Return a block's content, to be unpacked: the bytes that the journal names, or an error.

        Blocks of earlier versions are not named by their bytes, but by how many rows they have.
        """
        try:
            content = self._files.read(block.path)
        except FileNotFoundError as error:
            raise self._damaged(block, "is missing") from error
        if block.crc is not None and content.size != block.size:
            raise self._damaged(block, f"is damaged ({content.size} bytes for {block.size})")
        if block.crc is not None and zlib.crc32(content) != block.crc:
            raise self._damaged(block, "is damaged (its checksum is not the one journaled)")
        return content

    def unpack(self, block: Block, content: pa.Buffer) -> pa.Table:
        """Read the rows of a block that was fetched."""
        try:
            table = pq.read_table(pa.BufferReader(content), page_checksum_verification=True)
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(block, f"is damaged ({error})") from error
        if table.num_rows != block.rows:
            raise self._damaged(block, f"is damaged ({table.num_rows} rows for {block.rows})")
        return table

    def read(self, block: Block) -> pa.Table:
        """Return a block's rows."""
        return self.unpack(block, self.fetch(block))

    def check(self, blocks: Iterable[Block]) -> None:
        """Raise unless all blocks are as the journal names them, before others read them.

        Spark checks the pages it reads, but neither their headers nor what the file says of them.
        What was written or checked a moment ago is not read once more.
        """
        now_s = self._monotonic_s()
        for block in blocks:
            if self._trusted_until_s.get(block.path, 0.0) <= now_s:
                self.fetch(block)
                self._trusted_until_s[block.path] = self._monotonic_s() + TRUST_S

    def for_spark(self, blocks: Iterable[Block]) -> list[str]:
        """Say where Spark finds blocks."""
        return [self._files.for_spark(block.path) for block in blocks]

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Keep every block that exists now until this is over."""
        with self._lock:
            self._tickets += 1
            ticket = self._tickets
            self._reading.add(ticket)
        try:
            yield
        finally:
            with self._lock:
                self._reading.discard(ticket)
            self._remove_unread()

    def remove(self, blocks: Iterable[Block]) -> None:
        """Remove blocks that nothing needs any more, as soon as nobody reads them; never raise."""
        paths = [block.path for block in blocks]
        if paths:
            for path in paths:
                self._trusted_until_s.pop(path, None)
            with self._lock:
                self._condemned.append((frozenset(self._reading), paths))
            self._remove_unread()

    def tidy(self, referenced: Collection[str], queries: float = math.inf) -> int:
        """Remove what a crash left between a file and its journal record; return how many files.

        Raise if a block that the journal names is missing, or if one belongs to a query that it
        never had: it had `queries` so far, and writes each down before any block of it. Files of
        others are left alone.
        """
        names = set(self._files.names())
        missing = sorted(set(referenced) - names)
        if missing:
            raise JournalError(
                f"{len(missing)} blocks of window state are missing, such as "
                f"{self._files.for_spark(missing[0])}: give the storage= that the journal was "
                "written with, or put the files back"
            )
        for name in names:
            query = _QUERY.match(name)
            if query is not None and int(query[1]) >= queries:
                raise JournalError(
                    f"{self._files.for_spark(name)} holds state of a query that the journal does "
                    "not know: records are missing at its end. Restore the journal from a copy; or "
                    "move the files of blocks away as well, to start anew"
                )
        orphans = [name for name in names if name not in referenced and _OURS.fullmatch(name)]
        return len(orphans) - self._remove(orphans)

    def _damaged(self, block: Block, found: str) -> StateError:
        return StateError(
            f"{self._files.for_spark(block.path)}, which holds window state, {found}: put the file "
            "back from a copy and resume the query, or deploy the query with reset=True"
        )

    def _remove_unread(self) -> None:
        with self._lock:
            free = [paths for readers, paths in self._condemned if not readers & self._reading]
            self._condemned = [
                (readers, paths) for readers, paths in self._condemned if readers & self._reading
            ]
            if self._stuck and self._monotonic_s() >= self._stuck_until_s:
                free.append(self._stuck)
                self._stuck = []
        for paths in free:
            self._remove(paths)

    def _remove(self, paths: Iterable[str]) -> int:
        """Remove files; remember those that cannot be removed, and return how many they are."""
        problem: Exception | None = None
        stuck = []
        for path in paths:
            try:
                self._files.remove(path)
            except Exception as error:
                problem = error
                stuck.append(path)
        if problem is not None:
            with self._lock:
                said = bool(self._stuck) or self._stuck_until_s > 0
                self._stuck += stuck
                self._stuck_until_s = self._monotonic_s() + RETRY_S
            logger.log(
                logging.DEBUG if said else logging.WARNING,
                "%s is not needed any more and could not be removed (%s): it is tried again from "
                "time to time, and at the next start; nothing depends on it",
                self._files.for_spark(stuck[0]),
                problem,
            )
        return len(stuck)


def new_block(query: int, start_ms: int, table: pa.Table) -> Block:
    """Name a block for some rows; no two blocks ever share a name."""
    path = f"query={query}/slice={start_ms}/{uuid.uuid4().hex}.parquet"
    return Block(path, table.num_rows, table.nbytes)


def packed(block: Block, table: pa.Table) -> tuple[Block, pa.Buffer]:
    """Write a block's rows as Parquet, in memory; return with it the block that names its bytes."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", use_dictionary=False, write_page_checksum=True)
    content = sink.getvalue()
    return replace(block, size=content.size, crc=zlib.crc32(content)), content
