"""Error functions for what users' own functions make of a sample of a window's rows.

A function of a window's rows, such as k-means, gives any rows. What bounds mean for them only its
author can say, by a function that gets a `SampledWindow` and returns `NumberBounds`: of a number in
the result, or of one that tells how good the result is. Most such numbers are a mean or a total of
something that each row has, given the result; `SampledWindow.mean` and `total` then do the rest:

>>> import numpy as np
>>> from slackwater.sampling.strata import Strata
>>> strata = Strata(*(np.array([each]) for each in (1_000.0, 4.0, 1.0, 0.0)))
>>> rows = {"x": np.array([1.0, 2.0, 3.0, 6.0])}
>>> window = SampledWindow(rows, {"centre": 3.0}, strata, np.zeros(4, int), Target(0.05, 0.95))
>>> found = window.mean((window.rows["x"] - window.result["centre"]) ** 2)
>>> found.value.tolist(), found.low.round(1).tolist(), found.high.round(1).tolist()
([3.5], [-2.9], [9.9])
>>> round(window.enough(found.spread))  # of the 1,000 rows
606
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slackwater.errors import DescriptionError
from slackwater.sampling.estimates import (
    ErrorFunction,
    Intervals,
    MeanError,
    Spread,
    TotalError,
    intervals,
    spreads,
)
from slackwater.sampling.strata import Floats, Strata
from slackwater.sampling.targets import Target


@dataclass(frozen=True, eq=False)
class NumberBounds:
    """Hold a number and its bounds, one for the whole result or one for each of its rows.

    `spread` says how far one record of the window moves the number, relative to it: how many of
    them the next window needs.
    """

    value: Floats
    low: Floats
    high: Floats
    spread: Spread

    def scaled(self, factor: float) -> NumberBounds:
        """Multiply number and bounds by a positive factor, to make good for a known bias."""
        value, low, high = (factor * each for each in (self.value, self.low, self.high))
        return NumberBounds(value, low, high, self.spread)

    def relative(self) -> Floats:
        """Return how far the farther bound is, relative to the number; infinity where unknown."""
        return Intervals(self.value, self.low, self.high).relative()


@dataclass(frozen=True, eq=False)
class SampledWindow:
    """Hold what an error function sees: a window's sampled rows, and what was made of them.

    `rows` and `result` are pyarrow Tables. Bounds are made with the confidence of the target,
    widened by what audits found (`caution`, `bias`).
    """

    rows: Any
    result: Any
    strata: Strata
    stratum: NDArray[np.intp]
    target: Target
    caution: float = 1.0
    bias: float = 0.0

    @classmethod
    def whole(cls, rows: Any, result: Any, target: Target) -> SampledWindow:
        """Look at a window of which every row is there."""
        count = float(len(rows))
        strata = Strata(*(np.array([each]) for each in (count, count, 1.0, 0.0)))
        return cls(rows, result, strata, np.zeros(len(rows), dtype=np.intp), target)

    @property
    def weights(self) -> Floats:
        """Return for how many records of the window each row stands."""
        return self.strata.weights[self.stratum]

    @property
    def sampled(self) -> float:
        """Return how many records were sampled, those that a transform dropped included."""
        return float(self.strata.sampled.sum())

    @property
    def population(self) -> float:
        """Return how many records the window has, those still under way included."""
        return self.strata.population

    def mean(self, values: ArrayLike, of: ArrayLike | None = None) -> NumberBounds:
        """Bound the mean over all rows of the window, from one value for each sampled row.

        `of` names for each sampled row the row of the result that it belongs to; the result then
        has one mean for each of its rows.
        """
        return self._found(MeanError(), values, of)

    def total(self, values: ArrayLike, of: ArrayLike | None = None) -> NumberBounds:
        """Bound the total over all rows of the window, in the same way."""
        return self._found(TotalError(), values, of)

    def stated(
        self, value: ArrayLike, low: ArrayLike, high: ArrayLike, *, needed: float
    ) -> NumberBounds:
        """State bounds that you computed yourself.

        `needed` is how many records, drawn at random from all of such a window, keep the error
        asked for (`target.relative`) with its confidence: it decides what is sampled next.
        """
        if not needed > 0.0:
            raise DescriptionError(
                f"stated(needed={needed!r}) cannot be: give the number of records that are enough"
            )
        # A number that needs all records needs them of a larger window too.
        least = min(needed, self.population * (1.0 - 1e-6))
        apart = 1.0 / least - 1.0 / self.population
        spread = (self.target.relative / self.target.deviations) ** 2 / apart
        one, two, three = (
            np.atleast_1d(np.asarray(each, np.float64)) for each in (value, low, high)
        )
        return NumberBounds(one, two, three, Spread(spread, spread))

    def enough(self, spread: Spread) -> float:
        """Return how many records of all are enough for the error asked for."""
        wanted = (self.target.relative / self.target.deviations) ** 2
        if spread.sampling <= 0.0:
            return 1.0
        return 1.0 / (wanted / spread.sampling + 1.0 / self.population)

    def _found(
        self, function: ErrorFunction, values: ArrayLike, of: ArrayLike | None
    ) -> NumberBounds:
        given = np.asarray(values, dtype=np.float64)
        group = np.zeros(len(self.stratum), np.intp) if of is None else np.asarray(of, np.intp)
        for name, each in (("values", given), ("of", group)):
            if each.shape != self.stratum.shape:
                raise DescriptionError(
                    f"an error function gives {name} of shape {each.shape} for "
                    f"{len(self.stratum)} sampled rows: give one for each row"
                )
        groups, width = 1 if of is None else len(self.result), len(self.strata.arrived)
        cells = group * width + self.stratum

        def placed(summands: Floats | None) -> Floats:
            flat = np.bincount(cells, summands, groups * width)
            return flat.reshape(groups, width).astype(np.float64, copy=False)

        sums = {"n": placed(None), "s1": placed(given), "s2": placed(given * given)}
        moved = function.linearise(self.strata, sums)
        found = intervals(self.strata, moved, self.target, caution=self.caution, bias=self.bias)
        spread = Spread(0.0, 0.0)
        for one, rows in zip(spreads(self.strata, moved), moved.rows.tolist(), strict=True):
            spread = spread | one if rows else spread
        unknown = moved.rows == 0.0
        value, low, high = (
            np.where(unknown, np.nan, each) for each in (found.value, found.low, found.high)
        )
        return NumberBounds(value, low, high, spread)


# Bounds one number of, or about, a result that a function made of a window's sampled rows.
ResultErrorFunction = Callable[[SampledWindow], NumberBounds]


def judged(
    window: SampledWindow, functions: Mapping[str, ResultErrorFunction], results: int
) -> dict[str, NumberBounds]:
    """Ask every error function, and bring its numbers to one for each of so many result rows."""
    found = {}
    for name, function in functions.items():
        bounds = function(window)
        if not isinstance(bounds, NumberBounds):
            raise DescriptionError(
                f"the error function of {name!r} returns {type(bounds).__name__}: return what "
                "window.mean(...), window.total(...) or window.stated(...) gives"
            )
        lengths = {len(bounds.value), len(bounds.low), len(bounds.high)}
        if not lengths <= {1, results}:
            raise DescriptionError(
                f"the error function of {name!r} bounds {max(lengths)} numbers of a result with "
                f"{results} rows: give one for all, or one for each"
            )
        found[name] = bounds
    return found
