"""When Flink can know that a window is over: at the event that its watermark needs to pass the end.

Flink's watermark of bounded disorder is the latest event time seen, less the bound (and less one
millisecond). So it is neither a message that arrives, as with Slackwater's generator, nor a matter
of the wall clock: some event carries it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slackwater.progress.arrivals import Arrivals, hash64, upper_uniform
from slackwater.progress.distributions import DelayDistribution

_CHUNK = 1_024


@dataclass(frozen=True)
class BoundedStream:
    """Describe one query's events to an engine that allows for `lag_ms` of disorder."""

    arrivals: Arrivals
    delay: DelayDistribution
    lag_ms: int

    def event_ms(self, first: int, count: int) -> NDArray[np.int64]:
        """Tell the event times of `count` records from the first on, in whole milliseconds."""
        numbers = np.arange(first, first + count)
        drawn = upper_uniform(hash64(np.uint64(self.arrivals.salt) ^ numbers.astype(np.uint64)))
        travelled_us = (self.delay.draw(drawn) * 1_000.0).astype(np.int64)
        arrival_us = self.arrivals.start_us + (numbers * self.arrivals.gap_us).astype(np.int64)
        times: NDArray[np.int64] = (arrival_us - travelled_us) // 1_000
        return times

    def closing_arrival_ms(self, end_ms: int) -> int:
        """Tell when the first event arrives whose time is so late that a window must be over."""
        needed_ms = end_ms + self.lag_ms
        first = self.arrivals.arrived(needed_ms - 1)  # none of these is late enough
        while not (late := self.event_ms(first, _CHUNK) >= needed_ms).any():
            first += _CHUNK
        return self.arrivals.arrival_ms(first + int(late.argmax()))
