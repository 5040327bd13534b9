"""The quantiles of the last few hundred lags, exact within their window.

Sketches such as KLL or t-digest are made for streams too long to keep, and they never forget. Here
the opposite is wanted: only the newest lags count, so that the estimate follows the network, and
of those there are few. A KLL sketch good to 1 % of rank holds some 400 numbers itself; so do we,
and have no error at all. Windows merge like sketches do: the newest lags of both, in any order.

>>> lags = RecentLags(kept=3)
>>> for at_ms, lag_ms in enumerate([900.0, 20.0, 10.0, 30.0]):
...     lags.add(at_ms, lag_ms)
>>> lags.quantile_ms(0.5), lags.mean_ms, round(lags.deviation_ms)
(20.0, 20.0, 10)
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

from slackwater.errors import DescriptionError
from slackwater.progress.epochs import HISTORY
from slackwater.progress.ring import Pair, PairRing
from slackwater.progress.tables import Floats


class RecentLags:
    """Hold the newest lags, in order of time and in order of size.

    Adding costs a binary search and a move within `kept` sorted numbers: two microseconds.
    """

    def __init__(self, kept: int = HISTORY) -> None:
        self._timed = PairRing(kept)
        self._sorted = array("d")
        self._sum_anew()

    def __len__(self) -> int:
        return len(self._timed)

    def __iter__(self) -> Iterator[Pair]:
        """List times and lags, oldest first: all there is to know, fit to be sent elsewhere."""
        return iter(self._timed)

    def add(self, at_ms: float, lag_ms: float) -> None:
        """Take in the newest lag; the oldest goes when there are too many."""
        if not self._sorted:
            self._base_ms = lag_ms
        displaced = self._timed.append((at_ms, lag_ms))
        if displaced is not None:
            _, gone_ms = displaced
            del self._sorted[bisect_left(self._sorted, gone_ms)]
            self._count_in(gone_ms, -1)
        insort(self._sorted, lag_ms)
        self._count_in(lag_ms, 1)
        self._until_summed_anew -= 1
        if not self._until_summed_anew:
            self._sum_anew()

    def keep_last(self, lags: int) -> None:
        """Forget all but the newest lags."""
        self._timed.keep_last(lags)
        self._sorted = array("d", sorted(lag_ms for _, lag_ms in self._timed))
        self._sum_anew()

    def merged(self, other: RecentLags) -> RecentLags:
        """Return the newest lags of both, from partitions or nodes that saw the same stream."""
        merged = RecentLags(max(self._timed.kept, other._timed.kept))
        for at_ms, lag_ms in sorted([*self, *other])[-merged._timed.kept :]:
            merged.add(at_ms, lag_ms)
        return merged

    def columns(self) -> tuple[Floats, Floats]:
        """Return times and lags as arrays, in no particular order."""
        return self._timed.columns()

    def quantile_ms(self, p: float) -> float:
        """Return the lag that the *next* one stays within with probability `p`.

        The next lag is as likely to fall into any of the `n + 1` gaps between `n` lags, so the
        quantile stands at place `p * (n + 1)`; outside the lags seen it is the outermost.
        """
        if not self._sorted:
            raise DescriptionError("there are no quantiles of no lags: add one first")
        place = p * (len(self._sorted) + 1) - 1
        below = math.floor(place)
        if below < 0:
            return self._sorted[0]
        if below + 1 >= len(self._sorted):
            return self._sorted[-1]
        low_ms, high_ms = self._sorted[below], self._sorted[below + 1]
        return low_ms + (place - below) * (high_ms - low_ms)

    def share_below(self, lag_ms: float) -> float:
        """Tell where among these lags a new one would stand: evenly spread over (0, 1).

        Ties count half, so that lags that never change stand in the middle.
        """
        doubled = bisect_left(self._sorted, lag_ms) + bisect_right(self._sorted, lag_ms)
        return (doubled + 1) / (2 * len(self._sorted) + 2)

    @property
    def least_ms(self) -> float:
        """Return the smallest lag."""
        return self._sorted[0]

    @property
    def mean_ms(self) -> float:
        """Return the mean lag."""
        return self._base_ms + self._sum_ms / len(self)

    @property
    def deviation_ms(self) -> float:
        """Return the standard deviation of the lags; 0 where there are fewer than two."""
        n = len(self)
        if n < 2:
            return 0.0
        return math.sqrt(max(self._sum_ms2 - self._sum_ms**2 / n, 0.0) / (n - 1))

    def _count_in(self, lag_ms: float, times: int) -> None:
        from_base_ms = lag_ms - self._base_ms
        self._sum_ms += times * from_base_ms
        self._sum_ms2 += times * from_base_ms * from_base_ms

    def _sum_anew(self) -> None:
        # Lags of replayed data are years, differing by milliseconds: sums are taken from a lag in
        # the middle, or their squares would lose the difference. Done once in a window's length,
        # it also keeps rounding errors from piling up.
        self._base_ms = self._sorted[len(self._sorted) // 2] if self._sorted else 0.0
        self._sum_ms = math.fsum(lag_ms - self._base_ms for lag_ms in self._sorted)
        self._sum_ms2 = math.fsum((lag_ms - self._base_ms) ** 2 for lag_ms in self._sorted)
        self._until_summed_anew = self._timed.kept
