"""Slack: how long a query can idle and still not be late.

Klink's slack (Farhan et al., SIGMOD 2021, section 3) is `E[w | w >= t] - t - cost`: the time until
the sweeping watermark (the one that closes the query's next window) is expected, given that it has
not come yet, less the time to take what is queued through to the sink. The paper adds it up over
cells of one scheduling cycle; with `w` normal it is the mean of a truncated normal distribution, in
closed form for all queries at once. (Cells before `t` have probability 0, and standardising divides
by the standard deviation: the printed Eq. 9 and 10 have it otherwise.)

>>> wait = expected_wait_ms(np.array([500.0]), np.array([0.0]), now_ms=200.0)
>>> float(wait[0])
300.0
>>> late = expected_wait_ms(np.array([500.0]), np.array([100.0]), now_ms=900.0)
>>> 20 < float(late[0]) < 30  # it should have come long ago: any moment now
True
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_EDGE = 8.0


def _hazard(a: float) -> float:
    """Return `phi(a) / (1 - Phi(a))`; by its asymptotic series where both are next to nothing."""
    if a > _EDGE:
        return a + 1 / a - 2 / a**3 + 10 / a**5
    if a < -_EDGE:
        return 0.0
    return math.exp(-a * a / 2) / math.sqrt(2 * math.pi) / (math.erfc(a / math.sqrt(2)) / 2)


_GRID = np.linspace(-_EDGE, _EDGE, 3_201)
_HAZARDS = np.array([_hazard(a) for a in _GRID.tolist()])


def normal_hazard(standardised: Floats) -> Floats:
    """Return `phi(a) / (1 - Phi(a))`: the mean excess of a standard normal cut off below `a`.

    Interpolated in a table (to 1e-5), and by its asymptotic series beyond.
    """
    within: Floats = np.interp(standardised, _GRID, _HAZARDS)
    far = np.maximum(standardised, _EDGE)
    series: Floats = far + 1 / far - 2 / far**3 + 10 / far**5
    return np.where(standardised > _EDGE, series, within)


def expected_wait_ms(mean_ms: Floats, deviation_ms: Floats, now_ms: float) -> Floats:
    """Return `E[w | w >= now] - now` of normal arrivals; a certain one in the past gives 0."""
    certain = deviation_ms <= 0
    deviation = np.where(certain, 1.0, deviation_ms)
    standardised = (now_ms - mean_ms) / deviation
    uncertain = mean_ms + deviation * normal_hazard(standardised) - now_ms
    return np.maximum(np.where(certain, mean_ms - now_ms, uncertain), 0.0)


def expected_wait_of_one_ms(mean_ms: float, deviation_ms: float, now_ms: float) -> float:
    """Return `expected_wait_ms` of a single arrival, without the cost of arrays.

    >>> round(expected_wait_of_one_ms(500.0, 100.0, now_ms=900.0), 3)
    22.561
    """
    if deviation_ms <= 0:
        return max(mean_ms - now_ms, 0.0)
    standardised = (now_ms - mean_ms) / deviation_ms
    return max(mean_ms + deviation_ms * _hazard(standardised) - now_ms, 0.0)


def slack_ms(sweep_ms: Floats, deviation_ms: Floats, cost_ms: Floats, now_ms: float) -> Floats:
    """Return the slack of queries whose watermark is yet to come."""
    return expected_wait_ms(sweep_ms, deviation_ms, now_ms) - cost_ms


def overdue_slack_ms(sweep_ms: float, cost_ms: float, now_ms: float) -> float:
    """Return the slack of a query whose watermark has come: it is overdue since then."""
    return sweep_ms - now_ms - cost_ms
