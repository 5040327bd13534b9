"""Put many small blocks of a slice into one, in two transfers: fetch them, then write the new."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future

import pyarrow as pa

from slackwater.lateness.compacting import to_compact
from slackwater.lateness.tiering import SliceId
from slackwater.runtime.blocks import BlockStore, new_block, packed
from slackwater.runtime.io_lane import IoLane, Urgency
from slackwater.runtime.merge import merge
from slackwater.runtime.state import Block, Move, SliceState
from slackwater.spark.frames import ROWS, Template


class Compactor:
    """Compact slices. The old files go once the journal names the new one."""

    def __init__(
        self, blocks: BlockStore, lane: IoLane, moved: Callable[[Move, SliceState], None]
    ) -> None:
        """Take `moved`, which writes down, durably, that rows are in other blocks now."""
        self._blocks = blocks
        self._lane = lane
        self._moved = moved

    def begin(self, id: SliceId, template: Template, state: SliceState) -> Future[None] | None:
        """Start compacting a slice; None where that is not worth it."""
        places = to_compact([block.bytes for block in state.blocks])
        if not places:
            return None
        old = [state.blocks[place] for place in places]
        ended: Future[None] = Future()

        def write(contents: Sequence[pa.Buffer]) -> None:
            written = self._write(id, template, state, old, contents)
            written.add_done_callback(lambda done: _pass_on(done, ended))

        fetched = self._lane.submit(
            Urgency.COMPACT,
            lambda: None,
            lambda _: [self._blocks.fetch(block) for block in old],
            write,
        )
        fetched.add_done_callback(lambda done: _pass_on(done, ended, only_failure=True))
        return ended

    def _write(
        self,
        id: SliceId,
        template: Template,
        state: SliceState,
        old: Sequence[Block],
        contents: Sequence[pa.Buffer],
    ) -> Future[None]:
        def encode() -> tuple[Block, pa.Buffer]:
            table = together(template, list(map(self._blocks.unpack, old, contents)))
            return packed(new_block(id.query, id.start_ms, table), table)

        def put(made: tuple[Block, pa.Buffer]) -> Block:
            return self._blocks.put(*made)

        def finish(block: Block) -> None:
            merged = tuple(each.path for each in old)
            self._moved(Move(id.query, id.start_ms, 0, (block,), merged), state)

        return self._lane.submit(Urgency.COMPACT, encode, put, finish)


def together(template: Template, tables: Sequence[pa.Table]) -> pa.Table:
    """Put the rows of blocks together; partials of equal keys become one."""
    table = pa.concat_tables(tables)
    if template.keeps_rows:
        return table
    merged = merge(table, template.output.by, template.aggregates, sums=[ROWS])
    return merged.select(table.column_names)


def _pass_on(done: Future[None], to: Future[None], *, only_failure: bool = False) -> None:
    if to.done():
        return
    if done.cancelled():
        to.cancel()
    elif (error := done.exception()) is not None:
        to.set_exception(error)
    elif not only_failure:
        to.set_result(None)
