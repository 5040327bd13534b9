"""Replay windows through monitor, planner and estimators, over streams drawn by numpy.

Hundreds of windows take a second, so that coverage is measured rather than believed. The same
planner runs here and in the runtime; only the records come from arrays instead of Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from slackwater.progress.distributions import (
    ConstantDelay,
    DelayDistribution,
    ExponentialDelay,
    GammaDelay,
)
from slackwater.sampling.audits import Audits, audited
from slackwater.sampling.delays import counted_delays
from slackwater.sampling.estimates import (
    ErrorFunction,
    Intervals,
    Linearised,
    intervals,
    spreads,
)
from slackwater.sampling.monitor import LEARNING, Monitor, SubstreamCount
from slackwater.sampling.planner import Planner
from slackwater.sampling.strata import Floats, Strata

# Delays and gaps of the paper, for a stream of 1,000 records a second; gaps scale with the rate.
STREAMS: dict[str, tuple[DelayDistribution, str]] = {
    "CC": (ConstantDelay(150.0), "constant"),
    "GG": (GammaDelay(60.0, 4.0), "gamma"),
    "EC": (ExponentialDelay(240.0), "constant"),
    "EG": (ExponentialDelay(240.0), "gamma"),
}


@dataclass(frozen=True, eq=False)
class Records:
    """Hold the records of one window: when each happened and arrived, its group and value.

    A record that the pipeline filters out has group -1.
    """

    at_ms: Floats
    arrives_ms: Floats
    group: NDArray[np.int64]
    value: Floats


# From the random numbers, times, delays and the number of the window to groups and values.
Draw = Callable[[np.random.Generator, Floats, Floats, int], tuple[NDArray[np.int64], Floats]]


@dataclass(frozen=True, eq=False)
class SampledStream:
    """Describe a stream to replay: rate a second, delays, gaps, and what records hold."""

    kind: str
    rate: float
    draw: Draw
    window_ms: int = 3_000
    delay: DelayDistribution | None = None

    def window(self, rng: np.random.Generator, number: int) -> Records:
        """Draw the records of one window."""
        delay, gap = STREAMS[self.kind]
        delay = self.delay or delay
        mean_ms = 1_000.0 / self.rate
        count = int(self.window_ms / mean_ms * 1.2) + 50
        gaps = rng.gamma(2.0, mean_ms / 2, count) if gap == "gamma" else np.full(count, mean_ms)
        at = np.cumsum(gaps) - gaps[0] * rng.random()
        at = at[at < self.window_ms] + number * self.window_ms
        delays = delay.draw(rng.random(len(at)))
        group, value = self.draw(rng, at, delays, number)
        return Records(at, at + delays, group, value)


@dataclass(frozen=True, eq=False)
class ReplayedWindow:
    """Say what one window's early result was, and what the truth is, group by group."""

    estimate: Intervals
    truth: Floats
    shares: Floats  # of the window's rows, by group
    sampled_share: float
    wait_ms: float
    early: bool
    covered: NDArray[np.bool_]

    @property
    def errors(self) -> Floats:
        """Return the relative error of each group."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.abs(self.estimate.value - self.truth) / np.abs(self.truth)


@dataclass(eq=False)
class SamplingReplay:
    """Run windows one after the other; one in `audit_every` is compared with the truth."""

    stream: SampledStream
    planner: Planner
    function: ErrorFunction
    groups: int = 1
    seed: int = 7
    audit_every: int = 10
    monitor: Monitor = field(default_factory=Monitor)

    def run(self, windows: int) -> Iterator[ReplayedWindow]:
        """Replay so many windows after those that are learned from."""
        rng = np.random.default_rng(self.seed)
        for number in range(windows + LEARNING):
            records = self.stream.window(rng, number)
            found = self._window(rng, records, number)
            if number >= LEARNING:
                yield found

    @property
    def audits(self) -> Audits:
        """Return what audits found so far."""
        return self.monitor.audits

    def _window(self, rng: np.random.Generator, records: Records, number: int) -> ReplayedWindow:
        start_ms = number * self.stream.window_ms
        end_ms = start_ms + self.stream.window_ms
        last_ms = float(records.arrives_ms.max()) + 1.0
        closes_ms = self.planner.closes_at_ms(self.monitor, start_ms, end_ms)
        early = closes_ms is not None
        now_ms = max(last_ms, float(end_ms)) if closes_ms is None else closes_ms
        plan = self.planner.plan(
            self.monitor, start_ms, end_ms, closed_ms=start_ms, as_of_ms=now_ms
        )
        place = ((records.at_ms - start_ms) // plan.width_ms).astype(np.intp)
        arrived = records.arrives_ms <= now_ms
        taken = arrived & (rng.random(len(place)) < np.array(plan.rates)[place])
        strata = self._strata(plan.width_ms, place, arrived, taken, start_ms, now_ms, early)
        strata, labels = strata.collapsed()
        sums = self._sums(records, taken, labels[place], len(strata.arrived))
        found = self.function.linearise(strata, sums)
        audits = self.monitor.audits
        estimate = intervals(
            strata,
            found,
            self.planner.target,
            caution=audits.caution,
            bias=audits.straggler_bias,
        )
        truth = self._truth(records)
        rows = np.bincount(records.group[records.group >= 0], minlength=self.groups)
        shares = rows / max(rows.sum(), 1)
        self._learn(records, strata, found, plan.width_ms, shares)
        covered = (estimate.low <= truth) & (truth <= estimate.high)
        if early and number % self.audit_every == 0:
            self._audit(estimate, truth, shares, strata.missing)
        sampled = float(taken.sum()) / len(place)
        return ReplayedWindow(estimate, truth, shares, sampled, now_ms - end_ms, early, covered)

    def _strata(
        self,
        width_ms: int,
        place: NDArray[np.intp],
        arrived: NDArray[np.bool_],
        taken: NDArray[np.bool_],
        start_ms: int,
        now_ms: float,
        early: bool,
    ) -> Strata:
        parts = self.stream.window_ms // width_ms
        edges = [start_ms + i * width_ms for i in range(parts + 1)]
        delays = self.monitor.delays
        shares = np.ones(parts)
        if early and self.planner.method != "slack":
            shares = np.maximum(np.array(delays.arrived_shares(edges, now_ms)), 1e-3)
        known = max(delays.records, 1.0)
        return Strata(
            np.bincount(place[arrived], minlength=parts).astype(np.float64),
            np.bincount(place[taken], minlength=parts).astype(np.float64),
            shares,
            np.sqrt((1.0 - shares) / (shares * known)),
        )

    def _sums(
        self, records: Records, taken: NDArray[np.bool_], labels: NDArray[np.intp], strata: int
    ) -> dict[str, Floats]:
        used = taken & (records.group >= 0)
        cell = records.group[used] * strata + labels[used]
        value = records.value[used]

        def summed(weights: Floats | None) -> Floats:
            flat = np.bincount(cell, weights, self.groups * strata)
            return flat.reshape(self.groups, strata).astype(np.float64)

        return {"n": summed(None), "s1": summed(value), "s2": summed(value * value)}

    def _truth(self, records: Records) -> Floats:
        used = records.group >= 0
        whole = Strata(np.array([1.0]), np.array([1.0]), np.array([1.0]), np.array([0.0]))
        sums = self._sums(records, used, np.zeros(len(used), dtype=np.intp), 1)
        return self.function.linearise(whole, sums).value

    def _learn(
        self, records: Records, strata: Strata, found: Linearised, width_ms: int, shares: Floats
    ) -> None:
        counted = counted_delays(records.arrives_ms - records.at_ms)
        each = spreads(strata, found)
        least = self.planner.target.group_share
        wanted = [s for s, share in zip(each, shares, strict=True) if share >= (least or 0.0)]
        worst = wanted[0]
        for one in wanted[1:]:
            worst |= one
        records_per = strata.arrived / strata.share
        substreams = [
            SubstreamCount(0, self.stream.window_ms // len(records_per), float(n))
            for n in records_per
        ]
        self.monitor = self.monitor.delayed(counted).closed(substreams, {"x": worst})

    def _audit(self, estimate: Intervals, truth: Floats, shares: Floats, missing: float) -> None:
        least = self.planner.target.group_share or 0.0
        early = {
            str(i): (estimate.value[i], estimate.low[i], estimate.high[i])
            for i in range(self.groups)
            if shares[i] >= least
        }
        exact = {str(i): float(truth[i]) for i in range(self.groups)}
        target = self.planner.target
        found = audited(
            self.monitor.audits,
            early,
            exact,
            missing=missing,
            relative=target.relative,
            confidence=target.confidence,
        )
        self.monitor = replace(self.monitor, audits=found)
