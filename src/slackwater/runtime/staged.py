"""Copies of blocks in memory: what functions read instead of storage."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import pyarrow as pa

from slackwater.runtime.blocks import BlockStore
from slackwater.runtime.state import Block, SliceState


class StagedBlocks:
    """Hold blocks in the driver's memory, beside their files. Safe for many threads."""

    def __init__(self, blocks: BlockStore) -> None:
        """Start empty."""
        self._blocks = blocks
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
        """Give up copies; the files stay."""
        with self._lock:
            for block in blocks:
                if self._tables.pop(block.path, None) is not None:
                    self._bytes -= block.bytes

    def bytes_of(self, blocks: Iterable[Block]) -> int:
        """Count the bytes of the copies of some blocks."""
        return sum(block.bytes for block in blocks if block.path in self._tables)

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
