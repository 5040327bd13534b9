"""Quantiles of Student's t distribution, for intervals from a handful of observations."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

_MANY = 60


@lru_cache(maxsize=4_096)
def student_factor(confidence: float, degrees: int) -> float:
    """Return how many deviations either side of the mean hold this share of the distribution.

    >>> [round(student_factor(0.95, degrees), 3) for degrees in (1, 2, 5, 38)]
    [12.706, 4.303, 2.571, 2.024]
    """
    if degrees > _MANY:
        return _nearly_normal(confidence, degrees)
    low, high = 0.0, 1.0
    while _share_within(high, degrees) < confidence:
        low, high = high, 2.0 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _share_within(middle, degrees) < confidence else (low, middle)
    return high


def _share_within(deviations: float, degrees: int) -> float:
    """Return the probability of at most so many deviations from the mean, either way.

    Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.7.3 and 26.7.4.
    """
    angle = math.atan(deviations / math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    if degrees == 1:
        return angle * 2 / math.pi
    term = total = cosine if degrees % 2 else 1.0
    for k in range(2 + degrees % 2, degrees - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    return (angle + sine * total) * 2 / math.pi if degrees % 2 else sine * total


def _nearly_normal(confidence: float, degrees: int) -> float:
    """Correct the normal quantile for many degrees of freedom (26.7.5 there)."""
    z = NormalDist().inv_cdf((1.0 + confidence) / 2)
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
