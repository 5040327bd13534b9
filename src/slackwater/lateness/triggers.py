"""When to execute a past window once more: triggers, one interface for the wish and its baselines.

A trigger is asked for the age at which a window is due again, given what waits and what is expected
to come. It decides the same from the same facts, so that a replay amends the same windows.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import lru_cache

from slackwater.errors import DescriptionError
from slackwater.lateness.staleness import LateCurve

_PRUDENT_PART = 0.8  # of the bound is waited for: events come in no better than about as expected


@dataclass(frozen=True)
class PastWindow:
    """Say how a window stands that has closed: by age, the time since its end.

    `executed_ms` is when its last pane was made, `waiting` the late events that came since, `late`
    those that came in all; after `bound_ms` no more are accepted.
    """

    age_ms: float
    executed_ms: float
    waiting: int
    late: int
    bound_ms: int


class AmendTrigger(ABC):
    """Decide when a past window is executed once more."""

    @abstractmethod
    def due_age_ms(self, window: PastWindow, expected: LateCurve | None) -> float:
        """Return the age at which the window is due, as far as can be told now.

        `expected` is how late events come to such a window (None: not known yet). The window's
        bound is the latest: it is executed for the last time then, if anything waits.
        """

    def due(self, window: PastWindow, expected: LateCurve | None) -> bool:
        """Tell whether the window is due now."""
        return window.waiting > 0 and self.due_age_ms(window, expected) <= window.age_ms


@dataclass(frozen=True)
class Staleness(AmendTrigger):
    """Execute as rarely as a bound on staleness allows, and at even staleness where it is free.

    What counts is what came, not only what was expected: with more late events than expected the
    window is due sooner, with fewer later.
    """

    bound: float

    def __post_init__(self) -> None:
        if not isinstance(self.bound, int | float) or not 0.0 < self.bound <= 1.0:
            raise DescriptionError(
                f"staleness={self.bound!r}: give a share of the allowed lateness and of the late "
                "events, above 0 and up to 1, such as 0.05"
            )

    def due_age_ms(self, window: PastWindow, expected: LateCurve | None) -> float:
        ahead = _ahead(window, expected)
        target = self.bound if expected is None else _even_staleness(expected, self.bound)
        balanced = _reaching(ahead, target)
        # It may take as long as from one instant to the next until the window is looked at again.
        soon = min(3, len(ahead.ages_ms) - 1)
        if ahead.staleness(0, soon) > self.bound:
            return window.age_ms
        if balanced > 1:
            return ahead.ages_ms[balanced]
        # The balanced moment has come. More came than expected, perhaps: is it better to wait?
        last = _reaching(ahead, self.bound * _PRUDENT_PART)
        waiting_saves = len(_from(ahead, last).fewest(self.bound)) < len(
            _from(ahead, 1).fewest(self.bound)
        )
        return ahead.ages_ms[last] if waiting_saves else window.age_ms


@dataclass(frozen=True)
class EveryInterval(AmendTrigger):
    """Execute at even intervals of event time, if anything waits."""

    interval_ms: int

    def __post_init__(self) -> None:
        _require_positive("interval", self.interval_ms)

    def due_age_ms(self, window: PastWindow, expected: LateCurve | None) -> float:
        return min(window.executed_ms + self.interval_ms, window.bound_ms)


@dataclass(frozen=True)
class EveryEvents(AmendTrigger):
    """Execute after so many late events."""

    events: int

    def __post_init__(self) -> None:
        _require_positive("events", self.events)

    def due_age_ms(self, window: PastWindow, expected: LateCurve | None) -> float:
        if window.waiting >= self.events:
            return window.age_ms
        ahead = _ahead(window, expected)
        place = bisect_left(ahead.counts, self.events)
        return ahead.ages_ms[min(place, len(ahead.ages_ms) - 1)]


@lru_cache(maxsize=1_024)
def _even_staleness(expected: LateCurve, bound: float) -> float:
    """Return how stale the spans of a window are if the fewest executions are balanced."""
    return expected.balanced(bound).stalest


def _ahead(window: PastWindow, expected: LateCurve | None) -> LateCurve:
    """Return what has come to a window since its last execution, and what is expected to come."""
    now_ms = max(window.age_ms, math.nextafter(window.executed_ms, math.inf))
    ages, counts = [window.executed_ms, now_ms], [0.0, float(window.waiting)]
    events = float(max(window.late, 1))
    if expected is not None:
        events = max(events, expected.events)
        now = bisect_right(expected.ages_ms, now_ms) - 1
        shown = expected.counts[now] - window.waiting
        ages += expected.ages_ms[now + 1 :]
        counts += [count - shown for count in expected.counts[now + 1 :]]
    if ages[-1] < window.bound_ms:
        ages.append(float(window.bound_ms))
        counts.append(counts[-1])
    return LateCurve(tuple(ages), tuple(counts), float(window.bound_ms), events)


def _reaching(ahead: LateCurve, bound: float) -> int:
    """Return the last place at which the result of the first is no staler than a bound, or 1."""
    places = range(1, len(ahead.ages_ms))
    fitting = bisect_right(places, bound, key=lambda place: ahead.staleness(0, place))
    return max(fitting, 1)


def _from(ahead: LateCurve, place: int) -> LateCurve:
    """Return what is ahead after an execution at a place."""
    return LateCurve(ahead.ages_ms[place:], ahead.counts[place:], ahead.span_ms, ahead.events)


def _require_positive(field: str, value: int) -> None:
    if not isinstance(value, int) or value <= 0:
        raise DescriptionError(f"amend_every({field}={value!r}): give more than zero")
