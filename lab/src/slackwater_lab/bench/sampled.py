"""Measure bounded results against waiting for everything: latency, errors, and the share sampled.

Four ways to close windows, on the same events: `default` waits as long as the slowest record has
ever taken (K-Slack) and uses every event; `aq_k_slack` uses all that has come once few enough are
missing; `patient` samples but waits like the first; `early` samples and closes as soon as that is
enough. Errors are those of the first pane of each window against one batch over all events.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import wraps
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from pyspark.sql import SparkSession

import slackwater as sw
from slackwater.app.bounds import ErrorWish, SamplingMethod, bound_names
from slackwater.app.outputs import Output
from slackwater.errors import DescriptionError
from slackwater.progress.arrivals import stream_salt
from slackwater.runtime.clock import SystemClock
from slackwater.runtime.reports import PaneReport, StepReport
from slackwater.runtime.sampler import QuerySampler
from slackwater.sampling.audits import binomial_tail
from slackwater.spark.latebound import fixed_specification
from slackwater.spark.sinks.base import PANE_COLUMNS
from slackwater.spark.sources.base import Range
from slackwater.spark.sources.generator import Generator
from slackwater.testing.batches import batch_panes
from slackwater_lab.bench.sampled_apps import SAMPLED_APPS, WINDOW_MS, SampledApp
from slackwater_lab.simulate.sampled import STREAMS

METHODS: Final[dict[str, SamplingMethod | None]] = {
    "default": None,
    "aq_k_slack": "slack",
    "patient": "patient",
    "early": "early",
}
Place = tuple[str, int]  # a window, by its query and its end in milliseconds
_LATEST_S: Final = 10.0  # after the last window, every event of it has arrived
_NO_KEYS: Final = {*PANE_COLUMNS, *bound_names([])}


@dataclass(frozen=True)
class SampledRun:
    """Say what to measure: an app, a stream (CC, GG, EC, EG) and a rate, for so many seconds."""

    workload: str = "ysb"
    stream: str = "EG"
    rate: float = 5_000.0
    seconds: float = 45.0
    warmup: float = 20.0
    error: float = 0.05
    confidence: float = 0.95
    groups: float | None = None
    queries: int = 4
    seed: int = 7
    methods: tuple[str, ...] = tuple(METHODS)

    def __post_init__(self) -> None:
        """Refuse what is unknown."""
        for field, value, known in (
            ("workload", self.workload, tuple(SAMPLED_APPS)),
            ("stream", self.stream, tuple(STREAMS)),
            *(("methods", method, tuple(METHODS)) for method in self.methods),
        ):
            if value not in known:
                raise DescriptionError(f"{field}={value!r} is unknown: use one of {known}")
        for field, number, least in (
            ("rate", self.rate, 10.0),
            ("seconds", self.seconds, 1.0),
            ("warmup", self.warmup, 10.0),
            ("queries", self.queries, 1),
        ):
            if not math.isfinite(number) or number < least:
                raise DescriptionError(f"{field}={number!r} cannot be: give {least:g} or more")

    @property
    def wish(self) -> ErrorWish:
        """Return the wish of the method that samples early."""
        return sw.within(self.error, confidence=self.confidence, groups=self.groups)


class _Panes:
    """Note the first pane of each window, and the time its step took by parts."""

    def __init__(self) -> None:
        self.first: dict[Place, PaneReport] = {}
        self.steps: list[StepReport] = []

    def step_committed(self, report: StepReport) -> None:
        """Take note of a step."""
        self.steps.append(report)
        for pane in report.panes:
            self.first.setdefault((pane.query, pane.window_end_ms), pane)


def _places(step: StepReport) -> list[Place]:
    return [(pane.query, pane.window_end_ms) for pane in step.panes]


class PlanningWatch:
    """Sum the processor time that samplers take to plan, and to learn from what they see."""

    _WATCHED: Final = ("closes_at_ms", "planned", "advance", "learned", "committed")

    def __init__(self) -> None:
        self.spent_ms = 0.0
        self._unwatched: dict[str, Any] = {}

    def __enter__(self) -> Self:
        for name in self._WATCHED:
            method = getattr(QuerySampler, name)
            self._unwatched[name] = method
            setattr(QuerySampler, name, self._watched(method))
        return self

    def __exit__(self, *_: object) -> None:
        for name, method in self._unwatched.items():
            setattr(QuerySampler, name, method)

    def _watched(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def watched(*arguments: Any, **named: Any) -> Any:
            started = time.thread_time()
            try:
                return method(*arguments, **named)
            finally:
                self.spent_ms += (time.thread_time() - started) * 1_000

        return watched


def measure(spark: SparkSession, run: SampledRun, method: str, directory: Path) -> dict[str, Any]:
    """Measure one method; each has a runtime and a stream of its own, alike but for its start."""
    app_of = SAMPLED_APPS[run.workload]
    sink, wished = sw.memory(), METHODS[method]
    wish = None if wished is None else replace(run.wish, method=wished)
    app, output = app_of.app(spark, sink, wish)
    clock, panes = SystemClock(), _Panes()
    with sw.Runtime(spark, journal=directory / method, clock=clock) as runtime:
        # The stream starts when the query is deployed and planned, or there would be a backlog.
        start_ms = (int(clock.now_ms()) // WINDOW_MS + 3) * WINDOW_MS
        waits = wished in (None, "patient")
        sources = {
            f"query-{number}": _source(run, app_of, start_ms, number, k_slack=waits)
            for number in range(run.queries)
        }
        for name, source in sources.items():
            runtime.deploy(app, name, events=source)
        runtime.warm()
        runtime.observe(panes)
        with PlanningWatch() as planning:
            runtime.run(seconds=(start_ms - clock.now_ms()) / 1_000 + run.warmup + run.seconds)
        for report in runtime.queries():
            if report.quarantined is not None:
                raise DescriptionError(f"{method} was stopped: {report.quarantined}")
    first_ms = start_ms + 1_000 * run.warmup
    counted = {at: pane for at, pane in panes.first.items() if at[1] - WINDOW_MS >= first_ms}
    kept = {*_NO_KEYS, *output.by, *bound_names([app_of.aggregate])}
    first = [row for row in sink.rows() if row["pane"] == 0 and _place(row) in counted]
    # Rows of a function's result all tell of the same number.
    apart = {(_place(row), *(row[key] for key in output.by)): row for row in first}
    rows = [{key: row[key] for key in row if key in kept} for row in apart.values()]
    truth: dict[tuple[Any, ...], float] = {}
    for name, source in sources.items():
        truth |= _truth(spark, run, output, app_of.aggregate, name, source, counted)
    # Windows that the query learned from were taken whole: their steps are left out.
    others = {at for at in panes.first if at not in counted}
    steps = [
        step
        for step in panes.steps
        if step.committed_ms >= first_ms and others.isdisjoint(_places(step))
    ]
    closing = [step for step in steps if step.panes]
    return {
        **asdict(run),
        "methods": None,
        "method": method,
        **_latencies(list(counted.values())),
        **_errors(run, app_of.aggregate, rows, truth),
        "work_ms": round(sum(step.times.run for step in steps) / len(counted), 1),
        "estimate_ms": round(float(np.mean([step.times.merge for step in closing])), 2),
        "plan_ms": round(planning.spent_ms / max(len(panes.first), 1), 3),
    }


def _source(
    run: SampledRun, app: SampledApp, start_ms: int, number: int, *, k_slack: bool
) -> Generator:
    delay, gap = STREAMS[run.stream]
    further = {"watermark": sw.k_slack()} if k_slack else {}
    seed = stream_salt(run.seed, number)
    return app.source(rate=run.rate, delay=delay, gap=gap, seed=seed, start_ms=start_ms, **further)


def _truth(
    spark: SparkSession,
    run: SampledRun,
    output: Output,
    aggregate: str,
    query: str,
    source: Generator,
    windows: Mapping[Place, object],
) -> dict[tuple[Any, ...], float]:
    """Compute the windows as one batch over every event, those still to arrive included."""
    reader = source.open(spark)
    events = int(run.rate * (run.warmup + run.seconds + _LATEST_S))
    entry = reader.entry(0, Range(0, 0, events, events))
    entries = fixed_specification(spark, [[json.dumps([entry])]]).selectExpr(
        f"explode(from_json(s0, 'array<{reader.entry_type}>')) AS r"
    )
    ends = [end_ms for _, end_ms in windows]
    time = f"unix_millis(`{source.event_time}`)"
    counted = reader.expand(entries).where(
        f"{time} >= {min(ends) - WINDOW_MS}L AND {time} < {max(ends)}L"
    )
    counted = counted.cache()  # a function is run window by window
    batch = batch_panes(output, {"events": counted}, event_time=source.event_time, query=query)
    found = {
        (*_place(row), *(row[key] for key in output.by)): float(row[aggregate])
        for row in batch.toArrow().to_pylist()
        if _place(row) in windows
    }
    counted.unpersist()
    return found


def _latencies(panes: Sequence[PaneReport]) -> dict[str, Any]:
    latencies = [pane.latency_ms for pane in panes]
    return {
        "windows": len(panes),
        "mean_ms": round(float(np.mean(latencies)), 1),
        "p50_ms": round(float(np.percentile(latencies, 50)), 1),
        "p99_ms": round(float(np.percentile(latencies, 99)), 1),
        "early": sum(pane.timing == "early" for pane in panes),
    }


def _errors(
    run: SampledRun,
    name: str,
    rows: Sequence[dict[str, Any]],
    truth: Mapping[tuple[Any, ...], float],
) -> dict[str, Any]:
    """Compare with the truth: each group where groups count, else the total of each window."""
    found: dict[tuple[Any, ...], float] = {}
    held = []
    for row in rows:
        keys = [value for key, value in row.items() if key not in _NO_KEYS and name not in key]
        place = (*_place(row), *keys)
        found[place] = row[name]
        if row.get(f"{name}_low") is not None and place in truth:
            held.append(row[f"{name}_low"] <= truth[place] * (1 + 1e-9))
            held[-1] &= truth[place] * (1 - 1e-9) <= row[f"{name}_high"]
    if run.groups is None:
        found, truth = _totals(found), _totals(truth)
    errors = [abs(found.get(place, 0.0) / exact - 1) for place, exact in truth.items() if exact]
    misses = sum(error > run.error for error in errors)
    shares = {_place(row): row["accuracy"] for row in rows}
    met = [row["met"] for row in rows if row.get("met") is not None]
    return {
        "results": len(errors),
        "within": round(1 - misses / len(errors), 4),
        "binomial_p": round(binomial_tail(len(errors), 1 - run.confidence, misses), 3),
        "error_mean": round(float(np.mean(errors)), 5),
        "error_max": round(float(np.max(errors)), 5),
        "bounds_held": round(float(np.mean(held)), 4) if held else None,
        "met": round(float(np.mean(met)), 4) if met else None,
        "sampled_share": round(float(np.mean(list(shares.values()))), 4),
    }


def _totals(values: Mapping[tuple[Any, ...], float]) -> dict[tuple[Any, ...], float]:
    """Add up the groups of each window (a mean has one group)."""
    totals: dict[tuple[Any, ...], float] = {}
    for place, value in values.items():
        totals[place[:2]] = totals.get(place[:2], 0.0) + value
    return totals


def _place(row: Mapping[str, Any]) -> Place:
    """Name the window of a row by its query and end."""
    since = row["window_end"] - datetime(1970, 1, 1, tzinfo=UTC)
    return row["query"], since // timedelta(milliseconds=1)
