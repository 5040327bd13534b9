"""Periodic source watermarks: sent on a grid of time, and delayed like the data they travel with.

>>> from slackwater.progress.distributions import ConstantDelay
>>> sent = PeriodicWatermarks(ConstantDelay(30), salt=1, period_ms=100, lag_ms=40, start_ms=1_000)
>>> sent.at(1_129), sent.at(1_130), sent.sweep_arrival_ms(1_060)
(960, 1060, 1130)
"""

from __future__ import annotations

import math

import numpy as np

from slackwater.progress.arrivals import hash64, hash64_one, upper_uniform
from slackwater.progress.distributions import DelayDistribution

_CHUNK = 64
_CHUNKS_KEPT = 4


class PeriodicWatermarks:
    """Say which watermarks of one partition arrive when.

    Watermark `k` is sent at `k * period_ms` since the epoch, so that windows on that grid are met
    exactly. It says that event time `k * period_ms - lag_ms` has passed.
    """

    def __init__(
        self,
        delay: DelayDistribution,
        *,
        salt: int,
        period_ms: int,
        lag_ms: int,
        start_ms: int,
    ) -> None:
        self._delay = delay
        self._salt = np.uint64(hash64_one(salt + 1))
        self._period_ms = period_ms
        self._lag_ms = lag_ms
        self._first = -(-start_ms // period_ms)
        self._least_delay_ms = math.floor(delay.quantile(0.0))
        self._chunks: dict[int, list[int]] = {}

    def at(self, now_ms: float) -> int | None:
        """Return the highest watermark that has arrived by now; None where there is none yet."""
        k = int((now_ms - self._least_delay_ms) // self._period_ms)
        while k >= self._first:
            if self._arrival_ms(k) <= now_ms:
                return k * self._period_ms - self._lag_ms
            k -= 1
        return None

    def sweep_arrival_ms(self, deadline_ms: int) -> int:
        """Tell when the first watermark `>= deadline_ms` arrives: not always the first sent."""
        k = max(self._first, -(-(deadline_ms + self._lag_ms) // self._period_ms))
        earliest = self._arrival_ms(k)
        while (k + 1) * self._period_ms + self._least_delay_ms < earliest:
            k += 1
            earliest = min(earliest, self._arrival_ms(k))
        return earliest

    def _arrival_ms(self, k: int) -> int:
        chunk, place = divmod(k, _CHUNK)
        arrivals = self._chunks.get(chunk)
        if arrivals is None:
            arrivals = self._chunks[chunk] = self._draw(chunk)
            if len(self._chunks) > _CHUNKS_KEPT:
                del self._chunks[next(iter(self._chunks))]
        return arrivals[place]

    def _draw(self, chunk: int) -> list[int]:
        ks = np.arange(chunk * _CHUNK, (chunk + 1) * _CHUNK)
        delays_ms = self._delay.draw(upper_uniform(hash64(self._salt ^ ks.astype(np.uint64))))
        arrivals: list[int] = (ks * self._period_ms + np.ceil(delays_ms).astype(np.int64)).tolist()
        return arrivals
