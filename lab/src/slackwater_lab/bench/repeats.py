"""What several runs of the same comparison come to: means, and how far they can be trusted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from slackwater.progress.student import student_factor

CONFIDENCE: Final = 0.95
SUMMARISED: Final = (
    "mean_ms",
    "p50_ms",
    "p95_ms",
    "p99_ms",
    "max_ms",
    "propagation_mean_ms",
    "propagation_p50_ms",
    "propagation_p99_ms",
    "slowdown_mean",
    "slowdown_p99",
    "windows_fired",
    "windows_due",
    "events_per_s",
    "steps",
    "queries_per_step",
    "cpu_share",
    "memory_peak_mb",
    "overhead_share",
    "swm_coverage",
)
RATIOS: Final = ("mean_ms", "p99_ms", "propagation_mean_ms", "propagation_p99_ms")


@dataclass(frozen=True)
class Interval:
    """Hold a mean over runs, and the interval that holds the true one with 95 % confidence.

    One run says nothing about others: its interval is unknown (None).
    """

    mean: float
    low: float | None
    high: float | None
    runs: int


def summary(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sum up each policy over its runs: an interval for each figure that every run has.

    `ratios` compare with the first policy, run by run: the runs of one seed saw the same events.
    """
    policies = list(dict.fromkeys(result["policy"] for result in results))
    runs = {
        policy: {it["seed"]: it for it in results if it["policy"] == policy} for policy in policies
    }
    return [
        {
            "policy": policy,
            "seeds": sorted(runs[policy]),
            **{name: _over(list(runs[policy].values()), name) for name in SUMMARISED},
            "ratios": {name: _ratio(runs[policy], runs[policies[0]], name) for name in RATIOS},
        }
        for policy in policies
    ]


def interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Estimate a mean, by Student's t.

    >>> interval([1.0, 2.0, 3.0])
    Interval(mean=2.0, low=-0.4841, high=4.4841, runs=3)
    """
    mean, count = float(np.mean(values)), len(values)
    if count < 2:
        return Interval(round(mean, 4), None, None, count)
    error = float(np.std(values, ddof=1)) / math.sqrt(count)
    reach = student_factor(confidence, count - 1) * error
    return Interval(round(mean, 4), round(mean - reach, 4), round(mean + reach, 4), count)


def _over(runs: Sequence[dict[str, Any]], name: str) -> dict[str, Any] | None:
    values = [run.get(name) for run in runs]
    known = [float(value) for value in values if value is not None]
    return asdict(interval(known)) if known and len(known) == len(values) else None


def _ratio(
    runs: dict[int, dict[str, Any]], base: dict[int, dict[str, Any]], name: str
) -> dict[str, Any] | None:
    seeds = sorted(runs.keys() & base.keys())
    if not all(runs[seed].get(name) is not None and base[seed].get(name) for seed in seeds):
        return None
    ratios = [float(runs[seed][name]) / float(base[seed][name]) for seed in seeds]
    return asdict(interval(ratios)) if ratios else None
