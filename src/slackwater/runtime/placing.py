"""Where the rows that a step brings go: into memory and the journal, or to storage."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from slackwater.lateness.tiering import bucket_bytes, stays_in_memory
from slackwater.runtime.blocks import BlockStore, new_block, packed
from slackwater.runtime.deployed import DeployedQuery
from slackwater.runtime.io_lane import IoLane, Urgency
from slackwater.runtime.staged import StagedBlocks
from slackwater.runtime.state import Block, SliceState


@dataclass(frozen=True)
class Limits:
    """Bound what the driver handles itself."""

    journal_bytes: int = 256 * 1024  # rows of a slice that a step brings; more goes to a file
    window_rows: int = 500_000  # partial rows of one window that the driver merges itself
    window_bytes: int = 64 * 1024 * 1024
    function_bytes: int = 8 * 1024 * 1024  # rows of one window that the driver hands to Spark


@dataclass(frozen=True)
class Placed:
    """Say where new rows went, by slice."""

    added: Mapping[int, pa.Table] = field(default_factory=dict)
    blocks: Mapping[int, tuple[Block, ...]] = field(default_factory=dict)


class Placer:
    """Place the rows of steps. Used by all slots at once."""

    def __init__(
        self,
        blocks: BlockStore,
        staged: StagedBlocks,
        lane: IoLane,
        limits: Limits,
        *,
        budget_bytes: float,
        used_bytes: Callable[[], int],
        tiered: bool,
    ) -> None:
        """Place within a budget; without tiers, everything stays in memory."""
        self._blocks = blocks
        self._staged = staged
        self._lane = lane
        self._limits = limits
        self._budget_bytes = budget_bytes
        self._used_bytes = used_bytes
        self._tiered = tiered

    def place(self, query: DeployedQuery, arrived: Mapping[int, pa.Table]) -> Placed:
        """Decide where each slice's new rows go, and put them there, durably if on storage.

        What stays in memory is as durable as the journal makes it: it is in the step's commit.
        Large pieces never go there, or each snapshot of the journal would write them again.
        """
        if not self._tiered:
            return Placed({start: own_memory(table) for start, table in arrived.items()})
        added: dict[int, pa.Table] = {}
        blocks: dict[int, Block] = {}
        written: dict[int, Block] = {}
        writing: list[Future[None]] = []
        free = self._budget_bytes - self._used_bytes()
        for start, table in arrived.items():
            held = query.state.slices.get(start, SliceState())
            size = int(table.nbytes)
            stays = stays_in_memory(
                size,
                bucket_held=held.bytes_held + self._staged.bytes_of(held.blocks),
                bucket_bytes=self._bucket_bytes(query),
                free_bytes=free,
                past=query.past(start),
            )
            if size <= self._limits.journal_bytes and (stays or size <= free / 2):
                added[start] = own_memory(table)
                free -= size
                continue
            blocks[start] = block = new_block(query.number, start, table)
            writing.append(self._write(block, table, partial(written.__setitem__, start)))
            # Rows for functions are read by Spark, from storage faster than from the driver.
            if stays and not query.template.keeps_rows:
                self._staged.put(block, own_memory(table))
                free -= size
        wait(writing)  # all, or one that is still to come would be written after it was discarded
        try:
            for write in writing:
                write.result()
        except BaseException:
            self.discard(blocks.values())
            raise
        return Placed(added, {start: (written[start],) for start in blocks})

    def discard(self, blocks: Iterable[Block]) -> None:
        """Remove blocks that nothing needs: forgotten ones, and those of a step that failed."""
        blocks = list(blocks)
        self._staged.drop(blocks)
        self._blocks.remove(blocks)

    def _write(
        self, block: Block, table: pa.Table, written: Callable[[Block], None]
    ) -> Future[None]:
        return self._lane.submit(
            Urgency.LATE_WRITE,
            lambda: packed(block, table),
            lambda made: self._blocks.put(*made),
            written,
        )

    def _bucket_bytes(self, query: DeployedQuery) -> float:
        open_slices = sum(not query.past(start) for start in list(query.state.slices))
        return bucket_bytes(self._budget_bytes, open_slices) if self._tiered else math.inf


def own_memory(table: pa.Table) -> pa.Table:
    """Copy rows that are a small part of a larger table, which they would keep alive."""
    if table.get_total_buffer_size() <= 2 * table.nbytes + 4096:
        return table
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()
