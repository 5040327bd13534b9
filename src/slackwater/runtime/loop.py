"""The loop: snapshot, decide, plan, run; and what to do when a step fails."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from slackwater.errors import JournalError, UnavailableError
from slackwater.runtime.auditing import Auditor
from slackwater.runtime.clerk import DeadLetterClerk
from slackwater.runtime.clock import Clock
from slackwater.runtime.deployed import DeployedQuery
from slackwater.runtime.executor import StepExecutor
from slackwater.runtime.fleet import Fleet
from slackwater.runtime.ledger import Ledger
from slackwater.runtime.live import LiveInputs
from slackwater.runtime.memory_gauge import MemoryGauge
from slackwater.runtime.planning import PlannedStep, plan_query, step_size
from slackwater.runtime.reports import InputReport, Observer, StepReport
from slackwater.runtime.tiers import Tiers
from slackwater.runtime.waiting import WaitingSteps
from slackwater.scheduling.amendments import with_amendments
from slackwater.scheduling.choosing import fair_shares
from slackwater.scheduling.slot_use import SlotUse
from slackwater.scheduling.snapshot import Decision, FleetSnapshot, Policy, StepChoice
from slackwater.spark.failures import explain, few

logger = logging.getLogger("slackwater")

CYCLE_MS = 20.0  # how often to look again where no source can say when something will happen
RESTING_MS = 100.0  # how often to look whether to stop, while every slot is taken
TRIES = 3  # of a query's step before the query is stopped; the last one is without others
FILING_MS = 1_000.0  # how often dead letters are filed


@dataclass(frozen=True)
class _Running:
    step: PlannedStep
    slot: int
    future: Future[StepReport]


class Loop:
    """Keep the slots busy with what the policy chooses."""

    def __init__(
        self,
        *,
        fleet: Fleet,
        ledger: Ledger,
        executor: StepExecutor,
        clerk: DeadLetterClerk | None,
        auditor: Auditor,
        policy: Policy,
        clock: Clock,
        slots: int,
        budget_ms: float,
        memory: MemoryGauge,
        live: LiveInputs,
        tiers: Tiers | None = None,
    ) -> None:
        """Bring together what the loop drives."""
        self._fleet = fleet
        self._ledger = ledger
        self._executor = executor
        self._clerk = clerk
        self._auditor = auditor
        self._policy = policy
        self._clock = clock
        self._slots = slots
        self._budget_ms = budget_ms
        self._memory = memory
        self._live = live
        self._tiers = tiers
        self._use = SlotUse(slots)
        self._pool = ThreadPoolExecutor(slots, thread_name_prefix="slackwater-slot")
        self._keeper = ThreadPoolExecutor(1, thread_name_prefix="slackwater-keeper")
        self._signal = threading.Event()
        self._stopping = threading.Event()
        self._free = list(range(slots))
        self._running: list[_Running] = []
        self._again: deque[PlannedStep] = deque()
        self.waiting = WaitingSteps()
        self._chores: list[Future[object]] = []
        self._filed_ms = 0.0
        self._quiet_until_ms = -math.inf
        self.observers: list[Observer] = []
        self.decide_ms: deque[float] = deque(maxlen=10_000)

    def run(self, *, seconds: float | None, until: Callable[[], bool] | None) -> None:
        """Go round until there is a reason to stop."""
        self._stopping.clear()
        end_ms = None if seconds is None else self._clock.now_ms() + seconds * 1_000
        try:
            while not self._step(end_ms, until):
                pass
        except KeyboardInterrupt:
            logger.info("stopping: the running steps are finished or abandoned")
            self._stopping.set()
        finally:
            self._settle()
        if not self._stopping.is_set():
            self._file_all()
            if self._auditor.look(self._fleet.queries):
                self._auditor.work()

    def stop(self) -> None:
        """Make the loop end soon."""
        self._stopping.set()
        self._signal.set()

    def wake(self) -> None:
        """Make the loop look again now."""
        self._signal.set()

    def close(self) -> None:
        """End the threads."""
        self._stopping.set()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._keeper.shutdown(wait=True)
        self._live.close()

    def _step(self, end_ms: float | None, until: Callable[[], bool] | None) -> bool:
        """Go round once, unless there is a reason to stop; a broken source stops its query only."""
        try:
            if self._finished(end_ms, until):
                return True
            self._turn(end_ms)
        except JournalError:
            raise
        except Exception:
            broken = self._fleet.unanswered(self._clock.now_ms())
            if not broken:
                raise
            for query, error in broken:
                self._quarantine(query, error, broken=True)
        return False

    def _finished(self, end_ms: float | None, until: Callable[[], bool] | None) -> bool:
        now_ms = self._clock.now_ms()
        if self._stopping.is_set() or (end_ms is not None and now_ms >= end_ms):
            return True
        if until is not None and until():
            return True
        if self._running or self._again or self.waiting:
            return False
        return all(
            query.ended(now_ms) for query in self._fleet.queries if query.state.quarantined is None
        )

    def _turn(self, end_ms: float | None) -> None:
        self._signal.clear()
        now_ms = self._clock.now_ms()
        self._use.passed(now_ms, sum(running.step.serves_due for running in self._running))
        self._reap()
        self._again.extend(self.waiting.due(now_ms))
        while self._again and self._free:
            self._submit(self._again.popleft())
        next_ms = self._fill_slots(now_ms)
        self._live.turn(now_ms, self._keeper.submit)
        self._memory.look(now_ms, self._keeper.submit)
        self._housekeeping(now_ms)
        next_ms = min(next_ms, self.waiting.next_ms)
        if end_ms is not None:
            next_ms = min(next_ms, end_ms)
        self._clock.wait(self._signal, next_ms, busy=bool(self._running))

    def _fill_slots(self, now_ms: float) -> float:
        """Start what the policy chooses, if there is a slot; return when to look again.

        Most times round nothing has happened that the policy would look at: then it is not asked.
        """
        wake_ms = math.inf
        if self._free and (self._fleet.may_be_due(now_ms) or now_ms >= self._quiet_until_ms):
            decision = self._decide(now_ms)
            self._quiet_until_ms = decision.quiet_until_ms
            wake_ms = decision.wake_ms or math.inf
        if not self._free:
            return now_ms + RESTING_MS
        if self._fleet.may_be_due(now_ms) or now_ms >= self._quiet_until_ms:
            wake_ms = min(wake_ms, self._fleet.next_arrival_ms(now_ms, CYCLE_MS))
        else:
            wake_ms = min(wake_ms, self._quiet_until_ms)
        next_ms = min(wake_ms, self._fleet.next_due_ms(now_ms))
        return next_ms if math.isfinite(next_ms) else now_ms + CYCLE_MS

    def _decide(self, now_ms: float) -> Decision:
        """Ask the policy, and start what it chooses."""
        started = time.thread_time()
        fleet = self._fleet.snapshot(
            now_ms,
            len(self._free),
            self._budget_ms,
            busy_until_ms=tuple(running.step.expected_ms for running in self._running),
            utilisation=self._use.share,
            memory=self._memory.facts(self._held_bytes()),
        )
        decision = with_amendments(fleet, self._policy.decide(fleet))
        self.decide_ms.append((time.thread_time() - started) * 1_000)
        for choice, parallelism in self._widened(fleet, decision.steps):
            self._start(choice, parallelism, fleet)
        return decision

    def _widened(
        self, fleet: FleetSnapshot, steps: tuple[StepChoice, ...]
    ) -> list[tuple[StepChoice, int]]:
        """Let a step with far more to read than its limit use the slots that would stay idle."""
        spare = fleet.free_slots - len(steps)
        if not spare or not steps:
            return [(step, 1) for step in steps]
        queued = [
            sum(fleet.backlog.of([self._fleet.number(query).row for query in step.queries]))
            for step in steps
        ]
        widest = max(range(len(steps)), key=lambda place: queued[place])
        template = self._fleet.number(steps[widest].queries[0]).template.index
        trusted = fleet.templates[template].cost.trusted
        extra = spare if trusted and queued[widest] > 2 * steps[widest].max_events else 0
        return [(step, 1 + (extra if i == widest else 0)) for i, step in enumerate(steps)]

    def _held_bytes(self) -> int:
        """Return what windows hold, and what the steps that read ahead are about to add."""
        coming = sum(
            self._fleet.kept_bytes(running.step.template.index, running.step.events)
            for running in self._running
            if not running.step.serves_due
        )
        return self._fleet.state_bytes + int(coming)

    def _start(self, choice: StepChoice, parallelism: int, fleet: FleetSnapshot) -> None:
        now_ms = fleet.now_ms
        queries = [self._fleet.number(number) for number in choice.queries]
        most, parallelism = step_size(queries, choice.max_events, parallelism)
        shares = fair_shares(fleet.backlog.of([query.row for query in queries]), most)
        plans, served = {}, []
        for query, share in zip(queries, shares, strict=True):
            try:
                plans[query.number] = plan_query(query, now_ms, max(1, share))
                served.append(query)
            except Exception as error:
                self._quarantine(query, error, broken=True)
        if not served:
            return
        # What was planned before a crash is done exactly as planned then.
        amending = frozenset(
            query.number
            for query in served
            if (choice.amends if query.state.pending is None else query.state.pending_amends)
        )
        number, position = self._ledger.plan(plans, amending)
        for query in served:
            self._fleet.started(query, number)
        template = served[0].template
        step = PlannedStep(
            number,
            position,
            template,
            tuple(served),
            plans,
            now_ms,
            parallelism=parallelism,
            amending=amending,
        )
        serves_due = bool(fleet.due[[query.row for query in served]].any())
        cost = fleet.templates[template.index].cost
        expected_ms = now_ms + cost.duration_ms(
            step.events // parallelism, len(served), closes=serves_due
        )
        self._submit(replace(step, expected_ms=expected_ms, serves_due=serves_due))

    def _submit(self, step: PlannedStep) -> None:
        slot = self._free.pop()
        future = self._pool.submit(self._executor.execute, step, slot)
        self._running.append(_Running(step, slot, future))
        future.add_done_callback(lambda _: self._signal.set())

    def _reap(self) -> None:
        """Take in the steps that have ended."""
        done = [running for running in self._running if running.future.done()]
        for running in done:
            self._running.remove(running)
            self._free.append(running.slot)
            error = running.future.exception()
            if error is None:
                self._committed(running.step, running.future.result())
            else:
                self._failed(running.step, error)

    def _committed(self, step: PlannedStep, report: StepReport) -> None:
        if step.parallelism == 1 and step.events:
            self._fleet.learn(step.template.index, report)
        now_ms = self._clock.now_ms()
        self.waiting.over(step, now_ms)
        inputs: dict[int, list[InputReport]] = {}
        for seen in report.inputs:
            inputs.setdefault(seen.query, []).append(seen)
        for query in step.queries:
            try:
                self._fleet.swept(query, inputs.get(query.number, ()))
                self._fleet.refresh(query, now_ms, retry_ms=CYCLE_MS)
                self._fleet.freed(query)
            except Exception as error:
                self._quarantine(query, error, broken=True)
        for observer in self.observers:
            try:
                observer.step_committed(report)
            except Exception:  # a bystander stops nobody
                logger.exception("an observer of committed steps failed")

    def _failed(self, step: PlannedStep, error: BaseException) -> None:
        """Try again, then each query alone; stop the one that fails for the third time.

        Where something is out of reach, try for as long as it takes.
        """
        if isinstance(error, JournalError):
            raise error
        if self._stopping.is_set():
            self._again.append(step)  # for the next run, if there is one
            return
        if isinstance(error, UnavailableError):
            self.waiting.put(step, error, self._clock.now_ms())
            return
        names = few([query.state.name for query in step.queries])
        logger.debug("a step of %s failed", names, exc_info=error)
        failures = step.failures + 1
        if failures >= TRIES and len(step.queries) == 1:
            self._quarantine(step.queries[0], error)
        elif failures >= TRIES - 1 and len(step.queries) > 1:
            logger.warning("a step of %s failed again: each is tried alone", names)
            for query in step.queries:
                plans = {query.number: step.plans[query.number]}
                alone = replace(step, queries=(query,), plans=plans, parallelism=1)
                self._again.append(replace(alone, failures=failures))
        else:
            logger.warning("a step of %s failed and is tried again: %s", names, explain(error))
            self._again.append(replace(step, failures=failures))

    def _quarantine(
        self, query: DeployedQuery, error: BaseException, *, broken: bool = False
    ) -> None:
        reason = explain(error)
        logger.error("query %s is quarantined: %s", query.state.name, reason)
        self._fleet.stopped(query, broken=broken)
        self._ledger.quarantine(query.number, reason)

    def _housekeeping(self, now_ms: float) -> None:
        """Start what can be done beside the steps: snapshots, dead letters."""
        if self._tiers is not None:
            self._tiers.look(now_ms)
        for chore in [chore for chore in self._chores if chore.done()]:
            self._chores.remove(chore)
            error = chore.exception()
            if isinstance(error, JournalError):
                raise error
            if error is not None:
                logger.warning("housekeeping failed and is tried again: %s", explain(error))
        if self._chores:
            return
        if self._ledger.snapshot_due:
            install = self._ledger.begin_snapshot(self._source_states())
            self._chores.append(self._keeper.submit(install))
        elif self._clerk is not None and now_ms >= self._filed_ms + FILING_MS:
            self._filed_ms = now_ms
            if self._ledger.has_duties:
                self._chores.append(self._keeper.submit(self._clerk.work))
        elif self._auditor.look(self._fleet.queries):
            self._chores.append(self._keeper.submit(self._auditor.work))

    def _source_states(self) -> dict[int, list[object]]:
        return {
            query.number: [reader.state() for reader in query.readers]
            for query in self._fleet.queries
        }

    def _settle(self) -> None:
        """Wait for what is running; a step that fails now stays planned for the next run."""
        while self._running:
            for running in self._running:
                running.future.exception()
            self._reap()
            while self._again and self._free and not self._stopping.is_set():
                self._submit(self._again.popleft())
        for chore in self._chores:
            chore.exception()
        self._chores.clear()

    def _file_all(self) -> None:
        """File the remaining dead letters; what cannot be filed now stays journaled as a duty."""
        try:
            while self._clerk is not None and self._clerk.work():
                pass
        except JournalError:
            raise
        except Exception as error:
            logger.error(
                "dead letters could not be filed and wait in the journal: %s", explain(error)
            )
