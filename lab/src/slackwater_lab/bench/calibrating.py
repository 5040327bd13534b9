"""Measure what steps cost: real steps, prepared and warm, of several sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from slackwater.errors import SlackwaterError
from slackwater.spark.latebound import parallelism
from slackwater_lab.bench.calibration import Calibration, Sample, TemplateCost
from slackwater_lab.bench.inputs import workload_of
from slackwater_lab.bench.options import BenchOptions
from slackwater_lab.bench.trials import Trials

MOST_TEMPLATES: Final = 10  # the variants of a workload do the same work
_ROUNDS: Final = 6
_GROWTH: Final = 8
_TOGETHER: Final = 8  # queries in a step, to see what each of them costs


@dataclass(frozen=True)
class Effort:
    """Say how much to measure: passes of each size, after some to warm up.

    The rate that follows from the first `sizes` (events in a pass) is where more are measured, of
    at most `most_events`, until the answer lies within what was measured.
    """

    warm_up_passes: int = 60
    passes: int = 8
    sizes: tuple[int, ...] = (1_000, 10_000, 40_000, 160_000)
    most_events: int = 20_000_000


FULL_EFFORT: Final = Effort()


def calibrate(
    spark: SparkSession,
    options: BenchOptions,
    directory: Path,
    *,
    effort: Effort = FULL_EFFORT,
    progress: Callable[[str, float], None] = lambda text, share: None,
) -> Calibration:
    """Measure the costs of the pipelines that a run is made from (of at most ten)."""
    slots = options.slots or parallelism(spark)
    variants = range(min(options.distinct, MOST_TEMPLATES))
    with Trials(spark, options, directory, slots) as trials:
        progress("warming up", 0.0)
        trials.measure(variants, max(effort.sizes), effort.warm_up_passes // len(variants))
        samples: dict[int, list[Sample]] = {variant: [] for variant in variants}

        def measure_all(sizes: Sequence[int], share: float) -> None:
            progress("measuring steps", share)
            for events in sorted(sizes, reverse=True):  # the large ones warm up the small
                for variant, seen in trials.measure(variants, events, effort.passes).items():
                    samples[variant] += seen

        def found() -> Calibration:
            costs = tuple(TemplateCost.of(variant, samples[variant]) for variant in variants)
            return Calibration(slots, workload_of(options).slide_ms, costs)

        def measure_together() -> None:
            progress("measuring steps", 0.8)
            fused = trials.measure(variants, min(effort.sizes), effort.passes, together=_TOGETHER)
            for variant, seen in fused.items():
                samples[variant] += seen

        measure_all(effort.sizes, 0.2)
        if options.load is None:
            measure_together()
            return found()
        largest = max(effort.sizes)
        for round_ in range(_ROUNDS + 1):
            # Again about where the answer lies, for a line says little beyond what it was drawn
            # through; not too far beyond, lest a step take for ever; and without what was measured
            # before, when less of the code was compiled.
            wanted = _events_wanted(found(), options.load, options)
            events = max(200, int(min(wanted, _GROWTH * largest, effort.most_events)))
            if round_ and abs(events - largest) < largest / 4:
                break
            if round_ == _ROUNDS:
                raise SlackwaterError(
                    f"load={options.load:g}: steps of {largest:,} events say that it takes "
                    f"{wanted:,.0f}, and so on {_ROUNDS} times; end what else runs on this "
                    "machine, or give --rate instead of --load"
                )
            for variant in variants:
                samples[variant].clear()
            measure_all([min(effort.sizes), events // 2, events], 0.6)
            largest = events
        measure_together()
        return found()


def _events_wanted(costs: Calibration, load: float, options: BenchOptions) -> float:
    """Return how many events a pass has at the load; no end of them while they seem to be free."""
    if all(template.per_event_ms <= 0 for template in costs.templates):
        return math.inf
    return costs.rate_for(load, options.queries, options.distinct) * costs.slide_ms / 1_000
