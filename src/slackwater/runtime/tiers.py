"""Move window state between memory and storage, as the policy says, beside the steps."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from slackwater.errors import JournalError, StateError
from slackwater.lateness.tiering import (
    HeldSlice,
    SliceId,
    TierPolicy,
    TierSnapshot,
)
from slackwater.runtime.deployed import DeployedQuery
from slackwater.runtime.io_lane import IoLane
from slackwater.runtime.slots import Worker
from slackwater.runtime.staged import StagedBlocks
from slackwater.runtime.state import SliceState
from slackwater.runtime.transfers import Transfers
from slackwater.spark.failures import explain

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

    def again(self, rows: int, size: int, steady_ms: float) -> _Seen:
        passed_s = max(steady_ms - self.at_ms, 1.0) / 1_000
        rate = max(size - self.size, 0) / passed_s
        smooth = self.bytes_per_s + RATE_MEMORY * (rate - self.bytes_per_s)
        changed_ms = self.changed_ms if rows == self.rows else steady_ms
        return _Seen(rows, size, steady_ms, changed_ms, smooth)


class Tiers:
    """Carry out what a policy decides. One thread looks; the lane transfers."""

    def __init__(
        self,
        transfers: Transfers,
        staged: StagedBlocks,
        lane: IoLane,
        policy: TierPolicy,
        budget_bytes: float,
        queries: Callable[[], Sequence[DeployedQuery]],
        moved: Callable[[DeployedQuery], None] = lambda query: None,
    ) -> None:
        """Bring together what is moved, and by whom; `moved` is told whose state it was."""
        self._moved = moved
        self._transfers = transfers
        self._staged = staged
        self._lane = lane
        self._policy = policy
        self._budget_bytes = budget_bytes
        self._queries = queries
        self._lock = threading.Lock()
        self._busy: dict[SliceId, Future[None]] = {}
        self._damaged: set[SliceId] = set()
        self._seen: dict[SliceId, _Seen] = {}
        self._watcher = Worker("slackwater-tiers")
        self._looking: Future[None] = Future()
        self._looking.set_result(None)
        self._next_look_ms = -math.inf
        self._failure: BaseException | None = None

    def look(self, now_ms: float, steady_ms: float) -> None:
        """Decide and start what is due, unless it was done a moment ago; raise what broke before.

        The moment is told by the clock that windows go by, and by the steady one that pauses do.

        Only a journal that cannot be written is an error. Anything else is tried again later: the
        rows are where they were.
        """
        if self._failure is not None:
            raise self._failure
        if steady_ms < self._next_look_ms or not self._looking.done():
            return
        self._next_look_ms = math.inf  # until this look says how long it took
        self._looking = self._watcher.submit(self._look, now_ms, steady_ms)

    def _look(self, now_ms: float, steady_ms: float) -> None:
        started = time.perf_counter()
        try:
            self.decide(now_ms, steady_ms)
        except Exception as error:
            logger.warning("nobody could tell which window state to move: %s", explain(error))
        took_ms = (time.perf_counter() - started) * 1_000
        self._next_look_ms = steady_ms + max(LOOK_EVERY_MS, PATIENCE * took_ms)

    def decide(self, now_ms: float, steady_ms: float) -> None:
        """Take a snapshot, ask the policy, and queue what it wants.

        What is being moved is left alone even if that ends in between: it is told before the state
        is looked at, so that nothing is moved as it was before.
        """
        with self._lock:
            taken = self._damaged | set(self._busy)
        states: dict[SliceId, tuple[DeployedQuery, SliceState]] = {}
        slices = []
        for query in self._queries():
            uses = _next_uses(query, now_ms)
            for start, state in list(query.state.slices.items()):
                id = SliceId(query.number, start)
                states[id] = (query, state)
                slices.append(self._held(query, id, state, steady_ms, uses.get(start)))
        self._seen = {id: seen for id, seen in self._seen.items() if id in states}
        with self._lock:
            self._damaged &= states.keys()
        snapshot = TierSnapshot(now_ms, self._budget_bytes, tuple(slices), self._transfers.staging)
        decision = self._policy.decide(snapshot)
        for id in decision.prestage:
            if id not in taken:
                query, state = states[id]
                self._track(id, self._transfers.prestage(id, query.template, state), state, taken)
        for destaging in decision.destage:
            if destaging.id not in taken:
                state = states[destaging.id][1]
                self._track(destaging.id, self._transfers.destage(destaging, state), state, taken)
        for id, (query, state) in states.items():
            if len(state.blocks) > 1 and id not in taken:
                self._track(id, self._transfers.compact(id, query.template, state), state, taken)

    def settle(self) -> None:
        """Return once nothing is being moved."""
        self._looking.result()
        self._lane.settle()
        if self._failure is not None:
            raise self._failure

    def close(self, limit_s: float = math.inf) -> bool:
        """Finish the transfers that have begun, and end the threads; tell whether all have ended.

        Those that hang are left after so long.
        """
        self._watcher.end()
        return self._watcher.ended(limit_s) & self._lane.close(limit_s)

    def _held(
        self,
        query: DeployedQuery,
        id: SliceId,
        state: SliceState,
        steady_ms: float,
        next_use_ms: float | None,
    ) -> HeldSlice:
        stored = sum(block.bytes for block in state.blocks)
        copied = self._staged.bytes_anywhere(state.blocks)
        rows = state.rows_held + sum(block.rows for block in state.blocks)
        size = state.bytes_held + stored
        before = self._seen.get(id)
        seen = _Seen(rows, size, steady_ms, steady_ms) if before is None else None
        seen = seen or before.again(rows, size, steady_ms)  # type: ignore[union-attr]
        self._seen[id] = seen
        return HeldSlice(
            id,
            past=query.past(id.start_ms),
            memory_bytes=state.bytes_held + copied,
            unsaved_bytes=state.bytes_held,
            unstaged_bytes=stored - copied,
            idle_ms=steady_ms - seen.changed_ms,
            bytes_per_s=seen.bytes_per_s,
            next_use_ms=next_use_ms,
        )

    def _track(
        self, id: SliceId, future: Future[None] | None, state: SliceState, taken: set[SliceId]
    ) -> None:
        """Leave a slice alone until what was begun has ended, and for the rest of this look."""
        if future is None:
            return
        taken.add(id)
        with self._lock:
            self._busy[id] = future
        future.add_done_callback(lambda done: self._ended(id, state, done))

    def _ended(self, id: SliceId, state: SliceState, future: Future[None]) -> None:
        with self._lock:
            self._busy.pop(id, None)
        error = None if future.cancelled() else future.exception()
        for query in self._queries():
            if query.number == id.query:
                self._moved(query)
        if isinstance(error, JournalError):
            self._failure = error
        elif isinstance(error, StateError) and self._still_has(id, state):
            # Trying again would not help, and its query stops once it needs what is damaged.
            logger.error("window state is left where it is: %s", error)
            with self._lock:
                self._damaged.add(id)
        elif error is not None and self._still_has(id, state):
            logger.warning("window state could not be moved and is tried again: %s", explain(error))

    def _still_has(self, id: SliceId, state: SliceState) -> bool:
        """Tell whether what was to be moved is still there: what was forgotten need not be."""
        held = [
            query.state.slices.get(id.start_ms)
            for query in self._queries()
            if query.number == id.query
        ]
        return any(now is not None and set(state.blocks) <= set(now.blocks) for now in held)


def _next_uses(query: DeployedQuery, now_ms: float) -> dict[int, float]:
    """Foretell when slices are read again: when the first past window that holds them is."""
    uses: dict[int, float] = {}
    for window_ms, at_ms in query.amendments_at_ms(now_ms).items():
        for start_ms in query.grid.slices_of(window_ms):
            uses[start_ms] = min(at_ms, uses.get(start_ms, math.inf))
    return uses
