"""Run the workload on Slackwater under one policy, and measure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from pyspark.sql import SparkSession

import slackwater as sw
from slackwater.runtime.clock import Clock, SystemClock
from slackwater.runtime.reports import StepReport
from slackwater.scheduling.policies import policy_named
from slackwater.scheduling.snapshot import Decision, FleetSnapshot, Policy
from slackwater.spark.sinks.base import Sink
from slackwater.spark.sources.base import SourceDescription
from slackwater_lab.bench.figures import Measured, figures, mean_times
from slackwater_lab.bench.inputs import (
    QueryInputs,
    by_query,
    due_windows,
    inputs_of,
    query_name,
    workload_of,
)
from slackwater_lab.bench.options import BenchOptions
from slackwater_lab.bench.topics import TopicFeed
from slackwater_lab.workloads.due import Span, WindowKey

Progress = Callable[[str, float], None]

# Events keep coming while the last windows that are due may still fire, for every policy alike.
DRAIN_MS: Final = 10_000.0
_LOOK_MS: Final = 1_000.0


class Collector:
    """Note when each window that is due fires, and the steps of the span that counts."""

    def __init__(self, due: dict[WindowKey, float], span: Span) -> None:
        """Wait for these windows."""
        self._span = span
        self.missing = set(due)
        self.out: dict[WindowKey, float] = {}
        self.steps: list[StepReport] = []

    def step_committed(self, report: StepReport) -> None:
        """Take note of a step; only the first on-time pane of a window counts."""
        if report.committed_ms in self._span:
            self.steps.append(report)
        for pane in report.panes:
            key = (pane.query, pane.window_end_ms)
            if pane.timing == "on_time" and key in self.missing:
                self.missing.discard(key)
                self.out[key] = pane.committed_ms


class CountedPolicy:
    """Decide as another policy does, and count how often."""

    def __init__(self, policy: Policy) -> None:
        """Wrap a policy."""
        self._policy = policy
        self.decisions = 0

    @property
    def name(self) -> str:
        """Return the policy's own name."""
        return self._policy.name

    def decide(self, fleet: FleetSnapshot) -> Decision:
        """Pass the decision on."""
        self.decisions += 1
        return self._policy.decide(fleet)


class Conductor:
    """Follow a run from warm-up to drain. The loop calls it each time round, and ends when told."""

    def __init__(
        self,
        runtime: sw.Runtime,
        policy: CountedPolicy,
        clock: Clock,
        collector: Collector,
        span: Span,
        progress: Progress,
    ) -> None:
        """Begin with the warm-up."""
        self._runtime = runtime
        self._policy = policy
        self._clock = clock
        self._collector = collector
        self._span = span
        self._progress = progress
        self._began_ms = clock.now_ms()
        self._look_ms = self._began_ms
        self._counted = 0
        self._late_before: int | None = None
        self._late_after: int | None = None
        self.decide_ms: list[float] = []
        self.state_peak_bytes = 0
        self.lag_peak = 0
        self._rates: list[float] = []

    def __call__(self) -> bool:
        """Tell whether the run is over."""
        now_ms = self._clock.now_ms()
        if now_ms in self._span:
            self.state_peak_bytes = max(self.state_peak_bytes, self._runtime.state_bytes)
        if self._late_before is None and now_ms >= self._span.first_ms:
            self._late_before = self._late()
            self._counted = self._policy.decisions
        ended = now_ms >= self._span.until_ms
        if ended and self._late_after is None:
            self._gather()
            self._late_after = self._late()
        if now_ms >= self._look_ms:
            self._look_ms = now_ms + _LOOK_MS
            if not ended:
                self._gather()
            if now_ms in self._span:
                self._look()
            whole_ms = self._span.until_ms - self._began_ms
            text = "warming up" if now_ms < self._span.first_ms else "measuring"
            self._progress(text, min(1.0, (now_ms - self._began_ms) / whole_ms))
        return ended and (not self._collector.missing or now_ms >= self._span.until_ms + DRAIN_MS)

    @property
    def arrivals_per_s(self) -> float | None:
        """Return the mean of the rates that were estimated within the span, for one query."""
        return round(float(np.mean(self._rates)), 2) if self._rates else None

    def _look(self) -> None:
        """Take note of how much waits to be read, and of how fast it is said to come."""
        reports = self._runtime.queries()
        self.lag_peak = max(self.lag_peak, sum(report.queued for report in reports))
        rates = (report.arrivals_per_s for report in reports)
        self._rates += [rate for rate in rates if rate is not None]

    @property
    def late_rows(self) -> int:
        """Count the rows that came too late within the span."""
        return (self._late_after or 0) - (self._late_before or 0)

    def _late(self) -> int:
        return sum(report.too_late_rows for report in self._runtime.queries())

    def _gather(self) -> None:
        """Take in the newest decision times before the runtime forgets them."""
        fresh = self._policy.decisions - self._counted
        self._counted += fresh
        if fresh and self._late_before is not None:
            self.decide_ms += self._runtime.decide_ms[-fresh:]


def run_ours(
    spark: SparkSession,
    options: BenchOptions,
    policy: str,
    directory: Path,
    *,
    progress: Progress = lambda text, share: None,
    clock: Clock | None = None,
    own_step_ms: Sequence[float] | None = None,
) -> tuple[dict[str, Any], Span]:
    """Measure one policy; return its results, and the span of time that they are about.

    `own_step_ms` tells, where it is known, how long a step takes for each of the pipelines.
    """
    clock = clock or SystemClock()
    counted = CountedPolicy(policy_named(policy))
    sink = sw.memory() if options.sink == "memory" else sw.parquet(directory / "out")
    with sw.Runtime(
        spark,
        policy=counted,
        journal=directory / "journal",
        slots=options.slots,
        durable=options.durable,
        memory=options.memory,
        clock=clock,
    ) as runtime:
        # Streams start when all queries are deployed and planned, or there would be a backlog to
        # begin with.
        planning_ms = 3_000 + 700 * options.distinct * len(inputs_of(options, 0)[0])
        start_ms = int(clock.now_ms() + planning_ms + 5 * options.queries)
        topics = TopicFeed.of(options, policy) if options.source == "kafka" else None
        inputs = _deploy(spark, options, runtime, sink, start_ms, topics)
        runtime.warm()
        if topics is not None:
            start_ms = topics.start(directory)
        first_ms = max(clock.now_ms(), start_ms) + options.warmup * 1_000
        span = Span(first_ms, first_ms + options.seconds * 1_000)
        due = due_windows(spark, options, inputs, span) if topics is None else topics.due(span)
        collector = Collector(due, span)
        runtime.observe(collector)
        conductor = Conductor(runtime, counted, clock, collector, span, progress)
        runtime.run(until=conductor if topics is None else topics.checked(conductor))
        if topics is not None:
            topics.close()
        seen = Measured(
            span=span,
            due=due,
            out=collector.out,
            events=sum(report.events for report in collector.steps),
            steps=len(collector.steps),
            served=sum(len(report.queries) for report in collector.steps),
            late_rows=conductor.late_rows,
            decide_ms=conductor.decide_ms,
            swm_coverage=runtime.sweep_coverage.share,
            cost_error=runtime.cost_error,
            state_peak_bytes=conductor.state_peak_bytes,
            lag_peak=conductor.lag_peak,
            arrivals_per_s=conductor.arrivals_per_s,
            times=mean_times(collector.steps),
            own_step_ms=by_query(options, own_step_ms),
        )
    return figures(options, policy, seen), span


def _deploy(
    spark: SparkSession,
    options: BenchOptions,
    runtime: sw.Runtime,
    sink: Sink,
    start_ms: int,
    topics: TopicFeed | None,
) -> list[QueryInputs]:
    """Deploy all queries, dealing the templates out in turn; return their inputs."""
    workload = workload_of(options)
    apps = [
        workload.app(spark, sink, phase=options.phase, variant=variant)
        for variant in range(options.distinct)
    ]
    inputs = inputs_of(options, start_ms)
    for number, generated in enumerate(inputs):
        sources: Mapping[str, SourceDescription] = generated
        if topics is not None:
            sources = {"events": topics.source(number)}
        runtime.deploy(apps[number % len(apps)], query_name(number), reset=False, **sources)
    return inputs
