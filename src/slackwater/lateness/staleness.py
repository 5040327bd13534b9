"""Staleness: the fewest re-executions of a past window that keep its result fresh enough.

S. Esteves et al., "Aion: Better Late than Never in Event-Time Streams", define it, between two
executions, as `st = (t / T) * (n / N)`: the time and the late events since the last one, over the
time that events may be late and the late events expected in all. Within a span both grow, so it is
stalest at its end. Hence for a given bound it is best to execute as late as the bound allows
(greedy), and the least bound that the same number of executions can keep is found by bisection:
exact, where the paper follows a gradient.

>>> even = LateCurve.of([1, 2, 3, 4, 5, 6, 7, 8], [1, 1, 1, 1, 1, 1, 1, 1])
>>> even.fewest(0.5), even.balanced(0.5)
((5, 8), Placement(ends=(4, 8), stalest=0.25))
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from slackwater.errors import DescriptionError

_HALVINGS = 40


@dataclass(frozen=True)
class Placement:
    """Say at which instants to execute, by age, and how stale the stalest span between is."""

    ends: tuple[float, ...]
    stalest: float


@dataclass(frozen=True, eq=False)
class LateCurve:
    """Hold how late events come in: instants by age, and the events up to each.

    Instant 0 is the last execution. The last instant is the window's purge, at which it is executed
    in any case. `span_ms` (T) and `events` (N) are what time and events are measured against.
    """

    ages_ms: tuple[float, ...]
    counts: tuple[float, ...]
    span_ms: float
    events: float

    @classmethod
    def of(cls, ages_ms: Sequence[float], events: Sequence[float]) -> LateCurve:
        """Make the curve of a whole window from the events that come up to each instant."""
        if not ages_ms or len(ages_ms) != len(events):
            raise DescriptionError("a curve has one number of events for each of its instants")
        if min(events) < 0 or any(b <= a for a, b in pairwise([0.0, *ages_ms])):
            raise DescriptionError("a curve's instants grow from above 0, and no count is negative")
        total = math.fsum(events)
        counts = (0.0, *accumulate(events))
        return cls((0.0, *ages_ms), counts, float(ages_ms[-1]), total or 1.0)

    def staleness(self, first: int, last: int) -> float:
        """Return how stale a result of one instant is at another."""
        time = (self.ages_ms[last] - self.ages_ms[first]) / self.span_ms
        return time * (self.counts[last] - self.counts[first]) / self.events

    def fewest(self, bound: float) -> tuple[float, ...]:
        """Return the ages of the fewest executions that keep a bound: each as late as it can be.

        Where one instant alone passes the bound there is nothing better than to execute at it.
        """
        return tuple(self.ages_ms[place] for place in self._greedy(bound))

    def balanced(self, bound: float) -> Placement:
        """Return as few executions as `fewest`, with the least staleness that they can keep."""
        best = self._greedy(bound)
        stalest = self._stalest(best)
        low, count = 0.0, len(best)
        for _ in range(_HALVINGS):
            middle = (low + stalest) / 2
            if not low < middle < stalest:
                break
            tried = self._greedy(middle)
            if len(tried) <= count and (found := self._stalest(tried)) < stalest:
                best, stalest = tried, found
            else:
                low = middle
        # What bisection has narrowed down is settled exactly: no less is possible.
        while stalest > 0:
            tried = self._greedy(math.nextafter(stalest, 0.0))
            if len(tried) > count or self._stalest(tried) >= stalest:
                break
            best, stalest = tried, self._stalest(tried)
        return Placement(tuple(self.ages_ms[place] for place in best), stalest)

    def _greedy(self, bound: float) -> list[int]:
        places, here, last = [], 0, len(self.ages_ms) - 1
        while here < last:
            ahead = range(here + 1, last + 1)
            fitting = bisect_right(ahead, bound, key=lambda there: self.staleness(here, there))
            here += max(fitting, 1)
            places.append(here)
        return places

    def _stalest(self, places: Sequence[int]) -> float:
        return max(self.staleness(first, last) for first, last in pairwise([0, *places]))
