"""Tables that turn one uniform number into a draw, read alike by numpy and by Spark SQL.

Only additions, multiplications and look-ups are used, so both sides give the same number to the
last bit, and Spark pays a few nanoseconds where a logarithm would cost it dozens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Bins of equal probability; the last 64th of the probability is divided once more, just as finely.
_BINS = 512
_BODY = 1.0 - 1.0 / 64
_BODY_BINS = int(_BODY * _BINS)
_TAIL_BINS_PER_UNIT = 64 * _BINS


def array_sql(values: Sequence[float | str], element: str = "double") -> str:
    """Write numbers or plain words as a Spark SQL array, folded to a constant when planned.

    >>> array_sql([1.0, 2.5])
    "cast(split('1.0,2.5', ',') AS array<double>)"
    """
    text = ",".join(map(str, values))
    return f"cast(split('{text}', ',') AS array<{element}>)"


@dataclass(frozen=True, eq=False)
class QuantileTable:
    """Draw from a continuous distribution by straight lines between its quantiles."""

    intercepts: Floats
    slopes: Floats

    @classmethod
    def of(cls, quantiles: Callable[[Floats], Floats]) -> QuantileTable:
        """Tabulate a quantile function on (0, 1)."""
        body = np.arange(_BODY_BINS) / _BINS
        tail = _BODY + np.arange(_BINS + 1) / _TAIL_BINS_PER_UNIT
        knots = np.concatenate((body, tail))
        # The outermost lines end at an eighth of their bins: there a line has the bin's own mean
        # (for a tail that falls exponentially), and no quantile is infinite.
        at = np.clip(knots, 1 / (8 * _BINS), 1 - 1 / (8 * _TAIL_BINS_PER_UNIT))
        values = quantiles(at)
        slopes = np.round(np.diff(values) / np.diff(knots), 6)
        return cls(np.round(values[:-1] - knots[:-1] * slopes, 6), slopes)

    def draw(self, u: Floats) -> Floats:
        """Turn uniform numbers in [0, 1) into draws."""
        in_body, in_tail = u * _BINS, _BODY_BINS + (u - _BODY) * _TAIL_BINS_PER_UNIT
        line = np.where(u < _BODY, in_body, in_tail).astype(np.int64)
        drawn: Floats = self.intercepts[line] + u * self.slopes[line]
        return drawn

    def sql(self, u: str) -> str:
        """Say `draw` in Spark SQL."""
        line = (
            f"cast(if({u} < {_BODY!r}D, {u} * {_BINS}D, "
            f"{_BODY_BINS}D + ({u} - {_BODY!r}D) * {_TAIL_BINS_PER_UNIT}D) AS int)"
        )
        intercepts = array_sql(self.intercepts.tolist())
        slopes = array_sql(self.slopes.tolist())
        return f"({intercepts}[{line}] + {u} * {slopes}[{line}])"


@dataclass(frozen=True, eq=False)
class AliasTable:
    """Draw 0, 1, 2, ... with given shares, exactly, by Walker's alias method.

    M. D. Vose, "A linear algorithm for generating random numbers with a given distribution",
    IEEE Transactions on Software Engineering 17(9), 1991. Each outcome has a cell, shared with one
    other outcome; `chances` says how often the cell yields its own.
    """

    chances: Floats
    others: NDArray[np.int64]

    @classmethod
    def of(cls, shares: Floats) -> AliasTable:
        """Tabulate outcomes with these shares, which sum to one."""
        size = len(shares)
        left = (shares * size).tolist()
        chances, others = [1.0] * size, list(range(size))
        small = [outcome for outcome in range(size) if left[outcome] < 1.0]
        large = [outcome for outcome in range(size) if left[outcome] >= 1.0]
        while small and large:
            outcome, other = small.pop(), large[-1]
            chances[outcome], others[outcome] = left[outcome], other
            left[other] -= 1.0 - left[outcome]
            if left[other] < 1.0:
                small.append(large.pop())
        return cls(np.round(chances, 9), np.array(others, dtype=np.int64))

    def draw(self, u: Floats) -> NDArray[np.int64]:
        """Turn uniform numbers in [0, 1) into outcomes."""
        place = u * len(self.chances)
        own = place.astype(np.int64)
        yields_own = place - own < self.chances[own]
        outcome: NDArray[np.int64] = np.where(yields_own, own, self.others[own])
        return outcome

    def sql(self, u: str) -> str:
        """Say `draw` in Spark SQL; the expression is an int."""
        place = f"({u} * {len(self.chances)}D)"
        own = f"cast({place} AS int)"
        chances = array_sql(self.chances.tolist())
        others = array_sql(self.others.tolist(), "int")
        return f"if({place} - {own} < {chances}[{own}], {own}, {others}[{own}])"


def zipf_shares(size: int, exponent: float) -> Floats:
    """Return the shares of ranks 1 to `size` under Zipf's law.

    >>> zipf_shares(2, 1.0).round(3).tolist()
    [0.667, 0.333]
    """
    weights = np.arange(1, size + 1, dtype=np.float64) ** -exponent
    shares: Floats = weights / weights.sum()
    return shares
