"""Estimates with intervals, each written as a sum over records: then all share one variance.

An estimator *linearises*: it says how much each sampled record moves the result. A count or a sum
is such a sum as it stands; a mean, a variance and a quantile are ratios, and move by each record's
deviation from the ratio (C. Sarndal, B. Swensson, J. Wretman, "Model Assisted Survey Sampling",
1992, chapter 5). From the same two numbers come the interval of this window, and the *spread* that
says how many records the next one needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from slackwater.sampling.strata import Floats, Strata, totals, variance
from slackwater.sampling.targets import Target


@dataclass(frozen=True, eq=False)
class Linearised:
    """Hold, for each group, an estimate, and by stratum how much its records moved it.

    `rows` is how many sampled rows each estimate rests on. `by_ratio` says that estimates err by
    factors rather than by differences: bounds then lie at equal ratios from the estimate.
    """

    value: Floats
    sums: Floats
    squares: Floats
    rows: Floats
    by_ratio: bool = False


@dataclass(frozen=True)
class Spread:
    """Say how far one record moves a result, relative to it: all that a sample size depends on.

    With `n` of `N` records sampled, and all arrived, the relative variance is
    `sampling * (1/n - 1/N)`; records that do not arrive add `arrival` times their share.
    """

    sampling: float
    arrival: float

    def __or__(self, other: Spread) -> Spread:
        """Return what is enough for both."""
        return Spread(max(self.sampling, other.sampling), max(self.arrival, other.arrival))


@dataclass(frozen=True, eq=False)
class Intervals:
    """Hold, for each group, an estimate and the bounds it lies between; NaN: there is no bound."""

    value: Floats
    low: Floats
    high: Floats

    def relative(self) -> Floats:
        """Return how far the farther bound is, relative to the estimate; infinity where unknown."""
        half = np.maximum(self.high - self.value, self.value - self.low)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.where(half == 0.0, 0.0, half / np.abs(self.value))
        return np.where(np.isnan(found), np.inf, found)


class ErrorFunction(Protocol):
    """Say how an aggregate behaves under sampling (`applied` is for functions of users' own).

    It gets the sums that it asked for, and returns the estimate with how far each record moves it.
    """

    def linearise(self, strata: Strata, sums: dict[str, Floats]) -> Linearised:
        """Estimate, for each group, from what was summed up by group and stratum."""
        ...


@dataclass(frozen=True)
class TotalError:
    """Estimate a count or a sum: each record adds its value. Sums: `n`, `s1`, `s2`."""

    counts: bool = False

    def linearise(self, strata: Strata, sums: dict[str, Floats]) -> Linearised:
        """Weigh up."""
        n = sums["n"]
        first, second = (n, n) if self.counts else (sums["s1"], sums["s2"])
        return Linearised(totals(strata, first), first, second, n.sum(axis=1))


class MeanError:
    """Estimate a mean as a ratio of totals. Sums: `n`, `s1`, `s2`."""

    def linearise(self, strata: Strata, sums: dict[str, Floats]) -> Linearised:
        """Divide; a record moves the mean by its distance from it."""
        n, first, second = sums["n"], sums["s1"], sums["s2"]
        count = np.maximum(totals(strata, n), 1e-300)[:, None]
        mean = totals(strata, first)[:, None] / count
        moved = (first - mean * n) / count
        squares = np.maximum(second - 2.0 * mean * first + mean * mean * n, 0.0) / count**2
        return Linearised(mean[:, 0], moved, squares, n.sum(axis=1))


@dataclass(frozen=True)
class VarianceError:
    """Estimate a variance or deviation from central moments. Sums: `n`, `mean`, `m2`, `m3`, `m4`.

    Moments are about each stratum's own mean, so that a small variance around a large mean keeps
    its digits.
    """

    root: bool = False

    def linearise(self, strata: Strata, sums: dict[str, Floats]) -> Linearised:
        """Move all moments to the common mean; a record moves the variance by its square."""
        n, m2, m3, m4 = (sums[each] for each in ("n", "m2", "m3", "m4"))
        count = np.maximum(totals(strata, n), 1e-300)[:, None]
        mean = totals(strata, n * sums["mean"])[:, None] / count
        off = np.where(n > 0, sums["mean"] - mean, 0.0)
        second = m2 + n * off**2
        fourth = m4 + 4 * off * m3 + 6 * off**2 * m2 + n * off**4
        spread = totals(strata, second)[:, None] / count
        moved = (second - spread * n) / count
        squares = np.maximum(fourth - 2 * spread * second + spread**2 * n, 0.0) / count**2
        # Like the batch: divided by one less than the number of rows.
        unbiased = count / np.maximum(count - 1.0, 1e-12)
        value = np.where(count > 1.0, spread * unbiased, np.nan)[:, 0]
        if self.root:
            value = np.sqrt(value)
            slope = np.divide(0.5, value, out=np.zeros_like(value), where=value > 0)[:, None]
            moved, squares = moved * slope, squares * slope**2
        return Linearised(value, moved, squares, n.sum(axis=1), by_ratio=True)


def intervals(
    strata: Strata, found: Linearised, target: Target, *, caution: float = 1.0, bias: float = 0.0
) -> Intervals:
    """Return the interval around each estimate that holds the truth with the confidence wanted.

    `caution` widens it, where audits found that intervals held too seldom, and `bias` by what
    results are off for each share that is missing.
    """
    deviations = np.sqrt(variance(strata, found.sums, found.squares))
    factors = np.array([target.deviations_of(rows) for rows in found.rows.tolist()])
    half = np.where(deviations > 0, caution * factors * deviations, 0.0)
    half = half + bias * strata.missing * np.abs(found.value)
    if not found.by_ratio:
        return Intervals(found.value, found.value - half, found.value + half)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.exp(np.minimum(np.where(half > 0, half / found.value, 0.0), 700.0))
    return Intervals(found.value, found.value / ratio, found.value * ratio)


def spreads(
    strata: Strata, found: Linearised, population: Floats | float | None = None
) -> list[Spread]:
    """Return, for each group, how far one record moves the result, relative to it.

    The records are those of the window, or `population` of them in each group.
    """
    population = strata.population if population is None else population
    square = (found.squares @ strata.weights) * population
    mean = found.sums @ strata.weights
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(found.value != 0, 1.0 / found.value**2, np.inf)
        arrival = np.where(square > 0, square * relative, 0.0)
        inner = np.maximum(square - mean * mean, 0.0)
        sampling = np.where(inner > 1e-12 * square, inner * relative, 0.0)
    return [Spread(s, a) for s, a in zip(sampling.tolist(), arrival.tolist(), strict=True)]
