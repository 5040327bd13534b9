"""Run steps for their own sake: to see what they cost, or until the machine has warmed to them.

As many queries of each pipeline run at once as there are slots, each in steps of its own, so that
steps hinder each other, and pipelines take turns, as much as they will under load. Each query's
stream is as fast as it takes for a pass to read so many events. Nobody waits for these to come: the
clock skips idle time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self

from pyspark.sql import SparkSession

import slackwater as sw
from slackwater.errors import QuarantinedError, SlackwaterError
from slackwater.runtime.reports import StepReport
from slackwater.scheduling.choosing import fused_steps, ordered
from slackwater.scheduling.snapshot import Decision, FleetSnapshot
from slackwater.spark.latebound import parallelism
from slackwater_lab.bench.calibration import Sample
from slackwater_lab.bench.inputs import workload_of
from slackwater_lab.bench.options import BenchOptions
from slackwater_lab.workloads.late_wishes import delay_of
from slackwater_lab.workloads.workload import Feed, Phase

_COLD_PASSES: Final = 3  # a new stream begins in mid-window, and a second copy of a plan is made
_WARMING_PASSES: Final = 8
_MOST_EVENTS: Final = 20_000_000


class SkippingClock:
    """Follow the machine's clock while steps run, and skip the time in which none does."""

    def __init__(self) -> None:
        """Start now."""
        self._skipped_ms = 0.0

    def now_ms(self) -> float:
        """Return milliseconds since the epoch, and what has been skipped."""
        return time.time() * 1_000 + self._skipped_ms

    def steady_ms(self) -> float:
        """Return milliseconds that pass as time does, and what has been skipped."""
        return time.monotonic() * 1_000 + self._skipped_ms

    def wait(self, signal: threading.Event, until_ms: float, *, busy: bool) -> None:
        """Wait for running steps; otherwise skip to the moment."""
        if busy:
            signal.wait(max(0.0, (until_ms - self.now_ms()) / 1_000))
        elif not signal.is_set():
            self._skipped_ms += max(0.0, until_ms - self.now_ms())


@dataclass
class OncePerWindow:
    """Run each query when its window closes, in a step of its own unless they are to `fuse`."""

    fuse: bool = False
    name: Final = "once-per-window"

    def decide(self, fleet: FleetSnapshot) -> Decision:
        """Serve what is due, by deadline."""
        order = ordered(fleet, fleet.ready & fleet.due, fleet.deadline_ms)
        return Decision(tuple(fused_steps(fleet, order, fuse=self.fuse)))


@dataclass
class StepSampler:
    """Note the steps that are like those of a running fleet."""

    _samples: dict[str, list[Sample]] = field(default_factory=dict)
    _passes: dict[str, int] = field(default_factory=dict)

    def step_committed(self, report: StepReport) -> None:
        """Keep prepared steps that read events and closed a window, but for the first of each."""
        if not report.panes:
            return
        query = report.queries[0]
        self._passes[query] = self._passes.get(query, 0) + 1
        if self._passes[query] > _COLD_PASSES and report.prepared and report.events:
            took_ms = round(report.committed_ms - report.started_ms, 3)
            self._samples.setdefault(query, []).append(
                Sample(report.events, took_ms, len(report.queries))
            )

    def take(self) -> dict[str, list[Sample]]:
        """Return what was noted since the last time, by the first query of each step."""
        taken, self._samples = self._samples, {}
        return taken


class Trials:
    """Hold the runtime in which all trials run, one after the other.

    With `phase` "aligned" all queries of a trial are due at the same moments.
    """

    def __init__(
        self,
        spark: SparkSession,
        options: BenchOptions,
        directory: Path,
        slots: int,
        *,
        phase: Phase = "aligned",
    ) -> None:
        self._phase = phase
        self._spark = spark
        self._options = options
        self._workload = workload_of(options)
        self._slots = slots
        self._clock = SkippingClock()
        self._policy = OncePerWindow()
        self._sink = sw.memory() if options.sink == "memory" else sw.parquet(directory / "out")
        self._apps: dict[int, sw.App] = {}
        self._trials = 0
        self._runtime = sw.Runtime(
            spark,
            policy=self._policy,
            journal=directory / "journal",
            slots=slots,
            budget="10 seconds",  # a pass is one step
            durable=options.durable,
            clock=self._clock,
        )
        self._sampler = StepSampler()
        self._runtime.observe(self._sampler)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._runtime.close()

    def measure(
        self, variants: Sequence[int], events: int, passes: int, *, together: int = 1
    ) -> dict[int, list[Sample]]:
        """Run a query of each pipeline for each slot, for some passes of so many events.

        Or let so many queries of each pipeline share their steps (`together`).
        """
        self._policy.fuse = together > 1
        slide_ms = self._workload.slide_ms
        rate = events * 1_000 / slide_ms
        # All alike and in step, so that they are due at the same moments; at the end of a window.
        start_ms = (int(self._clock.now_ms()) // slide_ms + 1) * slide_ms
        delay = delay_of(self._options.delay, self._workload.stages("aligned")[0].size_ms)
        feed = Feed(rate, delay, self._options.seed, 0, start_ms)
        seconds = passes * slide_ms / 1_000
        owners: dict[str, int] = {}
        for variant in variants:
            for place in range(self._slots if together == 1 else together):
                sources = {
                    name: replace(source, limit=max(1, int(source.rate * seconds)))
                    for name, source in self._workload.sources(feed).items()
                }
                name = f"calibration-{self._trials:04d}-{variant}-{place}"
                self._runtime.deploy(self._app(variant), name, reset=False, **sources)
                owners[name] = variant
        self._trials += 1
        try:
            self._runtime.run()
        except QuarantinedError as error:
            raise SlackwaterError(f"no cost could be measured: {error}") from error
        found: dict[int, list[Sample]] = {variant: [] for variant in variants}
        for name, samples in self._sampler.take().items():
            found[owners[name]] += samples
        return found

    def _app(self, variant: int) -> sw.App:
        if variant not in self._apps:
            self._apps[variant] = self._workload.app(
                self._spark, self._sink, phase=self._phase, variant=variant
            )
        return self._apps[variant]


def warm_up(spark: SparkSession, options: BenchOptions, directory: Path, *, seconds: float) -> None:
    """Run steps of every pipeline, as large as they will be, until the code is compiled.

    Under load there is no time to catch up with what was slow at first, and it would be that which
    is measured.
    """
    slots = options.slots or parallelism(spark)
    events = int(options.rate * workload_of(options).slide_ms / 1_000)
    began = time.monotonic()
    with Trials(spark, options, directory, slots, phase=options.phase) as trials:
        while time.monotonic() < began + seconds:
            trials.measure(range(options.distinct), min(events, _MOST_EVENTS), _WARMING_PASSES)
