"""A query's durable state, and the changes that steps make to it.

A change is applied in the same way when a step commits and when a journal is read again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import is_
from typing import Any

import numpy as np
import pyarrow as pa

from slackwater.lateness.state import LatenessChange, LatenessState, LatenessWish
from slackwater.progress.watermarks import PartitionId, Watermarks
from slackwater.spark.sources.base import Range

PlannedRange = tuple[int, Range]  # (input of the query, what it reads there)


@dataclass(frozen=True)
class Block:
    """Name a file that holds state rows of one slice, outside the driver."""

    path: str  # relative to where blocks are stored
    rows: int
    bytes: int = 0  # what the rows take in memory, not in the file
    size: int | None = None  # of the file; None: written by a version that did not know
    crc: int | None = None  # of the file's bytes


@dataclass(frozen=True)
class Move:
    """Say that state rows of one slice have changed their place; the rows are the same."""

    query: int
    start_ms: int
    rows: int  # so many of the rows in the driver, the oldest, are now in the blocks
    blocks: tuple[Block, ...]
    merged: tuple[str, ...] = ()  # paths of blocks whose rows are now in the new ones


@dataclass(frozen=True)
class SliceState:
    """Hold the state rows of one slice: in the driver, and in files."""

    chunks: tuple[pa.Table, ...] = ()
    blocks: tuple[Block, ...] = ()

    @property
    def rows_held(self) -> int:
        """Count the rows in the driver."""
        return sum(chunk.num_rows for chunk in self.chunks)

    @cached_property
    def bytes_held(self) -> int:
        """Count the bytes of the rows in the driver."""
        return sum(chunk.nbytes for chunk in self.chunks)

    def plus(self, *, chunk: pa.Table | None = None, blocks: tuple[Block, ...] = ()) -> SliceState:
        """Return this state with more rows."""
        chunks = self.chunks if chunk is None else (*self.chunks, chunk)
        return SliceState(chunks, (*self.blocks, *blocks))

    def can_move(self, move: Move, source: SliceState) -> bool:
        """Tell whether what a move replaces is still here, just as its `source` had it.

        Rows are known by the very tables they are in: these never change, and a slice that was
        moved, or forgotten and made anew, has others.
        """
        if not self.has_enough(move):
            return False
        if not move.rows:
            return True
        oldest = self.chunks[: len(source.chunks)]
        same = len(oldest) == len(source.chunks) and all(map(is_, oldest, source.chunks))
        return same and move.rows == source.rows_held

    def has_enough(self, move: Move) -> bool:
        """Tell whether there are as many rows, and all of the blocks, that a move replaces."""
        paths = {block.path for block in self.blocks}
        return move.rows <= self.rows_held and paths.issuperset(move.merged)

    def moved(self, move: Move) -> SliceState:
        """Return this state with the same rows in other places."""
        chunks, rows = [], move.rows
        for chunk in self.chunks:
            taken = min(rows, chunk.num_rows)
            rows -= taken
            if taken < chunk.num_rows or not chunk.num_rows:
                chunks.append(chunk.slice(taken))
        stayed = (block for block in self.blocks if block.path not in move.merged)
        return SliceState(tuple(chunks), (*stayed, *move.blocks))


@dataclass(frozen=True)
class Counters:
    """Count what became of a query's records, since it was first deployed."""

    records: int = 0
    rejected: int = 0
    too_late_rows: int = 0
    panes: int = 0
    rows_out: int = 0

    def plus(self, other: Counters) -> Counters:
        """Return the sum of both."""
        return Counters(
            self.records + other.records,
            self.rejected + other.rejected,
            self.too_late_rows + other.too_late_rows,
            self.panes + other.panes,
            self.rows_out + other.rows_out,
        )


@dataclass(frozen=True)
class StageChange:
    """Say what one committed step changes in a further stage of one query."""

    fired: Mapping[int, int]  # window start -> panes emitted so far
    windows_gone_until_ms: int | None  # windows that start here or earlier are over
    sources_gone: tuple[int, ...]  # windows of the stage before whose rows nothing needs any more
    replaced: Mapping[int, pa.Table | None]  # window of the stage before -> its rows from now on


@dataclass(frozen=True)
class KeyedChange:
    """Say what one committed step changes in windows that each key has for itself."""

    emissions: int  # of the query so far
    gone: tuple[int, ...] = ()  # places of held rows that are not needed as they are any more
    added: pa.Table | None = None


@dataclass(frozen=True)
class KeyedState:
    """Hold the rows of windows that each key has for itself: those not settled yet."""

    emissions: int = 0  # each step that shows something is one; it numbers the panes
    rows: pa.Table | None = None

    @property
    def rows_held(self) -> int:
        """Count the rows in the driver."""
        return 0 if self.rows is None else int(self.rows.num_rows)

    def after(self, change: KeyedChange) -> KeyedState:
        """Return the state that a committed step leaves."""
        rows = self.rows
        if rows is not None and change.gone:
            kept = np.ones(rows.num_rows, dtype=np.bool_)
            kept[list(change.gone)] = False
            rows = rows.filter(pa.array(kept))
        parts = [part for part in (rows, change.added) if part is not None and part.num_rows]
        whole = pa.concat_tables(parts).combine_chunks() if parts else None
        return KeyedState(change.emissions, whole)


@dataclass(frozen=True)
class QueryChange:
    """Say what one committed step changes in one query."""

    query: int
    positions: Mapping[PartitionId, int]
    watermarks: Watermarks
    fired: Mapping[int, int]  # window start -> panes emitted so far
    windows_gone_until_ms: int | None  # windows that start here or earlier are over
    slices_gone: tuple[int, ...]
    added: Mapping[int, pa.Table]  # slice -> rows for the driver to keep
    blocks: Mapping[int, tuple[Block, ...]]  # slice -> rows kept in files
    counted: Counters
    stages: tuple[StageChange, ...] = ()  # of a chain of windows, from the second on
    keyed: KeyedChange | None = None  # of windows that each key has for itself
    lateness: LatenessChange | None = None  # None: nothing is to be remembered
    sampling: dict[str, Any] | None = None  # what a query that samples has learned since
    slack_ms: Mapping[int, int] = field(default_factory=dict)  # input -> what K-Slack waits now


@dataclass(frozen=True)
class StageState:
    """Hold a further stage's durable state: the newest rows of each window of the stage before."""

    panes: Mapping[int, int] = field(default_factory=dict)
    gone_until_ms: int | None = None  # windows that start here or earlier are over
    sources: Mapping[int, pa.Table | None] = field(default_factory=dict)  # None: without rows

    @property
    def rows_held(self) -> int:
        """Count the rows in the driver."""
        return sum(rows.num_rows for rows in self.sources.values() if rows is not None)

    def after(self, change: StageChange) -> StageState:
        """Return the state that a committed step leaves."""
        until_ms = change.windows_gone_until_ms
        panes = {**self.panes, **change.fired}
        if until_ms is not None:
            panes = {start: n for start, n in panes.items() if start > until_ms}
        sources = {**self.sources, **change.replaced}
        for start in change.sources_gone:
            sources.pop(start, None)
        return StageState(panes, until_ms, sources)


@dataclass
class QueryState:
    """Hold everything about a query that must survive a crash."""

    number: int
    name: str
    fingerprint: dict[str, Any]
    positions: dict[PartitionId, int] = field(default_factory=dict)
    watermarks: Watermarks = field(default_factory=Watermarks)
    panes: dict[int, int] = field(default_factory=dict)
    gone_until_ms: int | None = None  # windows that start here or earlier are over
    slices: dict[int, SliceState] = field(default_factory=dict)
    pending: tuple[PlannedRange, ...] | None = None
    pending_step: int | None = None  # the step it was planned for last; None: nobody knows
    pending_amends: bool = False  # the pending plan amends windows that are due for it
    counters: Counters = field(default_factory=Counters)
    quarantined: str | None = None
    source_states: list[Any] = field(default_factory=list)
    stages: tuple[StageState, ...] = ()  # of a chain of windows, from the second on
    keyed: KeyedState = field(default_factory=KeyedState)
    lateness: LatenessState = field(default_factory=LatenessState)
    wish: LatenessWish | None = None  # of late events
    next_wish: LatenessWish | None = None  # once the pending plan is done, as it was planned
    sampling: dict[str, Any] | None = None  # what a query that samples has learned so far
    slack_ms: Mapping[int, int] = field(default_factory=dict)  # input -> what K-Slack waits
    first_pane: int = 0  # of each window; above all that the query had before it was reset

    @classmethod
    def introduced(
        cls, number: int, name: str, fingerprint: dict[str, Any], first_pane: int = 0
    ) -> QueryState:
        """Make the state of a query that has read nothing."""
        keyed = KeyedState(emissions=first_pane)
        return cls(number, name, fingerprint, keyed=keyed, first_pane=first_pane)

    @property
    def watermark_ms(self) -> int | None:
        """Return how far event time has come."""
        return self.watermarks.current_ms

    @property
    def records_read(self) -> int:
        """Count the records read in all."""
        return self.counters.records

    @property
    def rows_held(self) -> int:
        """Count the state rows in the driver."""
        held = sum(state.rows_held for state in list(self.slices.values()))
        return held + self.keyed.rows_held + sum(stage.rows_held for stage in self.stages)

    def stage(self, index: int) -> StageState:
        """Return the state of a further stage, counted from 0."""
        return self.stages[index] if index < len(self.stages) else StageState()

    def apply(self, change: QueryChange) -> tuple[Block, ...]:
        """Take in a committed step; return the files that nothing needs any more."""
        # Replaced, not changed: other threads may be reading it.
        self.positions = {**self.positions, **change.positions}
        self.watermarks = change.watermarks
        self.panes.update(change.fired)
        if change.lateness is not None:
            self.lateness = self.lateness.after(change.lateness)
        self.gone_until_ms = until_ms = change.windows_gone_until_ms
        if until_ms is not None:
            kept = self.lateness.waiting
            self.panes = {w: n for w, n in self.panes.items() if w > until_ms or w in kept}
        for start, table in change.added.items():
            self.slices[start] = self.slices.get(start, SliceState()).plus(chunk=table)
        for start, blocks in change.blocks.items():
            self.slices[start] = self.slices.get(start, SliceState()).plus(blocks=blocks)
        gone = [self.slices.pop(start, SliceState()) for start in change.slices_gone]
        self.stages = tuple(
            self.stage(index).after(stage) for index, stage in enumerate(change.stages)
        )
        if change.keyed is not None:
            self.keyed = self.keyed.after(change.keyed)
        if change.sampling is not None:
            self.sampling = change.sampling
        if change.slack_ms:
            self.slack_ms = dict(change.slack_ms)
        self.counters = self.counters.plus(change.counted)
        self.pending, self.pending_step, self.pending_amends = None, None, False
        self.wish, self.next_wish = self.next_wish or self.wish, None
        return tuple(block for state in gone for block in state.blocks)

    def waits_for(self, step: int) -> bool:
        """Tell whether the pending plan is that of a step, as far as anybody knows."""
        return self.pending is not None and self.pending_step in (None, step)

    def move(self, move: Move) -> tuple[Block, ...]:
        """Take in that rows changed their place; return the files that nothing needs any more."""
        held = self.slices.get(move.start_ms)
        if held is None:  # the slice was forgotten meanwhile
            return move.blocks
        self.slices[move.start_ms] = held.moved(move)
        return tuple(block for block in held.blocks if block.path in move.merged)

    def captured(self) -> QueryState:
        """Return a copy that later changes leave alone (tables are shared; they never change)."""
        return replace(
            self,
            positions=dict(self.positions),
            panes=dict(self.panes),
            slices=dict(self.slices),
            source_states=list(self.source_states),
        )
