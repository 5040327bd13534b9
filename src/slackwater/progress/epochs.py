"""The delays of a query's last epochs, as moments: a few numbers an epoch, whatever it held.

>>> epochs = Epochs(kept=2)
>>> for delays_ms in ([900.0], [10.0, 30.0], [40.0]):
...     epochs.add(DelayMoments.of(delays_ms))
>>> epochs.mean_ms, epochs.second_moment_ms2, epochs.variance_ms2
(30.0, 1050.0, 150.0)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from slackwater.errors import DescriptionError
from slackwater.progress.ring import PairRing

HISTORY = 400  # epochs; more gains little and adapts more slowly


@dataclass(frozen=True)
class DelayMoments:
    """Hold how many delays there were, their sum, and the sum of their squares."""

    count: int
    sum_ms: float
    squares_ms2: float

    def __post_init__(self) -> None:
        if self.count < 0:
            raise DescriptionError(f"count={self.count!r} cannot be: give zero or more")
        if not (math.isfinite(self.sum_ms) and math.isfinite(self.squares_ms2)):
            raise DescriptionError(
                f"sum_ms={self.sum_ms!r}, squares_ms2={self.squares_ms2!r} cannot be: leave out "
                "records without an arrival or an event time"
            )

    @classmethod
    def of(cls, delays_ms: Sequence[float]) -> DelayMoments:
        """Take the moments of these delays."""
        squares_ms2 = math.fsum(delay_ms * delay_ms for delay_ms in delays_ms)
        return cls(len(delays_ms), math.fsum(delays_ms), squares_ms2)

    def __add__(self, other: DelayMoments) -> DelayMoments:
        """Pool the delays of two partitions, or of two steps of one epoch."""
        return DelayMoments(
            self.count + other.count,
            self.sum_ms + other.sum_ms,
            self.squares_ms2 + other.squares_ms2,
        )


class Epochs:
    """Average the delays of the last epochs, in constant time for each new one.

    Every epoch counts alike, however many records it had: one sweeping watermark is one draw from
    one epoch. An epoch without records says nothing and is left out.
    """

    def __init__(self, kept: int = HISTORY) -> None:
        self._averages = PairRing(kept)
        self._sum_anew()

    def __len__(self) -> int:
        return len(self._averages)

    def add(self, delays: DelayMoments) -> None:
        """Take in a finished epoch; the oldest goes when there are too many."""
        if not delays.count:
            return
        mean_ms, square_ms2 = delays.sum_ms / delays.count, delays.squares_ms2 / delays.count
        gone_ms, gone_ms2 = self._averages.append((mean_ms, square_ms2)) or (0.0, 0.0)
        self._sum_ms += mean_ms - gone_ms
        self._sum_ms2 += square_ms2 - gone_ms2
        self._until_summed_anew -= 1
        if not self._until_summed_anew:
            self._sum_anew()

    def keep_last(self, epochs: int) -> None:
        """Forget all but the newest epochs."""
        self._averages.keep_last(epochs)
        self._sum_anew()

    @property
    def mean_ms(self) -> float:
        """Return the mean delay (the paper's mu); 0 where nothing was seen."""
        return self._sum_ms / len(self) if len(self) else 0.0

    @property
    def second_moment_ms2(self) -> float:
        """Return the mean of the squared delays (the paper's chi); 0 where nothing was seen."""
        return self._sum_ms2 / len(self) if len(self) else 0.0

    @property
    def variance_ms2(self) -> float:
        """Return the variance of one delay."""
        return max(self.second_moment_ms2 - self.mean_ms**2, 0.0)

    def _sum_anew(self) -> None:
        # Once in a history's length, so that rounding errors never pile up.
        self._sum_ms = math.fsum(mean_ms for mean_ms, _ in self._averages)
        self._sum_ms2 = math.fsum(square_ms2 for _, square_ms2 in self._averages)
        self._until_summed_anew = self._averages.kept
