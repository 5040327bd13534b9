"""The transfers that move a slice's state: destaging, pre-staging, compacting."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from concurrent.futures import Future

import pyarrow as pa

from slackwater.lateness.tiering import Destaging, SliceId, StagingTime
from slackwater.runtime.blocks import BlockStore, new_block, packed
from slackwater.runtime.compaction import Compactor
from slackwater.runtime.io_lane import IoLane, Urgency
from slackwater.runtime.ledger import Ledger
from slackwater.runtime.placing import own_memory
from slackwater.runtime.staged import StagedBlocks
from slackwater.runtime.state import Block, Move, SliceState
from slackwater.spark.frames import Template


class Transfers:
    """Begin transfers in the lane. Each is given the slice's state as it was when decided."""

    def __init__(
        self,
        ledger: Ledger,
        blocks: BlockStore,
        staged: StagedBlocks,
        lane: IoLane,
        *,
        function_bytes: float = math.inf,
    ) -> None:
        """Bring together what is moved, and how.

        Rows for functions that are larger than `function_bytes` are staged by Spark, not here.
        """
        self._ledger = ledger
        self._blocks = blocks
        self._staged = staged
        self._lane = lane
        self._function_bytes = function_bytes
        self._compactor = Compactor(blocks, lane, self._moved)
        self.staging = StagingTime()

    def destage(self, destaging: Destaging, state: SliceState) -> Future[None] | None:
        """Write what is in memory only; then give up copies, but for the first rows."""
        kept, keep = 0, destaging.keep_bytes
        copies = []
        for block in state.blocks:
            if kept + block.bytes <= keep:
                kept += block.bytes
            else:
                copies.append(block)
        self._staged.drop(copies)
        if not state.chunks:
            return None
        id = destaging.id
        pieces = _cut(pa.concat_tables(state.chunks), keep - kept)
        blocks = tuple(new_block(id.query, id.start_ms, piece) for piece in pieces)

        def transfer(made: list[tuple[Block, pa.Buffer]]) -> tuple[Block, ...]:
            try:
                return tuple(self._blocks.put(*each) for each in made)
            except BaseException:
                self._blocks.remove(blocks)
                raise

        def finish(written: tuple[Block, ...]) -> None:
            if len(pieces) > 1:
                self._staged.put(written[0], own_memory(pieces[0]))
            self._moved(Move(id.query, id.start_ms, state.rows_held, written), state)

        urgency = Urgency.LATE_WRITE if state.blocks else Urgency.DESTAGE
        return self._lane.submit(
            urgency, lambda: list(map(packed, blocks, pieces)), transfer, finish
        )

    def prestage(self, id: SliceId, template: Template, state: SliceState) -> Future[None]:
        """Fetch what a function will read soon: to where it will be read."""
        stored = sum(block.bytes for block in state.blocks)
        started = time.perf_counter()
        if template.keeps_rows and stored > self._function_bytes:
            return self._lane.submit(
                Urgency.PRESTAGE,
                lambda: None,
                lambda _: self._staged.to_spark(state.blocks, template.pipeline.columns),
                lambda _: self._staged_now(id, state.blocks, stored, started),
            )
        missing = [block for block in state.blocks if self._staged.table(block) is None]

        def finish(contents: list[pa.Buffer]) -> None:
            for block, content in zip(missing, contents, strict=True):
                self._staged.put(block, self._blocks.unpack(block, content))
            self._staged_now(id, missing, sum(block.bytes for block in missing), started)

        return self._lane.submit(
            Urgency.PRESTAGE, lambda: None, lambda _: self._fetch(missing), finish
        )

    def compact(self, id: SliceId, template: Template, state: SliceState) -> Future[None] | None:
        """Put small blocks together, where that is worth it."""
        return self._compactor.begin(id, template, state)

    def _fetch(self, blocks: Sequence[Block]) -> list[pa.Buffer]:
        return [self._blocks.fetch(block) for block in blocks]

    def _staged_now(self, id: SliceId, blocks: Sequence[Block], size: int, started: float) -> None:
        """Give up copies of what was forgotten meanwhile, and learn how long staging takes."""
        if not self._ledger.holds(id.query, id.start_ms, blocks):
            self._staged.drop(blocks)
        took_ms = (time.perf_counter() - started) * 1_000
        self.staging = self.staging.after(size, took_ms=took_ms)

    def _moved(self, move: Move, source: SliceState) -> None:
        """Write down that rows are elsewhere now, then remove where they were."""
        obsolete = self._ledger.move(move, source)
        self._staged.drop(obsolete)
        self._blocks.remove(obsolete)


def _cut(table: pa.Table, first_bytes: int) -> list[pa.Table]:
    """Cut off about so many bytes of first rows (none where it is less than a row)."""
    rows = int(table.num_rows * first_bytes / max(table.nbytes, 1))
    if not 0 < rows < table.num_rows:
        return [table]
    return [table.slice(0, rows), table.slice(rows)]
