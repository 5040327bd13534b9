"""The loop: snapshot, decide, plan, run; and what to do when a step fails."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Final

from slackwater.app.durations import show_ms
from slackwater.errors import (
    JournalError,
    QuarantinedError,
    SparkLostError,
    StepOverdueError,
    UnavailableError,
)
from slackwater.runtime.auditing import Auditor
from slackwater.runtime.clerk import DeadLetterClerk
from slackwater.runtime.clock import Clock, ClockWatch
from slackwater.runtime.deployed import DeployedQuery
from slackwater.runtime.executor import StepExecutor
from slackwater.runtime.fleet import Fleet
from slackwater.runtime.inbox import Inbox
from slackwater.runtime.ledger import Ledger
from slackwater.runtime.live import LiveInputs
from slackwater.runtime.memory_gauge import MemoryGauge
from slackwater.runtime.overdue import OverdueSteps, RunningStep
from slackwater.runtime.planning import PlannedStep, plan_query, step_size
from slackwater.runtime.reports import InputReport, Observer, StepReport
from slackwater.runtime.slots import Slots, Worker
from slackwater.runtime.tiers import Tiers
from slackwater.runtime.waiting import WaitingSteps
from slackwater.scheduling.amendments import with_amendments
from slackwater.scheduling.choosing import fair_shares
from slackwater.scheduling.slot_use import SlotUse
from slackwater.scheduling.snapshot import Decision, FleetSnapshot, Policy, StepChoice
from slackwater.spark.failures import explain, few
from slackwater.spark.jobs import StepJobs

logger = logging.getLogger("slackwater")

CYCLE_MS = 20.0  # how often to look again where no source can say when something will happen
RESTING_MS = 100.0  # how often to look whether to stop, while every slot is taken
TRIES = 3  # of a query's step before the query is stopped; the last one is without others
FILING_MS = 1_000.0  # how often dead letters are filed
_KEEPER: Final = -1  # its place among the slots
_LOOK_S: Final = 0.1  # how often to look whether what is waited for at the end is over
_MOST_NAMED: Final = 3  # quarantined queries in a message


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
        step_limit_ms: float,
        stop_limit_ms: float,
        memory: MemoryGauge,
        live: LiveInputs,
        inbox: Inbox,
        jobs: StepJobs,
        tiers: Tiers | None = None,
    ) -> None:
        """Bring together what the loop drives.

        `step_limit_ms` is how long a step may take, `stop_limit_ms` how long to wait at the end for
        what is running.
        """
        self._fleet = fleet
        self._ledger = ledger
        self._executor = executor
        self._clerk = clerk
        self._auditor = auditor
        self._policy = policy
        self._clock = clock
        self._budget_ms = budget_ms
        self._memory = memory
        self._live = live
        self._tiers = tiers
        self._use = SlotUse(slots)
        self._jobs = jobs
        self._slots = Slots(slots, jobs.begin)
        self._keeper = Worker("slackwater-keeper", lambda: jobs.begin(_KEEPER))
        self._overdue = OverdueSteps(step_limit_ms, jobs.cancel, self._slots.place)
        self._stop_limit_s = stop_limit_ms / 1_000
        self._clock_watch = ClockWatch(clock)
        self._signal = threading.Event()
        self._stopping = threading.Event()
        self._inbox = inbox
        inbox.wake = self._signal.set
        self._running: list[RunningStep] = []
        self._again: deque[PlannedStep] = deque()
        self.waiting = WaitingSteps()
        self._chores: list[Future[object]] = []
        self._filed_ms = -math.inf
        self._quiet_until_ms = -math.inf
        self._ended = False  # the last run: by itself
        self._journal_failure: JournalError | None = None  # as it stopped
        self.observers: list[Observer] = []
        self.decide_ms: deque[float] = deque(maxlen=10_000)

    def run(self, *, seconds: float | None, until: Callable[[], bool] | None) -> None:
        """Go round until there is a reason to stop; raise if it is that queries were quarantined.

        Whoever stops it, by a time or a condition too, is told so in the log only.
        """
        self._stopping.clear()
        end_ms = None if seconds is None else self._clock.steady_ms() + seconds * 1_000
        self._ended, self._journal_failure = False, None
        try:
            while not self._step(end_ms, until):
                pass
        except KeyboardInterrupt:
            logger.info("stopping: the running steps are finished or abandoned")
            self._stopping.set()
        except BaseException:
            self._stopping.set()  # what is running is finished, and nothing is begun anew
            raise
        finally:
            self._settle()
        if self._journal_failure is not None:
            raise self._journal_failure
        if not self._stopping.is_set():
            self._file_all()
            if self._auditor.look(self._fleet.queries):
                self._auditor.work()
        self._tell_quarantined()

    def stop(self) -> None:
        """Make the loop end soon."""
        self._stopping.set()
        self._signal.set()

    def wake(self) -> None:
        """Make the loop look again now."""
        self._signal.set()

    def reason(self, query: int) -> str | None:
        """Tell what a query waits for, if it does; any thread may ask."""
        return self._overdue.reason(query) or self.waiting.reason(query)

    def close(self) -> bool:
        """End the threads, those that hang excepted; tell whether all have ended."""
        self.stop()
        ended = self._inbox.ended(self._stop_limit_s + self._overdue.grace_ms / 1_000)
        if not ended:
            logger.warning("close(): run() goes on in another thread; it will find all closed")
        self._keeper.end()
        ended &= self._keeper.ended(self._stop_limit_s)
        ended &= self._slots.close(self._stop_limit_s)
        self._live.close()
        return ended

    def _step(self, end_ms: float | None, until: Callable[[], bool] | None) -> bool:
        """Go round once, unless there is a reason to stop; a broken source stops its query only."""
        try:
            if self._finished(end_ms, until):
                return True
            self._turn(end_ms)
        except (JournalError, SparkLostError):
            raise
        except Exception as error:
            self._require_spark(error)
            broken = self._fleet.unanswered(self._clock.now_ms())
            if not broken:
                raise
            for query, error in broken:
                self._quarantine(query, error, broken=True)
        return False

    def _finished(self, end_ms: float | None, until: Callable[[], bool] | None) -> bool:
        if self._stopping.is_set() or (end_ms is not None and self._clock.steady_ms() >= end_ms):
            return True
        if until is not None and until():
            return True
        self._ended = self._all_ended()
        return self._ended

    def _all_ended(self) -> bool:
        """Tell whether nothing can happen any more: all queries have ended, or are quarantined."""
        if self._running or self._again or self.waiting:
            return False
        now_ms = self._clock.now_ms()
        return all(
            query.ended(now_ms) for query in self._fleet.queries if query.state.quarantined is None
        )

    def _tell_quarantined(self) -> None:
        """Say which queries were stopped; raise where a script would take the end for success."""
        stopped = {
            query.state.name: query.state.quarantined
            for query in self._fleet.queries
            if query.state.quarantined is not None
        }
        if not stopped:
            return
        named = [f"{name}: {reason}" for name, reason in list(stopped.items())[:_MOST_NAMED]]
        more = len(stopped) - len(named)
        rest = f" (and {more:,} more, see queries())" if more else ""
        told = (
            f"{len(stopped):,} of {len(self._fleet.queries):,} queries are quarantined: "
            f"{'; '.join(named)}{rest}. Mend what they were stopped for, and resume(name) each"
        )
        if self._ended:
            raise QuarantinedError(told)
        logger.warning("%s", told)

    def _turn(self, end_ms: float | None) -> None:
        self._signal.clear()
        self._inbox.work()
        now_ms, steady_ms = self._clock.now_ms(), self._clock.steady_ms()
        if by_ms := self._clock_watch.set_by_ms(now_ms, steady_ms):
            self._clock_was_set(now_ms, by_ms)
        self._use.passed(steady_ms, sum(running.step.serves_due for running in self._running))
        self._reap()
        for hopeless in self._overdue.look(self._running, steady_ms):
            self._give_up(hopeless)
        self._again.extend(self.waiting.due(steady_ms))
        while self._again and self._slots.free:
            self._submit(self._again.popleft())
        next_ms = self._fill_slots(now_ms)
        self._live.turn(now_ms, steady_ms, self._keeper.submit)
        self._memory.look(steady_ms, self._keeper.submit)
        self._housekeeping(now_ms, steady_ms)
        pause_ms = min(self.waiting.next_ms, self._overdue.next_ms(self._running)) - steady_ms
        if end_ms is not None:
            pause_ms = min(pause_ms, end_ms - steady_ms)
        self._clock.wait(self._signal, min(next_ms, now_ms + pause_ms), busy=bool(self._running))

    def _clock_was_set(self, now_ms: float, by_ms: float) -> None:
        """Look at everything anew: what was expected at some moment is expected at another now."""
        way = "forward" if by_ms > 0 else "back"
        logger.warning("the machine's clock was set %s by %s", way, show_ms(round(abs(by_ms))))
        self._quiet_until_ms = -math.inf
        for query in self._fleet.queries:
            for reader in query.readers:
                reader.clock_set(by_ms)
            if query.sampler is not None:
                query.sampler.clock_set()
            try:
                self._fleet.refresh(query, now_ms)
            except Exception as error:
                if query.state.quarantined is None:
                    self._quarantine(query, error, broken=True)

    def _fill_slots(self, now_ms: float) -> float:
        """Start what the policy chooses, if there is a slot; return when to look again.

        Most times round nothing has happened that the policy would look at: then it is not asked.
        """
        wake_ms = math.inf
        if self._slots.free and (self._fleet.may_be_due(now_ms) or now_ms >= self._quiet_until_ms):
            decision = self._decide(now_ms)
            self._quiet_until_ms = decision.quiet_until_ms
            wake_ms = decision.wake_ms or math.inf
        if not self._slots.free:
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
        steady_ms = self._clock.steady_ms()
        fleet = self._fleet.snapshot(
            now_ms,
            len(self._slots.free),
            self._budget_ms,
            busy_until_ms=tuple(
                now_ms + (running.step.expected_ms - steady_ms) for running in self._running
            ),
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
        now_ms, steady_ms = fleet.now_ms, self._clock.steady_ms()
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
            steady_ms,
            parallelism=parallelism,
            amending=amending,
        )
        serves_due = bool(fleet.due[[query.row for query in served]].any())
        cost = fleet.templates[template.index].cost
        expected_ms = steady_ms + cost.duration_ms(
            step.events // parallelism, len(served), closes=serves_due
        )
        self._submit(replace(step, expected_ms=expected_ms, serves_due=serves_due))

    def _submit(self, step: PlannedStep) -> None:
        slot = self._slots.free.pop()
        future = self._slots.submit(slot, self._executor.execute, step, slot)
        self._running.append(RunningStep(step, slot, future, self._clock.steady_ms()))
        future.add_done_callback(lambda _: self._signal.set())

    def _reap(self) -> None:
        """Take in the steps that have ended."""
        done = [running for running in self._running if running.future.done()]
        for running in done:
            self._running.remove(running)
            self._slots.free.append(running.slot)
            overdue = self._overdue.over(running)
            error = running.future.exception()
            if error is None:
                self._committed(running.step, running.future.result())
            elif overdue is None:
                self._failed(running.step, error)
            else:
                late = StepOverdueError(f"{overdue}: {explain(error)}")
                self._failed(running.step, late)

    def _give_up(self, running: RunningStep) -> None:
        """Leave a step to its thread, which nothing can end; what it still does is not committed.

        Its queries are tried each alone. The one that hangs alone is quarantined.
        """
        step, reason = running.step, self._overdue.over(running)
        self._abandon(running)
        if len(step.queries) == 1:
            self._quarantine(
                step.queries[0],
                StepOverdueError(f"{reason}, and could not be cancelled: its thread is given up"),
            )
            return
        logger.warning("a step of %s is given up: each is tried alone", running.names)
        for query in step.queries:
            plans = {query.number: step.plans[query.number]}
            amending = step.amending & plans.keys()
            number, position = self._ledger.plan(plans, amending)
            alone = replace(step, number=number, position=position, queries=(query,), plans=plans)
            self._again.append(replace(alone, parallelism=1, failures=TRIES - 1, amending=amending))

    def _abandon(self, running: RunningStep) -> None:
        self._running.remove(running)
        self._ledger.abandon(running.step.number, running.step.plans)
        self._slots.give_up(running.slot)

    def _committed(self, step: PlannedStep, report: StepReport) -> None:
        if step.parallelism == 1 and step.events:
            self._fleet.learn(step.template.index, report)
        now_ms = self._clock.now_ms()
        self.waiting.over(step, self._clock.steady_ms())
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
        if self._stopping.is_set():
            self._again.append(step)  # for the next run, if there is one
            if isinstance(error, JournalError):
                self._journal_failure = error
            return
        if isinstance(error, JournalError):
            raise error
        try:
            self._require_spark(error)
        except SparkLostError:
            self._again.append(step)
            raise
        if isinstance(error, UnavailableError):
            self.waiting.put(step, error, self._clock.steady_ms())
            return
        names = few([query.state.name for query in step.queries])
        logger.debug("a step of %s failed", names, exc_info=error)
        failures = step.failures + 1
        if isinstance(error, StepOverdueError):
            failures = max(failures, TRIES - 1)  # each try takes as long as a step may
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

    def _require_spark(self, error: BaseException) -> None:
        """Tell what one query did wrong from the loss of Spark, which no query can help."""
        if (reason := self._jobs.gone()) is not None:
            raise SparkLostError(
                f"Spark is gone: {reason}. Nothing is lost, and no query is stopped for it: start "
                "the process again, and all go on from the journal"
            ) from error

    def _quarantine(
        self, query: DeployedQuery, error: BaseException, *, broken: bool = False
    ) -> None:
        self._require_spark(error)
        reason = explain(error)
        logger.error("query %s is quarantined: %s", query.state.name, reason)
        self._fleet.stopped(query, broken=broken)
        self._ledger.quarantine(query.number, reason)

    def _housekeeping(self, now_ms: float, steady_ms: float) -> None:
        """Start what can be done beside the steps: snapshots, dead letters."""
        if self._tiers is not None:
            self._tiers.look(now_ms, steady_ms)
        for chore in [chore for chore in self._chores if chore.done()]:
            self._chores.remove(chore)
            error = chore.exception()
            if isinstance(error, JournalError):
                raise error
            if error is not None:
                self._require_spark(error)
                logger.warning("housekeeping failed and is tried again: %s", explain(error))
        if self._chores:
            return
        if self._ledger.snapshot_due:
            install = self._ledger.begin_snapshot(self._source_states())
            self._do_beside(install)
        elif self._clerk is not None and steady_ms >= self._filed_ms + FILING_MS:
            self._filed_ms = steady_ms
            if self._ledger.has_duties:
                self._do_beside(self._clerk.work)
        elif self._auditor.look(self._fleet.queries):
            self._do_beside(self._auditor.work)

    def _do_beside(self, act: Callable[[], object]) -> None:
        chore = self._keeper.submit(act)
        chore.add_done_callback(lambda _: self._signal.set())
        self._chores.append(chore)

    def _source_states(self) -> dict[int, list[object]]:
        return {
            query.number: [reader.state() for reader in query.readers]
            for query in self._fleet.queries
        }

    def _settle(self) -> None:
        """Wait for what is running, so long at most; what fails or hangs now stays planned."""
        limit_s, grace_s = self._stop_limit_s, self._overdue.grace_ms / 1_000
        if not self._settled(limit_s):
            for running in self._running:
                where = self._slots.place(running.slot)
                logger.warning(
                    "a step of %s did not end within %.0f s (stop_limit) and is cancelled; it is "
                    "at %s. It is done again when its query runs again",
                    running.names,
                    limit_s,
                    where,
                )
                self._overdue.cancel(running.slot)
            if self._chores:
                logger.warning("housekeeping did not end within %.0f s and is left", limit_s)
                self._overdue.cancel(_KEEPER)
            self._stopping.set()  # nothing is begun anew
            if not self._settled(min(grace_s, limit_s)):
                for running in list(self._running):
                    self._overdue.over(running)
                    self._abandon(running)
                    for query in running.step.queries:
                        self._fleet.refresh(query, self._clock.now_ms())
                        self._fleet.freed(query)

    def _settled(self, limit_s: float) -> bool:
        """Wait until nothing is running, so long at most; tell whether it is so."""
        until_s = time.monotonic() + limit_s
        while True:
            self._signal.clear()
            self._inbox.work()
            self._reap()
            while self._again and self._slots.free and not self._stopping.is_set():
                self._submit(self._again.popleft())
            self._chores = [chore for chore in self._chores if not chore.done()]
            if not self._running and not self._chores:
                return True
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return False
            self._signal.wait(min(left_s, _LOOK_S))

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
