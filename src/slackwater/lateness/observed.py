"""How late events are, learned from those that came: counts in bins of age, by generation.

The *age* of a window is how far the watermark has passed its end. An event that comes in at some
age of its window is accepted if the window is still kept then, so the ages of all events, those
that came after the purge included, are what bounds are made from. An event in time has no age.

Counts are whole numbers in bins of less than 1 % width, so that they can be journaled, merged and
replayed exactly, in bounded memory. They stand in generations of a few windows each: the oldest go,
so that the distribution follows the stream.

>>> observed = ObservedLateness((Seen(on_time=90, late={bin_of(1_000): 10}, windows=1),))
>>> observed.late_within(2_000), observed.share_within(2_000), observed.share_within(500)
(10.0, 1.0, 0.9)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np

from slackwater.lateness.staleness import LateCurve

INSTANTS: Final = 256  # of a window's allowed lateness, at which it may be executed
GENERATIONS: Final = 32
WINDOWS_PER_GENERATION: Final = 8
_FINE_BITS: Final = 7  # a bin is at most 1/128 of its age wide


def bin_of(age_ms: int) -> int:
    """Return the number of the bin that holds an age.

    >>> [bin_of(age) for age in (0, 127, 128, 255, 256, 257, 258)]
    [0, 127, 128, 255, 256, 256, 257]
    """
    shift = max(age_ms.bit_length() - _FINE_BITS - 1, 0)
    return (shift << _FINE_BITS) + (age_ms >> shift)


def bin_start_ms(number: int) -> int:
    """Return the least age of a bin; `bin_start_ms(number + 1)` is where it ends.

    >>> bin_start_ms(bin_of(256)), bin_start_ms(bin_of(256) + 1)
    (256, 258)
    """
    shift = max((number >> _FINE_BITS) - 1, 0)
    return (number - (shift << _FINE_BITS)) << shift


@dataclass(frozen=True)
class Seen:
    """Count what one step, or one generation of windows, brought.

    `late` counts events by the bin of their window's age, `windows` those that gave their first
    pane. An event of several windows counts in each.
    """

    on_time: int = 0
    late: Mapping[int, int] = field(default_factory=dict)
    windows: int = 0

    @property
    def events(self) -> int:
        """Count all events."""
        return self.on_time + sum(self.late.values())

    @property
    def full(self) -> bool:
        """Tell whether these are the windows of a generation."""
        return self.windows >= WINDOWS_PER_GENERATION

    def plus(self, other: Seen) -> Seen:
        """Return both together, in any order."""
        return Seen(
            self.on_time + other.on_time,
            _added((self.late, other.late)),
            self.windows + other.windows,
        )


@dataclass(frozen=True)
class ObservedLateness:
    """Hold full generations of what was seen, the newest last."""

    generations: tuple[Seen, ...] = ()

    def plus(self, generation: Seen) -> ObservedLateness:
        """Return these with a newer generation; the oldest goes when there are too many."""
        return ObservedLateness((*self.generations, generation)[-GENERATIONS:])

    def merged(self, other: ObservedLateness) -> ObservedLateness:
        """Return what both saw of one stream, generation by generation from the newest on."""
        count = max(len(self.generations), len(other.generations))
        pairs = zip(self._padded(count), other._padded(count), strict=True)
        return ObservedLateness(tuple(one.plus(two) for one, two in pairs))

    def newest(self, generations: int) -> ObservedLateness:
        """Return the newest generations alone."""
        return ObservedLateness(self.generations[-generations:])

    @cached_property
    def events(self) -> int:
        """Count all events."""
        return sum(generation.events for generation in self.generations)

    @cached_property
    def windows(self) -> int:
        """Count the windows."""
        return sum(generation.windows for generation in self.generations)

    @cached_property
    def late(self) -> dict[int, int]:
        """Count the late events by bin, in order of age."""
        return dict(sorted(_added(generation.late for generation in self.generations).items()))

    def late_within(self, age_ms: float) -> float:
        """Return how many events come to a window late, up to an age."""
        found = sum(count * _part_within(number, age_ms) for number, count in self.late.items())
        return found / self.windows if self.windows else 0.0

    def share_within(self, age_ms: float) -> float:
        """Return which share of all events comes in before an age; 1 where there were none."""
        beyond = sum(
            count * (1.0 - _part_within(number, age_ms)) for number, count in self.late.items()
        )
        return 1.0 - beyond / self.events if self.events else 1.0

    def age_leaving_ms(self, beyond: int) -> float:
        """Return the age after which so many of the events came; 0 where so many were not late."""
        for number, count in reversed(self.late.items()):
            if count > beyond:
                start_ms, end_ms = bin_start_ms(number), bin_start_ms(number + 1)
                return end_ms - (end_ms - start_ms) * beyond / count
            beyond -= count
        return 0.0

    def curve(self, bound_ms: int) -> LateCurve | None:
        """Return how late events come to a window with a lateness bound; None: none ever did."""
        if bound_ms not in self._curves:
            self._curves[bound_ms] = self._curve(bound_ms)
        return self._curves[bound_ms]

    @cached_property
    def _curves(self) -> dict[int, LateCurve | None]:
        return {}

    def _curve(self, bound_ms: int) -> LateCurve | None:
        if not self.late or not self.windows or bound_ms <= 0:
            return None
        edges = [(bin_start_ms(number), bin_start_ms(number + 1)) for number in self.late]
        within = np.cumsum([0, *self.late.values()]) / self.windows
        ages_ms = np.linspace(0.0, bound_ms, INSTANTS + 1)
        counts = np.interp(
            ages_ms, np.ravel(edges), np.column_stack((within[:-1], within[1:])).ravel()
        )
        if counts[-1] <= 0.0:
            return None
        return LateCurve(
            tuple(ages_ms.tolist()), tuple(counts.tolist()), float(bound_ms), float(counts[-1])
        )

    def _padded(self, count: int) -> tuple[Seen, ...]:
        return (Seen(),) * (count - len(self.generations)) + self.generations


def _part_within(number: int, age_ms: float) -> float:
    """Return which part of a bin lies before an age; events are taken as spread evenly in it."""
    start_ms, end_ms = bin_start_ms(number), bin_start_ms(number + 1)
    return min(max((age_ms - start_ms) / (end_ms - start_ms), 0.0), 1.0)


def _added(counts: Iterable[Mapping[int, int]]) -> dict[int, int]:
    found: dict[int, int] = {}
    for each in counts:
        for number, count in each.items():
            found[number] = found.get(number, 0) + count
    return found
