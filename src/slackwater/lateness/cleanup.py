"""Predictive cleanup: how long new windows are kept, learned from how late events were.

The bound is the age within which a given share of all events came, raised to be right with a given
confidence. It starts large, and stays so until events as late as that have had time to show up.
Lateness that grows is noticed in the newest generations alone; lateness that shrinks is
followed as old generations go. Both confidences take events to be late independently of each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from slackwater.errors import DescriptionError
from slackwater.lateness.observed import ObservedLateness

_RECENT = 2  # generations in which growing lateness is looked for
_NOTICED = 0.005  # how far below the wish their coverage is, at least, when it has grown
_SURE_DEVIATIONS = 4.0
_EXACT_EVENTS = 500  # expected beyond the bound; with more, the normal approximation serves


@dataclass(frozen=True)
class Cover:
    """Ask for windows to be kept until a share of their events has come, with some confidence.

    `start_ms` is the bound of the first windows, for as long as it takes to learn a better one.
    """

    share: float
    confidence: float
    start_ms: int

    def __post_init__(self) -> None:
        for field, value in (("share", self.share), ("confidence", self.confidence)):
            if not isinstance(value, int | float) or not 0.0 < value < 1.0:
                raise DescriptionError(
                    f"cover({field}={value!r}): give a share between 0 and 1, such as 0.99"
                )
        if self.start_ms <= 0:
            raise DescriptionError(
                f"cover(start={self.start_ms} ms): give the time that the first windows are kept, "
                "as long as the latest events that you expect"
            )

    def bound_ms(self, observed: ObservedLateness, watched_ms: int) -> int | None:
        """Return the bound for new windows; None where too little is known.

        `watched_ms` is how far event time has come since the first window.
        """
        if watched_ms < self.start_ms:
            return None
        bound_ms = self._covering_ms(observed)
        recent = observed.newest(_RECENT)
        if bound_ms is not None and self._has_grown(recent, bound_ms):
            grown_ms = self._covering_ms(recent)
            bound_ms = bound_ms if grown_ms is None else max(bound_ms, grown_ms)
        return bound_ms

    def _covering_ms(self, observed: ObservedLateness) -> int | None:
        beyond = most_beyond(observed.events, 1.0 - self.share, self.confidence)
        return None if beyond is None else math.ceil(observed.age_leaving_ms(beyond))

    def _has_grown(self, recent: ObservedLateness, bound_ms: int) -> bool:
        if not recent.events:
            return False
        deviation = math.sqrt(self.share * (1.0 - self.share) / recent.events)
        missing = self.share - recent.share_within(bound_ms)
        return missing > max(_NOTICED, _SURE_DEVIATIONS * deviation)


def most_beyond(events: int, share: float, confidence: float) -> int | None:
    """Return how many of some events may lie beyond a bound that leaves out no more than a share.

    If more than the share of all events were late beyond it, as few as this would be among those
    seen with a probability of at most `1 - confidence`. None: there are too few to tell.

    >>> most_beyond(298, 0.01, 0.95), most_beyond(299, 0.01, 0.95), most_beyond(100_000, 0.01, 0.95)
    (None, 0, 947)
    """
    expected = events * share
    if expected > _EXACT_EVENTS:
        spread = math.sqrt(expected * (1.0 - share))
        return math.floor(expected - NormalDist().inv_cdf(confidence) * spread - 0.5)
    none_beyond = log_chance = events * math.log1p(-share)
    if none_beyond > math.log(1.0 - confidence):
        return None
    together, beyond = math.exp(none_beyond), 0
    while beyond < events:
        # The chance of one more than before, by the binomial distribution.
        log_chance += math.log((events - beyond) / (beyond + 1)) + math.log(share / (1.0 - share))
        together += math.exp(log_chance)
        if together > 1.0 - confidence:
            break
        beyond += 1
    return beyond
