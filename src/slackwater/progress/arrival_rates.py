"""How fast input arrives: consumption plus growth of what waits.

What was read tells only how fast a query reads. What arrives is what it reads, and what piles up
meanwhile; a query that drops input on purpose has read it all the same.
"""

from __future__ import annotations

from collections import deque
from typing import Final

SPAN_MS: Final = 10_000.0
_APART_MS: Final = 200.0


class ArrivalRate:
    """Estimate a query's arrival rate over the last seconds.

    >>> rate = ArrivalRate()
    >>> rate.observe(0.0, consumed=0, lag=500)
    >>> rate.per_s is None
    True
    >>> rate.observe(2_000.0, consumed=3_000, lag=1_500)
    >>> rate.per_s
    2000.0
    """

    def __init__(self, span_ms: float = SPAN_MS) -> None:
        """Look back over `span_ms`."""
        self._span_ms = span_ms
        self._seen: deque[tuple[float, int, int]] = deque()

    def observe(self, now_ms: float, *, consumed: int, lag: int) -> None:
        """Take in how many records were read in all, and how many wait."""
        if self._seen and now_ms <= self._seen[-1][0]:
            return
        while len(self._seen) > 1 and now_ms - self._seen[-2][0] < _APART_MS:
            self._seen.pop()
        self._seen.append((now_ms, consumed, lag))
        while len(self._seen) > 2 and now_ms - self._seen[1][0] >= self._span_ms:
            self._seen.popleft()

    @property
    def per_s(self) -> float | None:
        """Return records per second; None before there are two observations."""
        if len(self._seen) < 2:
            return None
        (then_ms, consumed_then, lag_then), (now_ms, consumed, lag) = self._seen[0], self._seen[-1]
        arrived = (consumed - consumed_then) + (lag - lag_then)
        return max(0.0, arrived * 1_000.0 / (now_ms - then_ms))
