"""How many records are enough: the classic formula, and rates for sub-streams that still arrive.

>>> wanted = {"relative": 0.05, "deviations": 1.96, "mean": 10.0, "deviation": 10.0}
>>> round(mean_sample_size(**wanted, population=15_000))
1394
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slackwater.sampling.estimates import Spread

LEAST_SAMPLED = 30.0  # records of each sub-stream, so that spreads can be learned at all


def mean_sample_size(
    *, relative: float, deviations: float, mean: float, deviation: float, population: float
) -> float:
    """Return how many of all records a mean, or a sum, needs (finite population; eq. 4.4)."""
    squared = (deviations * deviation) ** 2
    return squared / ((relative * mean) ** 2 + squared / population)


@dataclass(frozen=True)
class Stretch:
    """Say of one sub-stream how many records it will have, and which share is here by then."""

    expected: float
    share: float


def arrival_variance(stretches: Sequence[Stretch], spread: Spread) -> float:
    """Return the relative variance that stays when every record that has arrived is taken."""
    whole = sum(each.expected for each in stretches)
    missing = sum(each.expected * (1.0 - each.share) / each.share for each in stretches)
    return spread.arrival * missing / whole**2


def sampled_share(stretches: Sequence[Stretch], spread: Spread, allowed: float) -> float | None:
    """Return the least share of all records to sample, for a relative variance within `allowed`.

    The share is the same in every sub-stream, so each has its part of the sample; one of which too
    little has arrived gives all it has, and the others make up for it. None: it cannot be done with
    what will have arrived.
    """
    whole = sum(each.expected for each in stretches)
    left = (allowed - arrival_variance(stretches, spread)) * whole**2
    if left <= 0.0:
        return None
    if spread.sampling <= 0.0:
        return 0.0
    # Taking all that arrived of the sub-streams that have least, one after the other, the share of
    # the others follows; it is the right one if it asks no more of them than they have.
    waiting = sorted(stretches, key=lambda each: each.share)
    size = sum(each.expected for each in waiting)
    taken = sum(each.expected / each.share for each in waiting)
    share = 1.0
    for each in waiting:
        share = spread.sampling * size / (left + spread.sampling * taken)
        if share <= each.share:
            return share
        size -= each.expected
        taken -= each.expected / each.share
    return 1.0


def rates_for(stretches: Sequence[Stretch], share: float) -> list[float]:
    """Turn the share of all records into rates of those that arrive; at least a few of each."""
    rates = []
    for each in stretches:
        arrived = max(each.expected * each.share, 1e-9)
        least = min(1.0, LEAST_SAMPLED / arrived)
        rates.append(min(1.0, max(share / max(each.share, 1e-9), least)))
    return rates


def group_share(stretches: Sequence[Stretch], part: float, spread: Spread, allowed: float) -> float:
    """Return the share to sample of a group that has a `part` of all records.

    A group's size is less sure than that of all: one with fewer records than expected must have
    enough of them too.
    """
    whole = part * sum(each.expected for each in stretches)
    sure = part * max(0.5, 1.0 - 1.0 / max(whole, 4.0) ** 0.5)
    mine = [Stretch(sure * each.expected, each.share) for each in stretches]
    share = sampled_share(mine, spread, allowed)
    arrived = sum(each.expected * each.share for each in mine)
    least = LEAST_SAMPLED / max(arrived, 1e-9)
    return min(1.0, 1.0 if share is None else max(share, least))
