"""Rates that change over time: how many records have come by then, and when each one comes.

>>> rates = RateProfile((Phase(2, 10, 10), Phase(1, 0, 0), Phase(2, 10, 30)))
>>> rates.records, rates.seconds
(60, 5)
>>> rates.arrivals_us(18, 22).tolist()
[1800000, 1900000, 3000000, 3095445]
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from slackwater.errors import DescriptionError
from slackwater.progress.tables import Floats

_MOST_RATE = 1e7


@dataclass(frozen=True)
class Phase:
    """Hold a rate for some seconds, or let it change evenly from one to another."""

    seconds: float
    from_rate: float
    to_rate: float

    def __post_init__(self) -> None:
        _require(self.seconds, "seconds", 0 < self.seconds <= 1e7, "seconds, more than zero")
        for name, rate in (("from", self.from_rate), ("to", self.to_rate)):
            _require(rate, name, 0 <= rate <= _MOST_RATE, f"records a second, 0 to {_MOST_RATE:g}")

    @property
    def records(self) -> float:
        """Return how many records the phase brings, which need not be a whole number."""
        return self.seconds * (self.from_rate + self.to_rate) / 2

    def arrivals_us(self, numbers: Floats) -> Floats:
        """Tell how long after the phase's start each of its records comes, in microseconds."""
        if self.from_rate == self.to_rate:
            return numbers * (1e6 / self.from_rate)
        # Solved for time: numbers = from * t + growth / 2 * t**2.
        growth = (self.to_rate - self.from_rate) / self.seconds
        root = np.sqrt(np.maximum(self.from_rate**2 + 2 * growth * numbers, 0.0))
        below = self.from_rate + root
        times: Floats = np.divide(2e6 * numbers, below, out=np.zeros_like(below), where=below > 0)
        return times


@dataclass(frozen=True)
class RateProfile:
    """Put phases one behind the other."""

    phases: tuple[Phase, ...]

    def __post_init__(self) -> None:
        _require(len(self.phases), "phases", len(self.phases) > 0, "at least one")

    @property
    def seconds(self) -> float:
        """Return how long all phases last."""
        return sum(phase.seconds for phase in self.phases)

    @property
    def records(self) -> int:
        """Count the records of all phases; the first comes at once."""
        return math.ceil(round(float(self._counts[-1]), 6))

    @cached_property
    def _counts(self) -> Floats:
        """Cumulate the records of the phases, from nought."""
        return np.concatenate(([0.0], np.cumsum([phase.records for phase in self.phases])))

    def arrivals_us(self, first: int, until: int) -> NDArray[np.int64]:
        """Tell how long after the start the records `first` to `until` (without) come."""
        numbers = np.arange(first, until, dtype=np.float64)
        # A record belongs to the phase in which the count reaches its number.
        owners = np.searchsorted(self._counts, numbers, side="right") - 1
        owners = np.minimum(owners, len(self.phases) - 1)
        times = np.empty(len(numbers))
        began_s = 0.0
        for place, phase in enumerate(self.phases):
            mine = owners == place
            if mine.any():
                within = numbers[mine] - self._counts[place]
                times[mine] = began_s * 1e6 + phase.arrivals_us(within)
            began_s += phase.seconds
        return times.astype(np.int64)

    def mean_rate(self, from_s: float, until_s: float) -> float:
        """Return the mean rate between two moments after the start."""
        return (self._count_at(until_s) - self._count_at(from_s)) / (until_s - from_s)

    def _count_at(self, seconds: float) -> float:
        """Count, with fractions, the records that have come by then."""
        count = 0.0
        for phase in self.phases:
            part = min(max(seconds, 0.0), phase.seconds)
            growth = (phase.to_rate - phase.from_rate) / phase.seconds
            count += part * (phase.from_rate + growth * part / 2)
            seconds -= phase.seconds
        return count


def _require(value: object, field: str, holds: bool, wanted: str) -> None:
    if not holds:
        raise DescriptionError(f"{field}={value!r} cannot be: give {wanted}")
