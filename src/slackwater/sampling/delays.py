"""How long records travel, as counted: the share of a stretch of time that has arrived by now.

Delays are counted in bins whose width grows with the delay, each with its mean. That keeps a
constant delay exact, and needs a few dozen numbers whatever the stream.

>>> delays = DelayCounts.of({bin_of(150.0): (1_000, 150_000.0)})
>>> delays.arrived_share(0, 600, now_ms=600)  # of the last 600 ms, all but the newest 150
0.75
>>> delays.arrived_share(0, 600, now_ms=750)
1.0
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_BINS_PER_OCTAVE = 8
_UNIT_MS = 10.0
_FORGOTTEN = 1e-3  # a bin that counts less than this is dropped


def bin_of(delay_ms: float) -> int:
    """Return the bin of a delay; records from the future count as not delayed."""
    return int(_BINS_PER_OCTAVE * math.log2(1.0 + max(delay_ms, 0.0) / _UNIT_MS))


def counted_delays(delays_ms: Floats) -> DelayCounts:
    """Count many delays at once."""
    late = np.maximum(delays_ms, 0.0)
    bins = (_BINS_PER_OCTAVE * np.log2(1.0 + late / _UNIT_MS)).astype(np.int64)
    return DelayCounts.summed(bins, np.ones(len(bins)), late)


def bin_sql(delay_ms: str) -> str:
    """Write `bin_of` as a Spark SQL expression."""
    return f"CAST({_BINS_PER_OCTAVE} * log2(1D + greatest({delay_ms}, 0D) / {_UNIT_MS}D) AS INT)"


@dataclass(frozen=True, eq=False)
class DelayCounts:
    """Count delays by bin: how many, and their mean. Counts may be fractions, faded with age."""

    counts: Floats = field(default_factory=lambda: np.zeros(0))
    means_ms: Floats = field(default_factory=lambda: np.zeros(0))  # 0 where there are none

    @classmethod
    def of(cls, counted: Mapping[int, tuple[float, float]]) -> DelayCounts:
        """Take bins, each with its count and the sum of its delays."""
        bins = np.array(list(counted), dtype=np.int64)
        pairs = np.array(list(counted.values()), dtype=np.float64).reshape(-1, 2)
        return cls.summed(bins, pairs[:, 0], pairs[:, 1])

    @classmethod
    def summed(cls, bins: NDArray[np.int64], counts: Floats, sums_ms: Floats) -> DelayCounts:
        """Take rows of bins, counts and sums of delays; a bin may have several."""
        if not len(bins):
            return cls()
        found: tuple[Floats, Floats] = (np.bincount(bins, counts), np.bincount(bins, sums_ms))  # type: ignore[assignment]
        return cls._kept(*found)

    @classmethod
    def _kept(cls, counts: Floats, sums_ms: Floats) -> DelayCounts:
        counts = np.where(counts > _FORGOTTEN, counts, 0.0)
        used = np.flatnonzero(counts)
        # No longer than need be, for what is read back must be the same, digit by digit.
        bins = int(used[-1]) + 1 if used.size else 0
        counts, sums_ms = counts[:bins], np.maximum(sums_ms[:bins], 0.0)
        return cls(counts, np.divide(sums_ms, counts, out=np.zeros(bins), where=counts > 0.0))

    def __eq__(self, other: object) -> bool:
        """Tell whether both count the same."""
        return isinstance(other, DelayCounts) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def _shares(self) -> Floats:
        return self.counts / max(self.records, _FORGOTTEN)

    @property
    def records(self) -> float:
        """Return how many records these counts stand for."""
        return float(self.counts.sum())

    @property
    def longest_ms(self) -> float:
        """Return about the longest delay that is remembered."""
        return float(self.means_ms.max(initial=0.0))

    def plus(self, newer: DelayCounts, keep: float = 1.0) -> DelayCounts:
        """Return the sum of both, the older ones faded to a share `keep`."""
        bins = max(len(self.counts), len(newer.counts))
        counts, sums_ms = np.zeros(bins), np.zeros(bins)
        for each, share in ((self, keep), (newer, 1.0)):
            counted = share * each.counts
            counts[: len(counted)] += counted
            sums_ms[: len(counted)] += counted * each.means_ms
        return self._kept(counts, sums_ms)

    def within(self, delay_ms: float) -> float:
        """Return the share of records that are delayed by no more than this."""
        return float(self._shares[self.means_ms <= delay_ms].sum())

    def quantile_ms(self, p: float) -> float:
        """Return the delay that a share `p` of records stays within, to the width of a bin."""
        if not self.records:
            return 0.0
        place = int(np.searchsorted(np.cumsum(self._shares), min(p, 1.0) - 1e-12))
        return float(self.means_ms[place]) if place < len(self.means_ms) else self.longest_ms

    def arrived_shares(self, edges_ms: Sequence[float], now_ms: float) -> list[float]:
        """Return, for each stretch between two neighbouring edges, the share that has arrived."""
        found: list[float] = self.arrived_by(edges_ms, np.array([now_ms]))[0].tolist()
        return found

    def arrived_by(self, edges_ms: Sequence[float], moments_ms: Floats) -> Floats:
        """Return, for each moment a row, the share of each stretch that has arrived by then.

        A record of time `ts` has arrived if its delay is at most `now - ts`; averaged over the
        stretch that is a difference of `E[(x - delay)+]`, exact for delays that are counted.
        Where nothing is known yet, everything counts as arrived.
        """
        edges = np.asarray(edges_ms, dtype=np.float64)
        if not self.records:
            return np.ones((len(moments_ms), len(edges) - 1))
        ages = moments_ms[:, None] - edges[None, :]
        mass = np.maximum(ages[:, :, None] - self.means_ms, 0.0) @ self._shares
        found = (mass[:, :-1] - mass[:, 1:]) / (edges[1:] - edges[:-1])
        return np.clip(found, 0.0, 1.0)

    def arrived_share(self, from_ms: float, until_ms: float, now_ms: float) -> float:
        """Return the share of one stretch of time that has arrived."""
        return self.arrived_shares((from_ms, until_ms), now_ms)[0]

    def to_json(self) -> list[list[float]]:
        """Write the counts as JSON values, column by column; to the last digit, for replays."""
        bins = np.flatnonzero(self.counts)
        return [bins.tolist(), self.counts[bins].tolist(), self.means_ms[bins].tolist()]

    @classmethod
    def from_json(cls, columns: Sequence[Sequence[float]]) -> DelayCounts:
        """Read what `to_json` wrote."""
        bins = np.array(columns[0], dtype=np.int64)
        counts, means_ms = np.zeros((2, int(bins.max(initial=-1)) + 1))
        counts[bins], means_ms[bins] = columns[1], columns[2]
        return cls(counts, means_ms)
