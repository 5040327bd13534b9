"""All deployed queries as columns, so that a snapshot of a thousand takes next to no time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from slackwater.app.watermarks import BoundedLateness
from slackwater.app.windows import KeyedWindows
from slackwater.errors import SlackwaterError
from slackwater.progress.coverage import Coverage
from slackwater.progress.times import END_OF_TIME_MS
from slackwater.runtime.columns import Columns
from slackwater.runtime.deployed import DeployedQuery
from slackwater.runtime.inbox import Inbox
from slackwater.runtime.keyed_state import settled_bytes
from slackwater.runtime.queues import QueueBacklog, Queues
from slackwater.runtime.reports import InputReport, StepReport
from slackwater.runtime.state import Block
from slackwater.scheduling.costs import CostLearner
from slackwater.scheduling.snapshot import (
    UNKNOWN_DEVIATION_MS,
    FleetSnapshot,
    MemoryFacts,
    TemplateFacts,
)

_NEVER = float("inf")
_BACKLOG_MS = 500.0  # input that waits longer than this is a backlog, not what just came in
_PATIENCE_MS = 1_000.0  # how long to wait for event time to pass before looking again
_SELECTIVITY_MEMORY = 0.1  # how much the newest step counts


class Fleet:
    """Keep what policies look at, changed only where something happened."""

    def __init__(
        self,
        *,
        tiered: bool = False,
        copied_bytes: Callable[[Sequence[Block]], int] = lambda _: 0,
        inbox: Inbox | None = None,
    ) -> None:
        """Start without queries; `copied_bytes` tells what memory holds of blocks on storage.

        While `inbox` has an owner, that thread alone may change anything. Others may read
        `queries`, `state_bytes`, and find queries by name or number.
        """
        self._inbox = inbox or Inbox()
        self._tiered = tiered
        self._copied_bytes = copied_bytes
        self.queries: list[DeployedQuery] = []
        self._by_number: dict[int, DeployedQuery] = {}
        self._learners: list[CostLearner] = []
        self._fusable: list[bool] = []
        self._selectivity: list[float] = []
        self._bytes_per_event: list[float] = []
        self._queues = Queues()
        self._broken: set[int] = set()  # rows whose sources cannot be asked
        self._columns = Columns(0)
        self._facts: tuple[TemplateFacts, ...] | None = None
        self._earliest_due_ms: float | None = None

    def add(self, query: DeployedQuery, now_ms: float) -> None:
        """Take in a query; its `row` must be the next one."""
        self._inbox.require_owner()
        self.queries.append(query)
        self._by_number[query.number] = query
        self._columns = self._columns.grown()
        self._queues.register(query)
        while len(self._learners) <= query.template.index:
            self._learners.append(CostLearner())
            self._fusable.append(True)
            self._selectivity.append(1.0)
            self._bytes_per_event.append(0.0)
        self._facts = None
        self._fusable[query.template.index] = query.template.query is None
        self._columns.query[query.row] = query.number
        self._columns.template[query.row] = query.template.index
        self._columns.ready[query.row] = query.state.quarantined is None
        self._columns.last_step[query.row] = -1
        self.refresh(query, now_ms)

    def number(self, number: int) -> DeployedQuery:
        """Find a query by its number."""
        return self._by_number[number]

    def find(self, number: int) -> DeployedQuery | None:
        """Find a query by its number, if it is deployed."""
        return self._by_number.get(number)

    def named(self, name: str) -> DeployedQuery:
        """Return the query of a name."""
        for query in self.queries:
            if query.state.name == name:
                return query
        running = ", ".join(query.state.name for query in self.queries) or "none"
        raise SlackwaterError(f"no query {name!r} is deployed (deployed: {running})")

    def cost_learner(self, template: int) -> CostLearner:
        """Return what learns a template's costs."""
        return self._learners[template]

    def learn(self, template: int, report: StepReport) -> None:
        """Learn from a finished step what the template's steps cost, and what they let through."""
        self._inbox.require_owner()
        closing_ms = report.times.merge + report.times.sink if report.panes else None
        self._learners[template].observe(
            report.events, report.took_ms, closing_ms, queries=len(report.queries)
        )
        change = report.rows / report.events - self._selectivity[template]
        self._selectivity[template] += _SELECTIVITY_MEMORY * change
        change = report.row_bytes / report.events - self._bytes_per_event[template]
        self._bytes_per_event[template] += _SELECTIVITY_MEMORY * change
        self._facts = None

    def kept_bytes(self, template: int, events: int) -> float:
        """Return how much state so many events leave behind, read ahead of their windows' end."""
        return events * self._bytes_per_event[template]

    def coverage(self) -> Coverage:
        """Count how often watermarks came in when they were expected, over all queries."""
        return Coverage.total(query.sweeps.coverage.coverage for query in self.queries)

    def cost_error(self) -> float | None:
        """Return by which share predicted durations of steps were off: the median template's."""
        errors = [learner.error_share for learner in self._learners]
        known = [error for error in errors if error is not None]
        return float(np.median(known)) if known else None

    @property
    def state_bytes(self) -> int:
        """Return how much window state all queries hold in the driver."""
        return int(self._columns.state_bytes.sum())

    def started(self, query: DeployedQuery, step: int) -> None:
        """Note that a query is in a step now."""
        columns = self._changing()
        columns.ready[query.row] = False
        columns.last_step[query.row] = step

    def refresh(self, query: DeployedQuery, now_ms: float, *, retry_ms: float = 0.0) -> None:
        """Bring a query's row up to date after its state changed.

        `retry_ms` is how long to leave it alone if nobody can tell when its window will close.
        """
        columns, row = self._changing(), query.row
        columns.read[row] = query.state.records_read
        self._note_amendments(query, now_ms)
        oldest = [
            reader.oldest_arrival_ms(query.positions(index), now_ms)
            for index, reader in enumerate(query.readers)
        ]
        waiting = [arrival for arrival in oldest if arrival is not None]
        columns.oldest_arrival_ms[row] = min(waiting, default=now_ms)
        watermark_ms = query.state.watermark_ms
        if watermark_ms is None:
            watermark_ms = int(min(waiting, default=now_ms)) - 1
        if watermark_ms >= END_OF_TIME_MS:
            columns.deadline_ms[row] = END_OF_TIME_MS
            columns.sweep_ms[row] = _NEVER
            self._weigh(query, END_OF_TIME_MS)
            columns.due_at_ms[row] = now_ms if query.state.pending else _NEVER
            columns.known[row] = True
            return
        deadline_ms = query.next_deadline_ms(watermark_ms)
        columns.deadline_ms[row] = deadline_ms
        self._weigh(query, deadline_ms)
        forecast = query.sweeps.expect(deadline_ms)
        columns.sweep_ms[row] = deadline_ms if forecast is None else forecast.mean_ms
        columns.sweep_deviation_ms[row] = (
            UNKNOWN_DEVIATION_MS if forecast is None else forecast.deviation_ms
        )
        arrival_ms = query.sweep_arrival_ms(deadline_ms)
        early_ms = query.closes_early_at_ms(deadline_ms)
        if early_ms is not None and (arrival_ms is None or early_ms < arrival_ms):
            arrival_ms = early_ms
            columns.sweep_ms[row], columns.sweep_deviation_ms[row] = early_ms, 0.0
        columns.known[row] = arrival_ms is not None
        if query.state.pending is not None:
            columns.due_at_ms[row] = -_NEVER
            columns.known[row] = True
        elif arrival_ms is not None:
            columns.due_at_ms[row] = arrival_ms
        else:
            slack_ms = query.state.slack_ms
            bound_ms = max(
                reader.watermark.bound_ms
                if isinstance(reader.watermark, BoundedLateness)
                else slack_ms.get(index, 0)
                for index, reader in enumerate(query.readers)
            )
            behind = bool(waiting) and min(waiting) < now_ms - _BACKLOG_MS
            if query.state.watermark_ms is None or behind:
                columns.due_at_ms[row] = now_ms + retry_ms
            else:
                # All there was has been read: event time has to pass before the window can close.
                rest_ms = min(max(deadline_ms - watermark_ms, retry_ms), _PATIENCE_MS)
                expected_ms = float(deadline_ms + bound_ms)
                columns.due_at_ms[row] = max(expected_ms, now_ms + (rest_ms if retry_ms else 0))

    def swept(self, query: DeployedQuery, inputs: Sequence[InputReport]) -> None:
        """Learn from a committed step: delays, and when the watermark of its window came in.

        Call it before `refresh`, which looks to the next window.
        """
        newest = {}
        for seen in inputs:
            query.sweeps.delayed(seen.input, seen.delays)
            newest[seen.input] = seen.newest_arrival_ms
        deadline_ms, reached_ms = self._columns.deadline_ms[query.row], query.state.watermark_ms
        if reached_ms is None or not deadline_ms <= reached_ms < END_OF_TIME_MS:
            return
        arrived = {}
        for index, reader in enumerate(query.readers):
            arrival_ms = reader.sweep_arrival_ms(int(deadline_ms))
            arrival_ms = newest.get(index) if arrival_ms is None else arrival_ms
            if arrival_ms is not None:
                arrived[index] = float(arrival_ms)
        if len(arrived) == len(query.readers):
            query.sweeps.swept(int(deadline_ms), arrived)

    def _note_amendments(self, query: DeployedQuery, now_ms: float) -> None:
        """Note when a query's past windows are to be amended, and since when they wait for it."""
        columns, row = self._columns, query.row
        at_ms = min(query.amendments_at_ms(now_ms).values(), default=_NEVER)
        columns.amends_now[row] = at_ms <= now_ms
        if at_ms <= now_ms:
            at_ms = min(at_ms, columns.amend_at_ms[row])
        columns.amend_at_ms[row] = at_ms

    def reweigh(self, query: DeployedQuery) -> None:
        """Note that part of a query's state has left memory, or come back."""
        self._weigh(query, int(self._columns.deadline_ms[query.row]))

    def _weigh(self, query: DeployedQuery, deadline_ms: int) -> None:
        """Note what a query's windows hold in memory, and what closing the next one frees."""
        held = freed = 0
        # With tiers a closed window's state leaves memory, whether late events are awaited or not.
        over_ms = deadline_ms if self._tiered else query.bounds.over_until_ms(deadline_ms)
        gone_ms = over_ms - query.grid.size_ms
        for start_ms, state in list(query.state.slices.items()):
            size = state.bytes_held + self._copied_bytes(state.blocks)
            held += size
            if query.grid.last_window_of(start_ms) <= gone_ms:
                freed += size
        rows, windows = query.state.keyed.rows, query.template.output.windows
        if rows is not None and isinstance(windows, KeyedWindows):
            held += rows.nbytes
            freed += settled_bytes(windows, rows, query.wish.first_ms, deadline_ms)
        for stage in query.state.stages:
            held += sum(rows.nbytes for rows in list(stage.sources.values()) if rows is not None)
        columns = self._changing()
        columns.state_bytes[query.row] = held
        columns.freed_bytes[query.row] = freed

    def freed(self, query: DeployedQuery) -> None:
        """Note that a query may be chosen again, unless it is quarantined."""
        self._changing().ready[query.row] = query.state.quarantined is None
        if query.row in self._broken:
            self._broken.remove(query.row)
            self._queues.register(query)

    def stopped(self, query: DeployedQuery, *, broken: bool = False) -> None:
        """Note that a query may not be chosen; a `broken` one's sources are not asked either."""
        self._changing().ready[query.row] = False
        if broken:
            self._broken.add(query.row)
            self._queues = Queues()
            for other in self.queries:
                if other.row not in self._broken:
                    self._queues.register(other)

    def unanswered(self, now_ms: float) -> list[tuple[DeployedQuery, Exception]]:
        """Find the queries whose sources fail when they are asked, with what they raise."""
        found = []
        for query in self.queries:
            try:
                if query.row not in self._broken:
                    query.ask(now_ms)
            except Exception as error:
                found.append((query, error))
        return found

    def queued(self, now_ms: float) -> NDArray[np.int64]:
        """Count the records waiting for each query."""
        return self._backlog(now_ms).queued

    def _backlog(self, now_ms: float) -> QueueBacklog:
        kept = self._columns.kept()
        return QueueBacklog(self._queues, now_ms, kept["read"], kept["oldest_arrival_ms"])

    def snapshot(
        self,
        now_ms: float,
        free_slots: int,
        budget_ms: float,
        *,
        busy_until_ms: tuple[float, ...] = (),
        utilisation: float = 0.0,
        memory: MemoryFacts | None = None,
    ) -> FleetSnapshot:
        """Take one consistent look at everything."""
        columns = self._columns
        backlog = self._backlog(now_ms)
        passed = due = columns.due_at_ms <= now_ms
        if not columns.known.all():
            waiting = columns.known | (backlog.queued > 0)
            for row in np.flatnonzero(due & ~waiting & columns.ready):
                query = self.queries[row]  # an input at its end still has windows to close
                waiting[row] = query.drained(now_ms) and query.state.watermark_ms != END_OF_TIME_MS
            due = passed & waiting
        amend_at_ms = None
        if (columns.amend_at_ms <= now_ms).any():
            # To amend later than now, there must be something to read by then that moves time on.
            can_amend = columns.amends_now | columns.known | (backlog.queued > 0)
            amend_at_ms = np.where(can_amend, columns.amend_at_ms, _NEVER)
        return FleetSnapshot(
            now_ms=now_ms,
            free_slots=free_slots,
            budget_ms=budget_ms,
            backlog=backlog,
            sweep_ms=np.where(passed, np.maximum(columns.due_at_ms, 0.0), columns.sweep_ms),
            due=due,
            templates=self._template_facts(),
            busy_until_ms=busy_until_ms,
            utilisation=utilisation,
            memory=memory or MemoryFacts(self.state_bytes),
            amend_at_ms=amend_at_ms,
            **columns.shown(),
        )

    def _template_facts(self) -> tuple[TemplateFacts, ...]:
        if self._facts is None:
            self._facts = tuple(
                TemplateFacts(
                    learner.cost,
                    self._fusable[index],
                    self._selectivity[index],
                    self._bytes_per_event[index],
                )
                for index, learner in enumerate(self._learners)
            )
        return self._facts

    def next_arrival_ms(self, now_ms: float, cycle_ms: float) -> float:
        """Return when to look for input: when sources say, or after a cycle where one cannot."""
        return self._queues.next_arrival_ms(now_ms, cycle_ms)

    def may_be_due(self, now_ms: float) -> bool:
        """Tell whether a window may be due, or is to be amended; a snapshot knows for sure."""
        if self._earliest_due_ms is None:
            columns = self._columns
            due_at_ms = np.minimum(columns.due_at_ms, columns.amend_at_ms)[columns.ready]
            self._earliest_due_ms = float(due_at_ms.min()) if due_at_ms.size else _NEVER
        return self._earliest_due_ms <= now_ms

    def next_due_ms(self, now_ms: float) -> float:
        """Return when the next window can close, or is to be amended, as far as can be told."""
        columns = self._columns
        next_ms = np.minimum(
            np.where(columns.due_at_ms > now_ms, columns.due_at_ms, _NEVER),
            np.where(columns.amend_at_ms > now_ms, columns.amend_at_ms, _NEVER),
        )[columns.ready]
        return float(next_ms.min()) if next_ms.size else _NEVER

    def _changing(self) -> Columns:
        """Return the columns, to be changed."""
        self._inbox.require_owner()
        self._earliest_due_ms = None
        self._columns.changed()
        return self._columns
