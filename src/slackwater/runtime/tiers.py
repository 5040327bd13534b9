"""Move window state between memory and storage, as the policy says, beside the steps."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from slackwater.errors import JournalError
from slackwater.lateness.tiering import (
    Destaging,
    HeldSlice,
    SliceId,
    StagingTime,
    TierPolicy,
    TierSnapshot,
)
from slackwater.runtime.blocks import BlockStore, decoded, encoded, new_block
from slackwater.runtime.compaction import Compactor
from slackwater.runtime.deployed import DeployedQuery
from slackwater.runtime.io_lane import IoLane, Urgency
from slackwater.runtime.ledger import Ledger
from slackwater.runtime.placing import own_memory
from slackwater.runtime.staged import StagedBlocks
from slackwater.runtime.state import Move, SliceState

logger = logging.getLogger("slackwater")

LOOK_EVERY_MS = 250.0
PATIENCE = 100  # times as long as a look takes: so looking costs at most a hundredth
RATE_MEMORY = 0.3


@dataclass(frozen=True)
class _Seen:
    """Remember how a slice looked last, to tell whether it is idle and how fast it grows."""

    rows: int
    size: int
    at_ms: float
    changed_ms: float
    bytes_per_s: float = 0.0

    def again(self, rows: int, size: int, now_ms: float) -> _Seen:
        passed_s = max(now_ms - self.at_ms, 1.0) / 1_000
        rate = max(size - self.size, 0) / passed_s
        smooth = self.bytes_per_s + RATE_MEMORY * (rate - self.bytes_per_s)
        changed_ms = self.changed_ms if rows == self.rows else now_ms
        return _Seen(rows, size, now_ms, changed_ms, smooth)


class Tiers:
    """Carry out what a policy decides. One thread looks; the lane transfers."""

    def __init__(
        self,
        ledger: Ledger,
        blocks: BlockStore,
        staged: StagedBlocks,
        lane: IoLane,
        policy: TierPolicy,
        budget_bytes: float,
        queries: Callable[[], Sequence[DeployedQuery]],
    ) -> None:
        """Bring together what is moved, and by whom."""
        self._ledger = ledger
        self._blocks = blocks
        self._staged = staged
        self._lane = lane
        self._policy = policy
        self._budget_bytes = budget_bytes
        self._queries = queries
        self._compactor = Compactor(blocks, lane, self._moved)
        self._lock = threading.Lock()
        self._busy: dict[SliceId, Future[None]] = {}
        self._seen: dict[SliceId, _Seen] = {}
        self._watcher = ThreadPoolExecutor(1, thread_name_prefix="slackwater-tiers")
        self._looking: Future[None] = Future()
        self._looking.set_result(None)
        self._next_look_ms = -math.inf
        self._failure: BaseException | None = None
        self.staging = StagingTime()

    def look(self, now_ms: float) -> None:
        """Decide and start what is due, unless it was done a moment ago; raise what broke before.

        Only a journal that cannot be written is an error. Anything else is tried again later: the
        rows are where they were.
        """
        if self._failure is not None:
            raise self._failure
        if now_ms < self._next_look_ms or not self._looking.done():
            return
        self._next_look_ms = math.inf  # until this look says how long it took
        self._looking = self._watcher.submit(self._look, now_ms)

    def _look(self, now_ms: float) -> None:
        started = time.perf_counter()
        try:
            self.decide(now_ms)
        except Exception as error:
            logger.warning("nobody could tell which window state to move: %s", error)
        took_ms = (time.perf_counter() - started) * 1_000
        self._next_look_ms = now_ms + max(LOOK_EVERY_MS, PATIENCE * took_ms)

    def decide(self, now_ms: float) -> None:
        """Take a snapshot, ask the policy, and queue what it wants."""
        states: dict[SliceId, tuple[DeployedQuery, SliceState]] = {}
        slices = []
        for query in self._queries():
            uses = _next_uses(query, now_ms)
            for start, state in list(query.state.slices.items()):
                id = SliceId(query.number, start)
                states[id] = (query, state)
                slices.append(self._held(query, id, state, now_ms, uses.get(start)))
        self._seen = {id: seen for id, seen in self._seen.items() if id in states}
        snapshot = TierSnapshot(now_ms, self._budget_bytes, tuple(slices), self.staging)
        decision = self._policy.decide(snapshot)
        for id in decision.prestage:
            if id not in self._busy:
                self._prestage(id, states[id][1])
        for destaging in decision.destage:
            if destaging.id not in self._busy:
                self._destage(destaging, states[destaging.id][1])
        for id, (query, state) in states.items():
            if len(state.blocks) > 1 and id not in self._busy:
                self._track(id, self._compactor.begin(id, query.template, state))

    def settle(self) -> None:
        """Return once nothing is being moved."""
        self._looking.result()
        self._lane.settle()
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Finish the transfers that have begun, and end the threads."""
        self._watcher.shutdown(wait=True, cancel_futures=True)
        self._lane.close()

    def _held(
        self,
        query: DeployedQuery,
        id: SliceId,
        state: SliceState,
        now_ms: float,
        next_use_ms: float | None,
    ) -> HeldSlice:
        stored = sum(block.bytes for block in state.blocks)
        copied = self._staged.bytes_of(state.blocks)
        rows = state.rows_held + sum(block.rows for block in state.blocks)
        size = state.bytes_held + stored
        before = self._seen.get(id)
        seen = _Seen(rows, size, now_ms, now_ms) if before is None else None
        seen = seen or before.again(rows, size, now_ms)  # type: ignore[union-attr]
        self._seen[id] = seen
        return HeldSlice(
            id,
            past=query.past(id.start_ms),
            memory_bytes=state.bytes_held + copied,
            unsaved_bytes=state.bytes_held,
            unstaged_bytes=stored - copied,
            idle_ms=now_ms - seen.changed_ms,
            bytes_per_s=seen.bytes_per_s,
            next_use_ms=next_use_ms,
        )

    def _destage(self, destaging: Destaging, state: SliceState) -> None:
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
            return
        id = destaging.id
        pieces = _cut(pa.concat_tables(state.chunks), keep - kept)
        blocks = tuple(new_block(id.query, id.start_ms, piece) for piece in pieces)

        def transfer(contents: list[pa.Buffer]) -> None:
            for block, content in zip(blocks, contents, strict=True):
                self._blocks.put(block, content)

        def finish(_: object) -> None:
            if len(pieces) > 1:
                self._staged.put(blocks[0], own_memory(pieces[0]))
            self._moved(Move(id.query, id.start_ms, state.rows_held, blocks))

        urgency = Urgency.LATE_WRITE if state.blocks else Urgency.DESTAGE
        self._submit(urgency, id, lambda: [encoded(piece) for piece in pieces], transfer, finish)

    def _prestage(self, id: SliceId, state: SliceState) -> None:
        """Fetch what a function will read soon."""
        missing = [block for block in state.blocks if self._staged.table(block) is None]
        size = sum(block.bytes for block in missing)
        started = time.perf_counter()

        def finish(contents: list[pa.Buffer]) -> None:
            for block, content in zip(missing, contents, strict=True):
                self._staged.put(block, decoded(content))
            took_ms = (time.perf_counter() - started) * 1_000
            self.staging = self.staging.after(size, took_ms=took_ms)

        self._submit(
            Urgency.PRESTAGE,
            id,
            lambda: None,
            lambda _: [self._blocks.fetch(block) for block in missing],
            finish,
        )

    def _moved(self, move: Move) -> None:
        """Write down that rows are elsewhere now, then remove where they were."""
        obsolete = self._ledger.move(move)
        self._staged.drop(obsolete)
        self._blocks.remove(obsolete)

    def _submit(
        self,
        urgency: Urgency,
        id: SliceId,
        prepare: Callable[[], object],
        transfer: Callable[[Any], object],
        finish: Callable[[Any], None],
    ) -> None:
        self._track(id, self._lane.submit(urgency, prepare, transfer, finish))

    def _track(self, id: SliceId, future: Future[None] | None) -> None:
        """Leave a slice alone until what was begun has ended."""
        if future is None:
            return
        with self._lock:
            self._busy[id] = future
        future.add_done_callback(lambda done: self._ended(id, done))

    def _ended(self, id: SliceId, future: Future[None]) -> None:
        with self._lock:
            self._busy.pop(id, None)
        error = None if future.cancelled() else future.exception()
        if isinstance(error, JournalError):
            self._failure = error
        elif error is not None and self._has(id):
            logger.warning("window state could not be moved and is tried again: %s", error)

    def _has(self, id: SliceId) -> bool:
        """Tell whether a slice is still there: one that was forgotten need not be moved."""
        return any(
            query.number == id.query and id.start_ms in query.state.slices
            for query in self._queries()
        )


def _next_uses(query: DeployedQuery, now_ms: float) -> dict[int, float]:
    """Foretell when slices are read again: when the first past window that holds them is."""
    uses: dict[int, float] = {}
    for window_ms, at_ms in query.amendments_at_ms(now_ms).items():
        for start_ms in query.grid.slices_of(window_ms):
            uses[start_ms] = min(at_ms, uses.get(start_ms, math.inf))
    return uses


def _cut(table: pa.Table, first_bytes: int) -> list[pa.Table]:
    """Cut off about so many bytes of first rows (none where it is less than a row)."""
    rows = int(table.num_rows * first_bytes / max(table.nbytes, 1))
    if not 0 < rows < table.num_rows:
        return [table]
    return [table.slice(0, rows), table.slice(rows)]
