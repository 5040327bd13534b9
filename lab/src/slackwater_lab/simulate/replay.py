"""Discrete-event replay: the policies as they are, over costs instead of Spark.

The loop is the runtime's: look at everything, decide, plan what has arrived, and commit when the
step's duration has passed. Only Spark, the sources and the clock are replaced by arithmetic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from slackwater.progress.coverage import Coverage, CoverageCounter
from slackwater.progress.estimators import QuantileEstimator
from slackwater.progress.sweeps import SweepForecast
from slackwater.scheduling.backlog import CountedBacklog
from slackwater.scheduling.choosing import fair_shares
from slackwater.scheduling.slot_use import SlotUse
from slackwater.scheduling.snapshot import (
    UNKNOWN_DEVIATION_MS,
    FleetSnapshot,
    MemoryFacts,
    Policy,
    StepChoice,
    TemplateFacts,
)
from slackwater_lab.simulate.model import Scenario, SimulatedQuery

_NEVER = float("inf")
_DRAWN = 1 << 16
_LOOK_MS = 5.0  # how soon to look again where input is yet to come


@dataclass
class Outcome:
    """Hold what came of a replay, after its warm-up."""

    propagations_ms: list[float] = field(default_factory=list)
    latencies_ms: list[float] = field(default_factory=list)
    steps: int = 0
    served: int = 0
    events: float = 0.0
    busy_ms: float = 0.0
    unfired: int = 0  # windows that were due and never came out
    peak_bytes: int = 0
    span_ms: float = 0.0
    coverage: Coverage = field(default_factory=Coverage)

    @property
    def mean_ms(self) -> float:
        """Return the mean propagation."""
        return float(np.mean(self.propagations_ms)) if self.propagations_ms else _NEVER

    def percentile_ms(self, percent: float) -> float:
        """Return a percentile of the propagation."""
        found = self.propagations_ms
        return float(np.percentile(found, percent)) if found else _NEVER


@dataclass
class _Running:
    ends_ms: float
    expected_ms: float
    rows: list[int]
    read_until: list[float]
    watermarks: list[int | None]
    serves_due: bool
    kept_bytes: float


class Replay:
    """Run one policy over one scenario."""

    def __init__(self, scenario: Scenario, policy: Policy) -> None:
        """Start at time zero, with nothing read."""
        self._scenario, self._policy = scenario, policy
        queries = scenario.queries
        size = len(queries)
        self.now_ms = 0.0
        self._template = np.array([query.template for query in queries], dtype=np.int64)
        self._rate = np.array([query.rate_per_ms for query in queries])
        self._start = np.array([float(query.start_ms) for query in queries])
        self._read_until = self._start.copy()
        self._deadline = np.array([q.grid.next_end(q.start_ms) for q in queries], dtype=np.int64)
        self._sweep_at = np.zeros(size)
        self._expected = np.zeros(size)
        self._deviation = np.zeros(size)
        self._ready = np.ones(size, dtype=np.bool_)
        self._last_step = np.full(size, -1, dtype=np.int64)
        self._estimators = [QuantileEstimator(query.generation) for query in queries]
        self._expected_sweep: list[SweepForecast | None] = [None for _ in queries]
        self._state_rows = np.zeros(size)
        self._running: list[_Running] = []
        self._factors, self._pauses = scenario.noise.durations(scenario.seed, _DRAWN)
        self._facts = tuple(
            TemplateFacts(
                cost,
                scenario.fusable,
                scenario.selectivity,
                scenario.selectivity * max(query.bytes_per_row for query in queries),
            )
            for cost in scenario.costs
        )
        self._bytes = np.array([query.bytes_per_row for query in queries])
        self._freed_share = np.array(
            [min(1.0, query.grid.slide_ms / query.grid.size_ms) for query in queries]
        )
        self._tick = 0
        self._coverage = CoverageCounter()
        self._use = SlotUse(scenario.slots)
        self.waited_ms = 0.0  # of all windows that are due and have not come out, together
        self.outcome = Outcome(span_ms=scenario.seconds * 1_000)
        for row in range(size):
            self._forecast(row)

    def run(self) -> Outcome:
        """Replay to the end of the scenario."""
        end_ms = (self._scenario.warmup_s + self._scenario.seconds) * 1_000
        self.run_until(end_ms)
        begin_ms = self._scenario.warmup_s * 1_000
        due = (self._sweep_at >= begin_ms) & (self._sweep_at < end_ms - 5_000)
        self.outcome.unfired = int(due.sum())
        self.outcome.coverage = self._coverage.coverage
        return self.outcome

    def run_until(self, end_ms: float) -> None:
        """Go on until a moment."""
        while self.now_ms < end_ms:
            self._reap()
            self._advance(self._decide(), end_ms)

    def _advance(self, wake_ms: float | None, end_ms: float) -> None:
        """Let time pass until something happens."""
        ends = [running.ends_ms for running in self._running]
        coming = self._sweep_at[self._sweep_at > self.now_ms]
        moments = [*ends, end_ms, float(coming.min()) if coming.size else _NEVER]
        if wake_ms is not None:
            moments.append(wake_ms)
        if self._scenario.buffer_ms and len(ends) < self._scenario.slots:
            moments.append(self._handed_over_ms() + self._scenario.buffer_ms)
        elif not ends and not self._queued().all():
            moments.append(self.now_ms + _LOOK_MS)
        passed_ms = max(min(moments) - self.now_ms, 1e-6)
        self.waited_ms += passed_ms * int((self._sweep_at <= self.now_ms).sum())
        self.now_ms += passed_ms
        due = sum(running.serves_due for running in self._running)
        self._use.passed(self.now_ms, due)

    def _handed_over_ms(self) -> float:
        """Return up to when input can be read by now."""
        buffer_ms = self._scenario.buffer_ms
        return self.now_ms // buffer_ms * buffer_ms if buffer_ms else self.now_ms

    def _queued(self) -> np.ndarray:
        arrived = np.maximum(self._handed_over_ms(), self._start) - self._read_until
        queued: np.ndarray = np.floor(np.maximum(arrived, 0.0) * self._rate).astype(np.int64)
        return queued

    def _decide(self) -> float | None:
        free = self._scenario.slots - len(self._running)
        if free == 0:
            return None
        snapshot = self.snapshot(free)
        decision = self._policy.decide(snapshot)
        for choice in decision.steps:
            self._begin(choice, snapshot)
        return decision.wake_ms

    def snapshot(self, free_slots: int) -> FleetSnapshot:
        """Take a look as the runtime does."""
        queued = self._queued()
        due = self._sweep_at <= self.now_ms
        state_bytes = (self._state_rows * self._bytes).astype(np.int64)
        return FleetSnapshot(
            now_ms=self.now_ms,
            free_slots=free_slots,
            budget_ms=self._scenario.budget_ms,
            query=np.arange(len(queued), dtype=np.int64),
            template=self._template,
            backlog=CountedBacklog(queued, np.where(queued > 0, self._read_until, _NEVER)),
            deadline_ms=self._deadline.copy(),
            sweep_ms=np.where(due, self._sweep_at, self._expected),
            sweep_deviation_ms=self._deviation.copy(),
            due=due,
            ready=self._ready.copy(),
            last_step=self._last_step.copy(),
            state_bytes=state_bytes,
            freed_bytes=(state_bytes * self._freed_share).astype(np.int64),
            templates=self._facts,
            busy_until_ms=tuple(running.expected_ms for running in self._running),
            utilisation=self._use.share,
            memory=MemoryFacts(
                int(state_bytes.sum()) + self._coming_bytes(), self._scenario.memory_budget_bytes
            ),
        )

    def _coming_bytes(self) -> int:
        """Return how much state the steps that read ahead are about to add."""
        return int(sum(running.kept_bytes for running in self._running))

    def _begin(self, choice: StepChoice, snapshot: FleetSnapshot) -> None:
        rows = list(choice.queries)
        shares = fair_shares([int(snapshot.queued[row]) for row in rows], choice.max_events)
        until, watermarks = [], []
        for row, share in zip(rows, shares, strict=True):
            whole = share >= snapshot.queued[row]
            part = self._read_until[row] + share / self._rate[row]
            reached = self._handed_over_ms() if whole else part
            reached = max(reached, self._read_until[row])
            until.append(reached)
            watermarks.append(self._scenario.queries[row].watermarks.at(reached))
            self._ready[row] = False
            self._last_step[row] = self._tick
        events = float(sum(shares))
        cost = self._scenario.costs[int(self._template[rows[0]])]
        place = self._tick % _DRAWN
        expected_ms = cost.duration_ms(int(events), len(rows))
        took_ms = expected_ms * self._factors[place] + self._pauses[place]
        self._tick += 1
        serves_due = bool(snapshot.due[rows].any())
        per_event = self._facts[int(self._template[rows[0]])].bytes_per_event
        self._running.append(
            _Running(
                ends_ms=self.now_ms + took_ms,
                expected_ms=self.now_ms + expected_ms,
                rows=rows,
                read_until=until,
                watermarks=watermarks,
                serves_due=serves_due,
                kept_bytes=0.0 if serves_due else events * per_event,
            )
        )
        if self._counts(self.now_ms):
            self.outcome.steps += 1
            self.outcome.served += len(rows)
            self.outcome.events += events
            self.outcome.busy_ms += took_ms

    def _reap(self) -> None:
        done = [running for running in self._running if running.ends_ms <= self.now_ms]
        for running in done:
            self._running.remove(running)
            for row, until, watermark in zip(
                running.rows, running.read_until, running.watermarks, strict=True
            ):
                read = (until - self._read_until[row]) * self._rate[row]
                self._state_rows[row] += read * self._scenario.selectivity
                self._read_until[row] = until
                self._ready[row] = True
                self._close(row, watermark, running.ends_ms)
        held = int((self._state_rows * self._bytes).sum())
        if self._counts(self.now_ms):
            self.outcome.peak_bytes = max(self.outcome.peak_bytes, held)

    def _close(self, row: int, watermark: int | None, ended_ms: float) -> None:
        query = self._scenario.queries[row]
        while watermark is not None and self._deadline[row] <= watermark:
            swept_ms = self._sweep_at[row]
            if self._counts(swept_ms):
                self.outcome.propagations_ms.append(ended_ms - swept_ms)
                self.outcome.latencies_ms.append(ended_ms - float(self._deadline[row]))
            self._coverage.record(self._expected_sweep[row], swept_ms)
            self._estimators[row].observe(int(self._deadline[row]), swept_ms)
            self._state_rows[row] *= 1.0 - self._freed_share[row]
            self._deadline[row] += query.grid.slide_ms
            self._forecast(row)

    def _forecast(self, row: int) -> None:
        query: SimulatedQuery = self._scenario.queries[row]
        deadline_ms = int(self._deadline[row])
        swept_ms, buffer_ms = (
            query.watermarks.sweep_arrival_ms(deadline_ms),
            self._scenario.buffer_ms,
        )
        self._sweep_at[row] = math.ceil(swept_ms / buffer_ms) * buffer_ms if buffer_ms else swept_ms
        forecast = self._estimators[row].forecast(deadline_ms)
        self._expected_sweep[row] = forecast
        self._expected[row] = deadline_ms if forecast is None else forecast.mean_ms
        self._deviation[row] = UNKNOWN_DEVIATION_MS if forecast is None else forecast.deviation_ms

    def _counts(self, moment_ms: float) -> bool:
        begin_ms = self._scenario.warmup_s * 1_000
        return begin_ms <= moment_ms < begin_ms + self.outcome.span_ms


def replay(scenario: Scenario, policy: Policy) -> Outcome:
    """Run one policy over one scenario to its end."""
    return Replay(scenario, policy).run()
