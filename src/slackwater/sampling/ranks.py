"""Quantiles and extremes of a sample, and what can be said of them.

A quantile's interval is found among the ranks (R. Woodruff, "Confidence intervals for medians and
other position measures", JASA 47, 1952): the share of records below the estimate is a mean like any
other; its bounds are ranks, and the quantiles at those are the bounds of the result. No density
has to be known. A minimum or maximum cannot be bounded by a sample at all, on the far side: the
record that matters may be one that was not taken.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slackwater.sampling.estimates import Intervals, Linearised, MeanError
from slackwater.sampling.strata import Floats, Strata, variance
from slackwater.sampling.targets import Target


def quantile(
    strata: Strata,
    points: Sequence[Floats],
    rows: Sequence[Floats],
    p: float,
    target: Target,
    *,
    rank_error: float = 0.0,
    caution: float = 1.0,
    bias: float = 0.0,
) -> tuple[Intervals, Linearised]:
    """Estimate one group's quantile from each stratum's values.

    `rows` says of each value for how many sampled rows it stands; `rank_error` is what a sketch
    that gave the values may be off by.
    """
    values, held = np.concatenate(points), np.concatenate(rows)
    if not len(values):
        nothing, empty = np.array([np.nan]), np.zeros((1, len(points)))
        return (
            Intervals(nothing, nothing, nothing),
            Linearised(nothing, empty, empty, np.array([0.0])),
        )
    stratum = np.repeat(np.arange(len(points)), [len(each) for each in points])
    weights = held * strata.weights[stratum]
    order = np.argsort(values, kind="stable")
    ordered, heights = values[order], np.cumsum(weights[order])

    def at(rank: float) -> float:
        place = int(np.searchsorted(heights, (rank - 1e-12) * heights[-1]))
        return float(ordered[min(max(place, 0), len(ordered) - 1)])

    value = at(p)
    below = np.bincount(stratum, held * (values <= value), len(points)).astype(np.float64)
    counts = np.bincount(stratum, held, len(points)).astype(np.float64)
    share = MeanError().linearise(
        strata, {"n": counts[None, :], "s1": below[None, :], "s2": below[None, :]}
    )
    deviation = float(np.sqrt(variance(strata, share.sums, share.squares))[0])
    half = caution * target.deviations_of(float(held.sum())) * deviation + rank_error
    half += bias * strata.missing
    # Beyond the outermost value of the sample, nothing is known.
    low = at(p - half) if half == 0 or (p - half) * heights[-1] > weights[order][0] else np.nan
    beyond = (1 - p - half) * heights[-1] <= weights[order][-1]
    high = np.nan if half > 0 and beyond else at(p + half)
    found = Intervals(np.array([value]), np.array([low]), np.array([high]))
    # What a record moves the value by: its effect on the rank, times the slope of value over rank.
    reach = (at(min(p + half, 1.0)) - at(max(p - half, 0.0))) / 2
    slope = reach / half if half > 0 else 0.0
    return found, Linearised(
        np.array([value]), share.sums * slope, share.squares * slope**2, share.rows
    )


def extreme(value: Floats, *, largest: bool, complete: bool) -> Intervals:
    """Bound minima or maxima on the one side that a sample can bound; both if it is complete."""
    unknown = np.full_like(value, np.nan)
    if complete:
        return Intervals(value, value, value)
    return Intervals(value, value, unknown) if largest else Intervals(value, unknown, value)
