"""Measure what steps cost: real steps of single queries, prepared and warm, of several sizes.

As many queries of each pipeline run at once as there are slots, each in steps of its own, so that
steps hinder each other, and pipelines take turns, as much as they will under load. Each query's
stream is as fast as it takes for a pass to read so many events. Nobody waits for these to come: the
clock skips idle time.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

import slackwater as sw
from slackwater.bench.calibration import Calibration, Sample, TemplateCost
from slackwater.bench.inputs import workload_of
from slackwater.bench.options import BenchOptions
from slackwater.bench.workload import Feed
from slackwater.errors import SlackwaterError
from slackwater.runtime.reports import StepReport
from slackwater.scheduling.choosing import fused_steps, ordered
from slackwater.scheduling.snapshot import Decision, FleetSnapshot
from slackwater.spark.latebound import parallelism

MOST_TEMPLATES: Final = 10  # the variants of a workload do the same work
_ROUNDS: Final = 4
_GROWTH: Final = 8
_COLD_PASSES: Final = 3  # a new stream begins in mid-window, and a second copy of a plan is made


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


class SkippingClock:
    """Follow the machine's clock while steps run, and skip the time in which none does."""

    def __init__(self) -> None:
        """Start now."""
        self._skipped_ms = 0.0

    def now_ms(self) -> float:
        """Return milliseconds since the epoch, and what has been skipped."""
        return time.time() * 1_000 + self._skipped_ms

    def wait(self, signal: threading.Event, until_ms: float, *, busy: bool) -> None:
        """Wait for running steps; otherwise skip to the moment."""
        if busy:
            signal.wait(max(0.0, (until_ms - self.now_ms()) / 1_000))
        elif not signal.is_set():
            self._skipped_ms += max(0.0, until_ms - self.now_ms())


class OncePerWindow:
    """Run each query when its window closes, in a step of its own."""

    name: Final = "once-per-window"

    def decide(self, fleet: FleetSnapshot) -> Decision:
        """Serve what is due, by deadline."""
        order = ordered(fleet, fleet.ready & fleet.due, fleet.deadline_ms)
        return Decision(tuple(fused_steps(fleet, order, fuse=False)))


@dataclass
class StepSampler:
    """Note the steps that are like those of a running fleet."""

    _samples: dict[str, list[Sample]] = field(default_factory=dict)
    _passes: dict[str, int] = field(default_factory=dict)

    def step_committed(self, report: StepReport) -> None:
        """Keep prepared steps that read events and closed a window, but for the first of each."""
        if not report.panes or len(report.queries) != 1:
            return
        [query] = report.queries
        self._passes[query] = self._passes.get(query, 0) + 1
        if self._passes[query] > _COLD_PASSES and report.prepared and report.events:
            took_ms = round(report.committed_ms - report.started_ms, 3)
            self._samples.setdefault(query, []).append(Sample(report.events, took_ms))

    def take(self) -> dict[str, list[Sample]]:
        """Return what was noted of each query since the last time."""
        taken, self._samples = self._samples, {}
        return taken


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
    with _Bench(spark, options, directory, slots) as bench:
        progress("warming up", 0.0)
        bench.measure(variants, max(effort.sizes), effort.warm_up_passes // len(variants))
        samples: dict[int, list[Sample]] = {variant: [] for variant in variants}

        def measure_all(sizes: Sequence[int], share: float) -> None:
            progress("measuring steps", share)
            for events in sorted(sizes, reverse=True):  # the large ones warm up the small
                for variant, seen in bench.measure(variants, events, effort.passes).items():
                    samples[variant] += seen

        def found() -> Calibration:
            costs = tuple(TemplateCost.of(variant, samples[variant]) for variant in variants)
            return Calibration(slots, workload_of(options).slide_ms, costs)

        measure_all(effort.sizes, 0.2)
        if options.load is None:
            return found()
        largest = max(effort.sizes)
        for round_ in range(_ROUNDS):
            # Again about where the answer lies, for a line says little beyond what it was drawn
            # through; not too far beyond, lest a step take for ever; and without what was measured
            # before, when less of the code was compiled.
            wanted = _events_wanted(found(), options.load, options)
            events = max(200, int(min(wanted, _GROWTH * largest, effort.most_events)))
            if round_ and abs(events - largest) < largest / 4:
                break
            for variant in variants:
                samples[variant].clear()
            measure_all([min(effort.sizes), events // 2, events], 0.6)
            largest = events
        return found()


def _events_wanted(costs: Calibration, load: float, options: BenchOptions) -> float:
    """Return how many events a pass has at the load; no end of them while they seem to be free."""
    if all(template.per_event_ms <= 0 for template in costs.templates):
        return math.inf
    return costs.rate_for(load, options.queries, options.distinct) * costs.slide_ms / 1_000


class _Bench:
    """Hold the runtime in which all stretches run, one after the other."""

    def __init__(
        self, spark: SparkSession, options: BenchOptions, directory: Path, slots: int
    ) -> None:
        self._spark = spark
        self._options = options
        self._workload = workload_of(options)
        self._slots = slots
        self._clock = SkippingClock()
        self._sink = sw.memory() if options.sink == "memory" else sw.parquet(directory / "out")
        self._apps: dict[int, sw.App] = {}
        self._stretches = 0
        self._runtime = sw.Runtime(
            spark,
            policy=OncePerWindow(),
            journal=directory / "journal",
            slots=slots,
            budget="10 seconds",  # a pass is one step
            durable=options.durable,
            clock=self._clock,
        )
        self._sampler = StepSampler()
        self._runtime.observe(self._sampler)

    def __enter__(self) -> _Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self._runtime.close()

    def measure(self, variants: Sequence[int], events: int, passes: int) -> dict[int, list[Sample]]:
        """Run a query of each pipeline for each slot, for some passes of so many events."""
        slide_ms = self._workload.slide_ms
        rate = events * 1_000 / slide_ms
        # All alike and in step, so that they are due at the same moments; at the end of a window.
        start_ms = (int(self._clock.now_ms()) // slide_ms + 1) * slide_ms
        feed = Feed(rate, self._options.delay, self._options.seed, 0, start_ms)
        seconds = passes * slide_ms / 1_000
        owners: dict[str, int] = {}
        for variant in variants:
            for slot in range(self._slots):
                sources = {
                    name: replace(source, limit=max(1, int(source.rate * seconds)))
                    for name, source in self._workload.sources(feed).items()
                }
                name = f"calibration-{self._stretches:04d}-{variant}-{slot}"
                self._runtime.deploy(self._app(variant), name, reset=False, **sources)
                owners[name] = variant
        self._stretches += 1
        self._runtime.run()
        for query in self._runtime.queries():
            if query.quarantined is not None:
                raise SlackwaterError(f"no cost could be measured: {query.quarantined}")
        found: dict[int, list[Sample]] = {variant: [] for variant in variants}
        for name, samples in self._sampler.take().items():
            found[owners[name]] += samples
        return found

    def _app(self, variant: int) -> sw.App:
        if variant not in self._apps:
            self._apps[variant] = self._workload.app(
                self._spark, self._sink, phase="aligned", variant=variant
            )
        return self._apps[variant]
