"""Copies of blocks in memory: what functions read instead of storage."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from slackwater.runtime.blocks import BlockStore
from slackwater.runtime.state import Block, SliceState
from slackwater.spark.staged_frames import StagedFrames


class StagedBlocks:
    """Hold blocks in the driver's memory, beside their files. Safe for many threads."""

    def __init__(self, blocks: BlockStore, frames: StagedFrames | None = None) -> None:
        """Start empty; `frames` are the copies that Spark's executors hold, of large slices."""
        self._blocks = blocks
        self._frames = frames
        self._lock = threading.Lock()
        self._tables: dict[str, pa.Table] = {}
        self._bytes = 0
        self.hits = self.misses = 0

    @property
    def bytes(self) -> int:
        """Count the bytes of all copies."""
        return self._bytes

    def put(self, block: Block, table: pa.Table) -> None:
        """Keep a copy of a block."""
        with self._lock:
            if block.path not in self._tables:
                self._tables[block.path] = table
                self._bytes += block.bytes

    def drop(self, blocks: Iterable[Block]) -> None:
        """Give up copies, Spark's as well; the files stay."""
        blocks = tuple(blocks)
        if self._frames is not None:
            self._frames.drop(self._blocks.for_spark(blocks))
        with self._lock:
            for block in blocks:
                if self._tables.pop(block.path, None) is not None:
                    self._bytes -= block.bytes

    def bytes_of(self, blocks: Iterable[Block]) -> int:
        """Count the bytes of the driver's copies of some blocks."""
        return sum(block.bytes for block in blocks if block.path in self._tables)

    def bytes_anywhere(self, blocks: Sequence[Block]) -> int:
        """Count the bytes of all copies of some blocks, the executors' as well."""
        held = self.bytes_of(blocks)
        return held if self._frames is None else held + self._frames.bytes_of(self._spark(blocks))

    def to_spark(self, blocks: Sequence[Block], columns: StructType) -> None:
        """Let Spark's executors hold blocks, for functions of windows too large for the driver."""
        assert self._frames is not None
        self._blocks.check(blocks)
        self._frames.stage(self._spark(blocks), sum(block.bytes for block in blocks), columns)

    def spread(self, blocks: Sequence[Block]) -> tuple[list[DataFrame], list[str]]:
        """Tell what Spark reads of blocks: frames that executors hold, and files."""
        files = self._spark(blocks)
        staged = [] if self._frames is None else self._frames.within(files)
        held = {name for each in staged for name in each.files}
        read = [place for place, name in enumerate(files) if name not in held]
        self._blocks.check(blocks[place] for place in read)
        return [each.frame for each in staged], [files[place] for place in read]

    def _spark(self, blocks: Iterable[Block]) -> list[str]:
        return self._blocks.for_spark(blocks)

    def table(self, block: Block) -> pa.Table | None:
        """Return a block's copy."""
        return self._tables.get(block.path)

    def in_memory(self, state: SliceState) -> SliceState:
        """Return a slice's state with all of its rows in the driver, read from storage if need be.

        What is read is not kept: the window has fired, and is probably not read again soon.
        """
        chunks = list(state.chunks)
        for block in state.blocks:
            table = self.table(block)
            if table is None:
                self.misses += 1
                table = self._blocks.read(block)
            else:
                self.hits += 1
            chunks.append(table)
        return SliceState(tuple(chunks))
