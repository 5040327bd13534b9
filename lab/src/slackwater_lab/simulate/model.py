"""What is replayed: queries, when their input and watermarks come, and what their steps cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slackwater.errors import DescriptionError
from slackwater.progress.arrivals import hash64_one, stream_salt
from slackwater.progress.distributions import DelayDistribution, delay_named
from slackwater.progress.grid import WindowGrid, spread_stride
from slackwater.progress.periodic import PeriodicWatermarks
from slackwater.progress.sweeps import SweepGeneration
from slackwater.scheduling.costs import StepCost


@dataclass(frozen=True)
class SimulatedQuery:
    """Describe one query: its windows, its input, and how its watermarks travel."""

    template: int
    grid: WindowGrid
    rate_per_ms: float
    start_ms: int
    watermarks: PeriodicWatermarks
    generation: SweepGeneration
    bytes_per_row: float = 0.0


@dataclass(frozen=True)
class StepNoise:
    """Make steps vary as real ones do: a share of chance, and now and then a long one.

    `spread` is the deviation of the logarithm of a step's duration; one step in `one_in` takes
    `pause_ms` longer (garbage collection, compilation).
    """

    spread: float = 0.15
    one_in: int = 60
    pause_ms: float = 60.0

    def durations(self, seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw factors and pauses for `count` steps, always the same for a seed."""
        chance = np.random.default_rng(hash64_one(seed))
        factors = np.exp(chance.normal(0.0, self.spread, count) - self.spread**2 / 2)
        pauses = np.where(chance.random(count) < 1 / self.one_in, self.pause_ms, 0.0)
        return factors, pauses


@dataclass(frozen=True)
class Scenario:
    """Hold everything a replay needs; the same scenario always gives the same events.

    Input comes in buffers that are handed over every `buffer_ms`, as engines do that have a
    network between their operators; 0: record by record.
    """

    queries: tuple[SimulatedQuery, ...]
    costs: tuple[StepCost, ...]
    slots: int
    seconds: float
    warmup_s: float = 10.0
    budget_ms: float = 250.0
    fusable: bool = True
    selectivity: float = 1.0
    noise: StepNoise = StepNoise()
    memory_budget_bytes: float = float("inf")
    buffer_ms: float = 0.0
    seed: int = 0


def uniform_queries(
    *,
    count: int,
    distinct: int,
    size_ms: int,
    slide_ms: int,
    rate: float,
    delay: str | DelayDistribution,
    seed: int = 0,
    watermark_period_ms: int = 100,
    start_within_ms: int = 0,
    bytes_per_row: float = 0.0,
) -> tuple[SimulatedQuery, ...]:
    """Describe queries that differ only in phase, stream and template, as the benchmarks do.

    `rate` is records a second of each. Queries start at random within `start_within_ms`.
    """
    distribution = delay_named(delay) if isinstance(delay, str) else delay
    stride = spread_stride(slide_ms)
    made = []
    for number in range(count):
        salt = stream_salt(stream_salt(seed, number), 0)
        start_ms = hash64_one(salt) % (start_within_ms + 1)
        lag_ms = int(np.ceil(distribution.quantile(0.999)))
        made.append(
            SimulatedQuery(
                template=number % distinct,
                grid=WindowGrid(size_ms, slide_ms, number * stride % slide_ms),
                rate_per_ms=rate / 1_000,
                start_ms=start_ms,
                watermarks=PeriodicWatermarks(
                    distribution,
                    salt=salt,
                    period_ms=watermark_period_ms,
                    lag_ms=lag_ms,
                    start_ms=start_ms,
                ),
                generation=SweepGeneration.periodic(watermark_period_ms, lag_ms),
                bytes_per_row=bytes_per_row,
            )
        )
    return tuple(made)


def rate_for_load(
    load: float, costs: Sequence[StepCost], *, queries: int, slide_ms: int, slots: int
) -> float:
    """Find the rate, in records a second, at which one pass per window takes `load` of all slots.

    >>> rate_for_load(0.9, [StepCost(40.0, 0.01)], queries=40, slide_ms=3_000, slots=2)
    3166.6...
    """
    fixed_ms = sum(costs[i % len(costs)].fixed_ms for i in range(queries))
    slopes_ms = sum(costs[i % len(costs)].per_event_ms for i in range(queries))
    room_ms = load * slots * slide_ms - fixed_ms
    if room_ms <= 0:
        raise DescriptionError(
            f"load={load}: fixed costs take {fixed_ms / (slots * slide_ms):.2f} of all slots' "
            "time; use fewer queries, or a higher load"
        )
    return room_ms / slopes_ms / slide_ms * 1_000
