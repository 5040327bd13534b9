"""Measure the staleness trigger and predictive cleanup on drawn lateness.

No Spark, no clock: lateness is drawn from distributions with fixed seeds, and the figures are the
same on every machine. Ages are in windows, drawn in milliseconds of a window of one second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from slackwater.lateness.cleanup import Cover
from slackwater.lateness.observed import WINDOWS_PER_GENERATION, ObservedLateness, Seen, bin_of
from slackwater.lateness.staleness import LateCurve
from slackwater.lateness.triggers import PastWindow, Staleness
from slackwater.progress.distributions import (
    BurstDelay,
    DelayDistribution,
    LogNormalDelay,
    NormalDelay,
    UniformDelay,
)
from slackwater.progress.tables import Floats

BOUNDS: Final = (0.1, 0.05, 0.01)
COVERED: Final = 0.999  # of late events come before the window is purged
INSTANTS: Final = 4_000
MOST_EXECUTIONS: Final = 400
EVENTS: Final = 2_000  # late events of a window
WINDOW_MS: Final = 1_000

SHAPES: Final[Mapping[str, DelayDistribution]] = {
    "lognormal": LogNormalDelay(WINDOW_MS, 1.0),
    "uniform": UniformDelay(0.0, 10.0 * WINDOW_MS),
    "normal": NormalDelay(5.0 * WINDOW_MS, 1.5 * WINDOW_MS),
    "bursts": BurstDelay((1.0 * WINDOW_MS, 4.0 * WINDOW_MS, 9.0 * WINDOW_MS), 0.2 * WINDOW_MS),
}


@dataclass(frozen=True)
class Executions:
    """Count the executions that keep a bound: ours, at even times, after even numbers of events."""

    ours: int
    by_time: int | None  # None: more than MOST_EXECUTIONS
    by_events: int | None
    stalest: float  # span of ours, balanced


@lru_cache(maxsize=64)
def curve_of(name: str, covered: float = COVERED) -> LateCurve:
    """Return how late events of a shape come to a window that is kept for a share of them."""
    bound_ms = SHAPES[name].quantile(covered)
    draws = SHAPES[name].draw((np.arange(200_000) + 0.5) / 200_000)
    counts, edges = np.histogram(draws, INSTANTS, (0.0, bound_ms))
    return LateCurve.of(edges[1:].tolist(), counts.astype(float).tolist())


def fewest_executions(name: str, bound: float, covered: float = COVERED) -> Executions:
    """Find how often each trigger has to execute a window to keep a bound on staleness.

    The execution at the purge counts for each.
    """
    curve = curve_of(name, covered)
    ages = np.array(curve.ages_ms) / curve.span_ms
    shares = np.array(curve.counts) / curve.events

    def by_time(count: int) -> bool:
        at = np.linspace(0.0, 1.0, count + 1)
        return _stalest(at, np.interp(at, ages, shares)) <= bound

    def by_events(count: int) -> bool:
        shown = np.linspace(0.0, 1.0, count + 1)
        return _stalest(np.interp(shown, shares, ages), shown) <= bound

    counts = range(1, MOST_EXECUTIONS + 1)
    placement = curve.balanced(bound)
    return Executions(
        ours=len(placement.ends),
        by_time=next(filter(by_time, counts), None),
        by_events=next(filter(by_events, counts), None),
        stalest=placement.stalest,
    )


def _stalest(ages: Floats, shown: Floats) -> float:
    return float(np.max(np.diff(ages) * np.diff(shown)))


@dataclass(frozen=True)
class OnlineTrial:
    """Tell how the learned trigger did on windows drawn anew: per window, and the stalest span."""

    executions: float
    fewest: float  # had all been known in advance
    stalest: float


def run_online(name: str, bound: float, windows: int = 10, looks: int = 500) -> OnlineTrial:
    """Let the trigger learn from some windows, then decide for others as their events come in."""
    bound_ms = int(SHAPES[name].quantile(COVERED))
    expected = learned(name, 3 * WINDOWS_PER_GENERATION, EVENTS).curve(bound_ms)
    trigger, made, fewest, stalest = Staleness(bound), 0, 0, 0.0
    for window in range(windows):
        ages_ms = np.sort(_drawn(name, EVENTS, seed=10_000 + window))
        ages_ms = ages_ms[ages_ms < bound_ms]
        edges = np.linspace(0.0, bound_ms, looks + 1)
        counts = np.histogram(ages_ms, edges)[0].astype(float).tolist()
        fewest += len(LateCurve.of(edges[1:].tolist(), counts).fewest(bound))
        executed_ms, shown = 0.0, 0
        for age_ms in edges[1:].tolist():
            late = int(np.searchsorted(ages_ms, age_ms, side="right"))
            past = PastWindow(age_ms, executed_ms, late - shown, late, bound_ms)
            if late > shown and (age_ms >= bound_ms or trigger.due(past, expected)):
                made += 1
                span = (age_ms - executed_ms) / bound_ms * (late - shown) / len(ages_ms)
                stalest = max(stalest, span)
                executed_ms, shown = age_ms, late
    return OnlineTrial(made / windows, fewest / windows, stalest)


def learned(
    name: str, windows: int, events: int, *, scale: float = 1.0, seed: int = 0
) -> ObservedLateness:
    """Observe windows, each with so many events, all of them late."""
    observed = ObservedLateness()
    for generation in range(windows // WINDOWS_PER_GENERATION):
        drawn = _drawn(name, events * WINDOWS_PER_GENERATION, seed=1_000 * seed + generation)
        ages, counts = np.unique((drawn * scale).astype(np.int64), return_counts=True)
        late: dict[int, int] = {}
        for age_ms, count in zip(ages.tolist(), counts.tolist(), strict=True):
            late[bin_of(age_ms)] = late.get(bin_of(age_ms), 0) + count
        observed = observed.plus(Seen(0, late, WINDOWS_PER_GENERATION))
    return observed


@dataclass(frozen=True)
class CoverTrial:
    """Tell which shares of new events learned bounds cover: the least, the mean and the most."""

    covered: tuple[float, float, float]
    doubled: tuple[float, float, float]  # two generations after lateness has doubled


def run_cover(
    name: str, share: float, *, windows: int = 256, events: int = 500, runs: int = 10
) -> CoverTrial:
    """Learn bounds, and work out which share of all events each covers; then double lateness."""
    wish = Cover(share, 0.95, 1)
    whole = np.sort(SHAPES[name].draw((np.arange(1_000_000) + 0.5) / 1_000_000))

    def within(observed: ObservedLateness, scale: float) -> float:
        bound_ms = wish.bound_ms(observed, 1) or 0
        return float(np.searchsorted(whole * scale, bound_ms)) / len(whole)

    covered, doubled = [], []
    for run in range(runs):
        observed = learned(name, windows, events, seed=2 * run + 1)
        covered.append(within(observed, 1.0))
        after = learned(name, 2 * WINDOWS_PER_GENERATION, events, scale=2.0, seed=2 * run + 2)
        for generation in after.generations:
            observed = observed.plus(generation)
        doubled.append(within(observed, 2.0))
    return CoverTrial(_summed_up(covered), _summed_up(doubled))


def _summed_up(shares: list[float]) -> tuple[float, float, float]:
    return min(shares), sum(shares) / len(shares), max(shares)


def _drawn(name: str, events: int, *, seed: int) -> Floats:
    return SHAPES[name].draw(np.random.default_rng(seed).random(events))
