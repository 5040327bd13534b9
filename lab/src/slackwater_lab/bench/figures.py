"""From moments to figures: what a run's windows, steps and decisions come to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np

from slackwater.runtime.reports import StepReport, StepTimes
from slackwater_lab.bench.options import BenchOptions
from slackwater_lab.workloads.due import Span, WindowKey

RESULT_FIELDS: Final = (
    "policy",
    "workload",
    "queries",
    "rate",
    "seconds",
    "seed",
    "delay",
    "mean_ms",
    "p50_ms",
    "p95_ms",
    "p99_ms",
    "max_ms",
    "propagation_mean_ms",
    "propagation_p50_ms",
    "propagation_p99_ms",
    "windows_fired",
    "windows_due",
    "events",
    "events_per_s",
    "steps",
    "queries_per_step",
    "cpu_share",
    "memory_peak_mb",
    "overhead_share",
    "swm_coverage",
)
FURTHER_FIELDS: Final = (
    "warmup",
    "distinct",
    "phase",
    "start",
    "load",
    "data",
    "durable",
    "sink",
    "source",
    "lag_peak",
    "arrivals_per_s",
    "trigger",
    "times",
    "decide_mean_ms",
    "decide_p99_ms",
    "late_rows",
    "cost_error",
    "state_peak_mb",
    "slowdown_mean",
    "slowdown_p50",
    "slowdown_p99",
)
PROFILE_FIELDS: Final = ("latencies_ms", "propagations_ms", "slowdowns", "windows")

_MB: Final = 1024 * 1024


@dataclass(frozen=True)
class Measured:
    """Hold what was seen of one policy within the span that counts.

    `due` maps each window that was due to the arrival of its closing watermark, `out` those that
    fired to the moment their on-time result was committed. `own_step_ms` maps each query to how
    long a step for it alone takes. What does not apply is None.
    """

    span: Span
    due: Mapping[WindowKey, float]
    out: Mapping[WindowKey, float]
    events: int
    steps: int
    served: int  # queries, summed over steps
    late_rows: int | None = None
    swm_coverage: float | None = None
    cost_error: float | None = None
    state_peak_bytes: int | None = None
    lag_peak: int | None = None  # records that had arrived and were not read, of all queries
    arrivals_per_s: float | None = None  # the mean of what was estimated for a query
    decide_ms: Sequence[float] | None = None
    times: Mapping[str, float] | None = None
    trigger: str | None = None
    own_step_ms: Mapping[str, float] | None = None


def figures(options: BenchOptions, policy: str, seen: Measured) -> dict[str, Any]:
    """Work out one policy's results; the machine's use is measured from outside and comes later."""
    fired = [key for key in seen.due if key in seen.out]
    latencies = [seen.out[key] - key[1] for key in fired]
    propagations = [seen.out[key] - seen.due[key] for key in fired]
    slowdowns = []
    if seen.own_step_ms is not None:
        slowdowns = [(seen.out[key] - seen.due[key]) / seen.own_step_ms[key[0]] for key in fired]
    decide_ms = seen.decide_ms
    result: dict[str, Any] = {
        "policy": policy,
        "workload": options.workload,
        "queries": options.queries,
        "rate": options.rate,
        "seconds": options.seconds,
        "seed": options.seed,
        "delay": options.delay,
        "mean_ms": _mean(latencies),
        "p50_ms": _percentile(latencies, 50),
        "p95_ms": _percentile(latencies, 95),
        "p99_ms": _percentile(latencies, 99),
        "max_ms": _percentile(latencies, 100),
        "propagation_mean_ms": _mean(propagations),
        "propagation_p50_ms": _percentile(propagations, 50),
        "propagation_p99_ms": _percentile(propagations, 99),
        "windows_fired": len(fired),
        "windows_due": len(seen.due),
        "events": seen.events,
        "events_per_s": round(seen.events / (seen.span.length_ms / 1_000), 1),
        "steps": seen.steps,
        "queries_per_step": round(seen.served / seen.steps, 2) if seen.steps else None,
        "cpu_share": None,
        "memory_peak_mb": None,
        "overhead_share": None
        if decide_ms is None
        else round(sum(decide_ms) / seen.span.length_ms, 5),
        "swm_coverage": _rounded(seen.swm_coverage),
        "warmup": options.warmup,
        "distinct": options.distinct,
        "phase": options.phase,
        "start": options.start,
        "load": options.load,
        "data": options.data,
        "durable": options.durable,
        "sink": options.sink,
        "source": options.source,
        "lag_peak": seen.lag_peak,
        "arrivals_per_s": seen.arrivals_per_s,
        "trigger": seen.trigger,
        "times": None if seen.times is None else dict(seen.times),
        "decide_mean_ms": _mean(decide_ms or ()),
        "decide_p99_ms": _percentile(decide_ms or (), 99),
        "late_rows": seen.late_rows,
        "cost_error": _rounded(seen.cost_error),
        "state_peak_mb": None
        if seen.state_peak_bytes is None
        else round(seen.state_peak_bytes / _MB, 3),
        "slowdown_mean": _mean(slowdowns),
        "slowdown_p50": _percentile(slowdowns, 50),
        "slowdown_p99": _percentile(slowdowns, 99),
    }
    if options.profile:
        result["latencies_ms"] = [round(value, 2) for value in latencies]
        result["propagations_ms"] = [round(value, 2) for value in propagations]
        result["slowdowns"] = [round(value, 2) for value in slowdowns]
        due_ms = [seen.due[key] for key in fired]
        result["windows"] = sorted(
            [round(value, 2) for value in window]
            for window in zip(due_ms, latencies, propagations, strict=True)
        )
    return result


def mean_times(reports: Sequence[StepReport]) -> dict[str, float] | None:
    """Average where steps spent their time; None where there were none."""
    if not reports:
        return None
    return {
        field.name: round(float(np.mean([getattr(r.times, field.name) for r in reports])), 3)
        for field in fields(StepTimes)
    }


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 4)


def _mean(values: Sequence[float]) -> float | None:
    return round(float(np.mean(values)), 2) if len(values) else None


def _percentile(values: Sequence[float], percent: float) -> float | None:
    return round(float(np.percentile(values, percent)), 2) if len(values) else None
