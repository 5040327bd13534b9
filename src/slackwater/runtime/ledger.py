"""The ledger: all queries' durable state, kept in step with the journal.

Every change is appended to the journal and applied in memory under one lock, so a snapshot taken
under that lock is exactly what the journal said up to that point.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from slackwater.disk import PRIVATE, Access
from slackwater.errors import JournalError, StateError
from slackwater.lateness.state import LatenessWish
from slackwater.runtime.journal import Journal, Record, Recovered
from slackwater.runtime.lateness_records import wish_from_json, wish_to_json
from slackwater.runtime.records import (
    change_from_json,
    change_rows,
    change_to_json,
    move_of,
    move_record,
    pack_stored,
    plan_record,
    plans_of,
    query_from_json,
    query_rows,
    query_to_json,
    range_from_json,
    range_to_json,
    unpack_stored,
)
from slackwater.runtime.state import (
    Block,
    Move,
    PlannedRange,
    QueryChange,
    QueryState,
    SliceState,
)

logger = logging.getLogger("slackwater")

SNAPSHOT_BYTES = 16 * 1024 * 1024
SNAPSHOT_RECORDS = 10_000


@dataclass(frozen=True)
class DeadLetterDuty:
    """Remember that a committed step left records to be filed as dead letters."""

    step: int
    query: int
    ranges: tuple[PlannedRange, ...]
    rejected: bool
    forgotten_until_ms: int | None  # rows of windows that ended by then were too late
    too_late: tuple[int, ...] = ()  # and so were those of these slices, whose windows were over


@dataclass
class LedgerContent:
    """Hold what a journal says, as it stands after its last whole record."""

    queries: dict[str, QueryState] = field(default_factory=dict)
    planned_since: dict[int, list[PlannedRange]] = field(default_factory=dict)
    duties: dict[tuple[int, int], DeadLetterDuty] = field(default_factory=dict)
    batches: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    resets: dict[str, int] = field(default_factory=dict)  # by name, how often
    next_query: int = 0
    next_step: int = 0
    next_batch: int = 0

    def captured(self) -> LedgerContent:
        """Return a copy that later changes leave alone."""
        return replace(
            self,
            queries={name: state.captured() for name, state in self.queries.items()},
            duties=dict(self.duties),
            batches={batch: list(keys) for batch, keys in self.batches.items()},
            planned_since=dict(self.planned_since),
            resets=dict(self.resets),
        )


def read_content(recovered: Recovered) -> LedgerContent:
    """Work out from a journal's snapshot and records what holds now."""
    content = LedgerContent()
    if recovered.snapshot is not None:
        _load_snapshot(content, recovered.snapshot)
    index = {state.number: state for state in content.queries.values()}
    for record in recovered.records:
        _replay(content, index, record)
    return content


class Ledger:
    """Change the queries' state, durably."""

    def __init__(self, directory: Path, *, durable: bool = True, access: Access = PRIVATE) -> None:
        """Open the journal and read what it holds."""
        self._journal = Journal.open(directory / "journal", durable=durable, access=access)
        self._lock = threading.Lock()
        self._snapshot_bytes = 0
        self._abandoned: set[tuple[int, int]] = set()  # steps, each with a query of it
        try:
            self.content = read_content(self._journal.recovered)
        except BaseException:
            self._journal.close()
            raise
        self._numbers = {state.number: state for state in self.content.queries.values()}

    def introduce(
        self, name: str, fingerprint: dict[str, Any], *, first_pane: int = 0
    ) -> QueryState:
        """Give a new query its number; durable with the query's first plan."""
        with self._lock:
            number = self.content.next_query
            self._journal.append(
                {
                    "kind": "query",
                    "q": number,
                    "name": name,
                    "fingerprint": fingerprint,
                    "first_pane": first_pane,
                }
            )
            state = QueryState.introduced(number, name, fingerprint, first_pane)
            self.content.next_query += 1
            self.content.queries[name] = state
            self._numbers[state.number] = state
        return state

    def remember_sources(self, number: int, states: list[Any]) -> None:
        """Write down what a query's sources need besides offsets; durable with its first plan."""
        with self._lock:
            self._journal.append({"kind": "sources", "q": number, "states": states})
            self._numbers[number].source_states = states

    def remember_wish(self, number: int, wish: LatenessWish) -> None:
        """Write down what is wished of a query's late events; durable with its next plan.

        A plan that a crash left pending is done by the wish that it was planned with: some of its
        panes may have been written already.
        """
        with self._lock:
            state = self._numbers[number]
            if state.wish is not None and state.pending is not None:
                state.next_wish = wish
            elif state.wish != wish:
                self._journal.append(_wish_record(number, wish))
                state.wish = wish

    def reset(self, name: str) -> list[Block]:
        """Forget a query altogether (redeployed, it starts anew); return the files to remove."""
        with self._lock:
            position = self._journal.append({"kind": "reset", "name": name})
            state = self.content.queries.pop(name)
            self._numbers.pop(state.number)
            _forget_query(self.content, state)
        self._journal.sync(position)
        return [block for held in state.slices.values() for block in held.blocks]

    def plan(
        self, plans: Mapping[int, Sequence[PlannedRange]], amending: Collection[int] = ()
    ) -> tuple[int, int]:
        """Write down what a step will read; return its number and the position to `sync`.

        `amending` are the queries whose past windows it amends, where they are due.
        """
        with self._lock:
            step = self.content.next_step
            position = self._journal.append(plan_record(step, plans, amending))
            self.content.next_step += 1
            for query, ranges in plans.items():
                state = self._numbers[query]
                state.pending, state.pending_step = tuple(ranges), step
                state.pending_amends = query in amending
            return step, position

    def require_pending(self, step: int, queries: Iterable[int]) -> None:
        """Refuse a step that is not, or not any more, what its queries are planned to do next."""
        with self._lock:
            self._require_pending(step, queries)

    def _require_pending(self, step: int, queries: Iterable[int]) -> None:
        for number in queries:
            state = self._numbers.get(number)
            if state is None or not state.waits_for(step):
                name = f"number {number}" if state is None else state.name
                raise StateError(
                    f"step {step} of query {name} is not planned: it was committed, planned anew "
                    "or forgotten before. It changes nothing; resume the query to go on"
                )

    def commit(
        self, step: int, changes: Sequence[QueryChange], duties: Sequence[DeadLetterDuty]
    ) -> tuple[int, list[Block]]:
        """Apply what a step did; return the position to `sync` and the files to remove after it.

        Refused, before anything is written, unless this very step is pending for each query.
        """
        payload, sizes = pack_stored(rows for change in changes for rows in change_rows(change))
        header = {
            "kind": "commit",
            "step": step,
            "rows": sizes,
            "changes": [change_to_json(change) for change in changes],
            "dead": [
                [duty.query, int(duty.rejected), duty.forgotten_until_ms, duty.too_late]
                for duty in duties
            ],
        }
        obsolete: list[Block] = []
        with self._lock:
            self.require_wanted(step, [change.query for change in changes])
            self._require_pending(step, (change.query for change in changes))
            position = self._journal.append(header, payload)
            with self._applied():
                for change in changes:
                    state = self._numbers[change.query]
                    wish = state.next_wish
                    obsolete += state.apply(change)
                    if wish is not None:
                        position = self._journal.append(_wish_record(state.number, wish))
                for duty in duties:
                    self.content.duties[duty.step, duty.query] = duty
        return position, obsolete

    @contextmanager
    def _applied(self) -> Iterator[None]:
        """Let nobody go on from memory that lacks what the journal has."""
        try:
            yield
        except BaseException as error:
            self._journal.fail(
                f"a record was written and could not be applied ({error}): start again, which "
                "reads it from the journal"
            )
            if isinstance(error, JournalError):
                raise
            raise JournalError(f"a record was written and could not be applied: {error}") from error

    def abandon(self, step: int, queries: Iterable[int]) -> None:
        """Give a step up that nothing can end: whatever it still does, it is not committed.

        Its queries keep their plans, to be done by another step. Those that were tried apart from
        these have the same step, and are not given up with them.
        """
        with self._lock:
            self._abandoned.update((step, query) for query in queries)

    def require_wanted(self, step: int, queries: Iterable[int]) -> None:
        """Refuse a step that was given up."""
        if not self._abandoned.isdisjoint((step, query) for query in queries):
            raise StateError(f"step {step} was given up before it ended: it changes nothing")

    def move(self, move: Move, source: SliceState) -> list[Block]:
        """Write down, durably, that rows changed their place; return the files to remove now.

        `source` is the slice as it was when the move began. Where the rows that the move replaces
        are not there any more as they were then, it is refused: the files to remove are its own.
        """
        with self._lock:
            state = self._numbers.get(move.query)
            held = None if state is None else state.slices.get(move.start_ms)
            if state is None or held is None or not held.can_move(move, source):
                return list(move.blocks)
            position = self._journal.append(move_record(move))
            with self._applied():
                obsolete = state.move(move)
        self._journal.sync(position)
        return list(obsolete)

    def holds(self, query: int, start_ms: int, blocks: Iterable[Block]) -> bool:
        """Tell whether all of these blocks are part of a slice now."""
        with self._lock:
            state = self._numbers.get(query)
            held = None if state is None else state.slices.get(start_ms)
            return held is not None and set(blocks) <= set(held.blocks)

    def sync(self, position: int) -> None:
        """Return once the journal is durable up to a position."""
        self._journal.sync(position)

    def quarantine(self, number: int, error: str | None) -> None:
        """Stop a query for the error given, or let it go on (None)."""
        with self._lock:
            position = self._journal.append({"kind": "quarantine", "q": number, "error": error})
            self._numbers[number].quarantined = error
        self._journal.sync(position)

    def open_duties(self) -> list[DeadLetterDuty]:
        """List the duties that no batch has taken yet, oldest first."""
        with self._lock:
            taken = {key for keys in self.content.batches.values() for key in keys}
            return [duty for key, duty in self.content.duties.items() if key not in taken]

    def open_batches(self) -> list[tuple[int, list[DeadLetterDuty]]]:
        """List the batches that were planned and not filed: a crash came between."""
        with self._lock:
            return [
                (batch, [self.content.duties[key] for key in keys if key in self.content.duties])
                for batch, keys in self.content.batches.items()
            ]

    def plan_dead_letters(self, duties: Sequence[DeadLetterDuty]) -> int:
        """Write down which duties are filed together; return the batch's number."""
        with self._lock:
            batch = self.content.next_batch
            keys = [(duty.step, duty.query) for duty in duties]
            position = self._journal.append({"kind": "dead plan", "batch": batch, "of": keys})
            self.content.next_batch += 1
            self.content.batches[batch] = keys
        self._journal.sync(position)
        return batch

    def require_batch(self, newest: int, filed: Path) -> None:
        """Refuse to go on where a batch was filed that the journal does not know of."""
        if newest >= self.content.next_batch:
            raise JournalError(
                f"{filed} has batch {newest} of dead letters, and the journal in "
                f"{self._journal.directory} knows of {self.content.next_batch}: records are "
                "missing at its end. Restore the journal from a copy; or move the dead letters "
                "away as well, to start anew"
            )

    def dead_letters_filed(self, batch: int) -> None:
        """Write down that a batch is safely filed."""
        with self._lock:
            position = self._journal.append({"kind": "dead done", "batch": batch})
            for key in self.content.batches.pop(batch):
                self.content.duties.pop(key, None)
        self._journal.sync(position)

    @property
    def has_duties(self) -> bool:
        """Tell whether dead letters wait to be filed."""
        return bool(self.content.duties)

    @property
    def snapshot_due(self) -> bool:
        """Tell whether the journal has grown long enough to be replaced by a snapshot.

        It has when it is as long as the last snapshot: so large state is not written all the time.
        """
        return (
            self._journal.bytes_since_snapshot > max(SNAPSHOT_BYTES, self._snapshot_bytes)
            or self._journal.records_since_snapshot > SNAPSHOT_RECORDS
        )

    def begin_snapshot(self, source_states: Mapping[int, list[Any]]) -> Callable[[], None]:
        """Capture all state now; the function returned writes it, in any thread, at leisure.

        `source_states` are those of the deployed queries' sources, as of their last plan.
        """
        with self._lock:
            for number, states in source_states.items():
                if number in self._numbers:
                    self._numbers[number].source_states = states
            content = self.content.captured()
            rotation = self._journal.rotate()

        def install() -> None:
            header, captured = _snapshot_header(content), list(content.queries.values())
            stored = (rows for state in captured for rows in query_rows(state))
            payload, header["rows"] = pack_stored(stored)
            rotation.install(header, payload)
            self._snapshot_bytes = len(payload)

        return install

    def block_paths(self) -> set[str]:
        """Name every file that the state of some query lies in."""
        with self._lock:
            return {
                block.path
                for state in self.content.queries.values()
                for held in state.slices.values()
                for block in held.blocks
            }

    def close(self) -> None:
        """Release the journal."""
        self._journal.close()


def _wish_record(number: int, wish: LatenessWish) -> dict[str, Any]:
    return {"kind": "wish", "q": number, "wish": wish_to_json(wish)}


def _snapshot_header(content: LedgerContent) -> dict[str, Any]:
    return {
        "kind": "snapshot",
        "queries": [query_to_json(state) for state in content.queries.values()],
        "next": [content.next_query, content.next_step, content.next_batch],
        "duties": [
            [
                duty.step,
                duty.query,
                [range_to_json(r) for r in duty.ranges],
                int(duty.rejected),
                duty.forgotten_until_ms,
                duty.too_late,
            ]
            for duty in content.duties.values()
        ],
        "batches": list(content.batches.items()),
        "resets": content.resets,
        # Of queries that are not deployed: nobody could tell what their sources have to remember.
        "planned": [
            [query, [range_to_json(r) for r in ranges]]
            for query, ranges in content.planned_since.items()
        ],
    }


def _load_snapshot(content: LedgerContent, snapshot: Record) -> None:
    header = snapshot.header
    rows = unpack_stored(snapshot.payload, header["rows"])
    for cells in header["queries"]:
        state = query_from_json(cells, rows.get(cells["number"], {}))
        content.queries[state.name] = state
    content.next_query, content.next_step, content.next_batch = header["next"]
    content.resets = dict(header.get("resets", {}))
    for query, ranges in header.get("planned", ()):
        content.planned_since[query] = list(map(range_from_json, ranges))
    for step, query, ranges, rejected, until_ms, *too_late in header["duties"]:
        planned = tuple(map(range_from_json, ranges))
        content.duties[step, query] = DeadLetterDuty(
            step, query, planned, bool(rejected), until_ms, *map(tuple, too_late)
        )
    content.batches = {batch: [(s, q) for s, q in keys] for batch, keys in header["batches"]}


def _replay(content: LedgerContent, index: dict[int, QueryState], record: Record) -> None:
    header = record.header
    match header["kind"]:
        case "query":
            state = QueryState.introduced(
                header["q"], header["name"], header["fingerprint"], header.get("first_pane", 0)
            )
            content.queries[state.name] = state
            index[state.number] = state
            content.next_query = max(content.next_query, state.number + 1)
        case "reset":
            state = content.queries.pop(header["name"])
            index.pop(state.number)
            _forget_query(content, state)
        case "sources":
            index[header["q"]].source_states = header["states"]
        case "wish":
            index[header["q"]].wish = wish_from_json(header["wish"])
        case "plan":
            content.next_step = max(content.next_step, header["step"] + 1)
            for query, ranges in plans_of(header).items():
                if query in index:
                    index[query].pending = ranges
                    index[query].pending_step = header["step"]
                    index[query].pending_amends = query in header.get("amending", ())
                    content.planned_since.setdefault(query, []).extend(ranges)
        case "commit":
            _replay_commit(content, index, record)
        case "move":
            if header["q"] in index:
                _replay_move(index[header["q"]], move_of(header))
        case "quarantine":
            index[header["q"]].quarantined = header["error"]
        case "dead plan":
            content.batches[header["batch"]] = [(s, q) for s, q in header["of"]]
            content.next_batch = max(content.next_batch, header["batch"] + 1)
        case "dead done":
            for key in content.batches.pop(header["batch"]):
                content.duties.pop(key, None)
        case unknown:
            raise JournalError(
                f"the journal holds a record of kind {unknown!r}: it was written by another version"
            )


def _replay_commit(content: LedgerContent, index: dict[int, QueryState], record: Record) -> None:
    header = record.header
    rows = unpack_stored(record.payload, header["rows"])
    for query, rejected, until_ms, *too_late in header["dead"]:
        if query in index and index[query].pending is not None:
            ranges = index[query].pending or ()
            duty = DeadLetterDuty(
                header["step"], query, ranges, bool(rejected), until_ms, *map(tuple, too_late)
            )
            content.duties[duty.step, query] = duty
    for cells in header["changes"]:
        if cells["q"] in index:
            state = index[cells["q"]]
            planned = state.waits_for(header["step"])
            state.apply(change_from_json(cells, rows.get(cells["q"], {})))
            if not planned:
                _stop_doubtful(state, f"step {header['step']} was committed without its plan")


def _replay_move(state: QueryState, move: Move) -> None:
    held = state.slices.get(move.start_ms)
    state.move(move)
    if held is not None and not held.has_enough(move):
        _stop_doubtful(state, f"state of {move.start_ms} was moved that was not there")


def _stop_doubtful(state: QueryState, found: str) -> None:
    """Stop a query that an earlier version may have given wrong state; ours writes no such record.

    It is read as it was applied then: others go on, and whoever knows better may resume it.
    """
    state.quarantined = (
        f"its journal, of an earlier version, says that {found}: its results may be wrong. Deploy "
        "it with reset=True to compute them anew, or resume it to go on"
    )


def _forget_query(content: LedgerContent, state: QueryState) -> None:
    number = state.number
    content.duties = {key: duty for key, duty in content.duties.items() if key[1] != number}
    content.planned_since.pop(number, None)
    content.resets[state.name] = content.resets.get(state.name, 0) + 1
