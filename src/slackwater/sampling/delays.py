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
    counts, sums = np.bincount(bins), np.bincount(bins, late)
    return DelayCounts.of({int(b): (counts[b], sums[b]) for b in np.flatnonzero(counts).tolist()})


def bin_sql(delay_ms: str) -> str:
    """Write `bin_of` as a Spark SQL expression."""
    return f"CAST({_BINS_PER_OCTAVE} * log2(1D + greatest({delay_ms}, 0D) / {_UNIT_MS}D) AS INT)"


@dataclass(frozen=True)
class DelayCounts:
    """Count delays by bin: how many, and their mean. Counts may be fractions, faded with age."""

    bins: tuple[int, ...] = ()
    counts: tuple[float, ...] = ()
    means_ms: tuple[float, ...] = ()
    _arrays: tuple[Floats, Floats] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        shares = np.array(self.counts, dtype=np.float64)
        total = shares.sum()
        arrays = (np.array(self.means_ms, dtype=np.float64), shares / total if total else shares)
        object.__setattr__(self, "_arrays", arrays)

    @classmethod
    def of(cls, counted: Mapping[int, tuple[float, float]]) -> DelayCounts:
        """Take bins, each with its count and the sum of its delays."""
        kept = sorted((b, n, total) for b, (n, total) in counted.items() if n > _FORGOTTEN)
        return cls(
            tuple(b for b, _, _ in kept),
            tuple(float(n) for _, n, _ in kept),
            tuple(max(total / n, 0.0) for _, n, total in kept),
        )

    @property
    def records(self) -> float:
        """Return how many records these counts stand for."""
        return sum(self.counts)

    @property
    def longest_ms(self) -> float:
        """Return about the longest delay that is remembered."""
        return max(self.means_ms, default=0.0)

    def plus(self, newer: DelayCounts, keep: float = 1.0) -> DelayCounts:
        """Return the sum of both, the older ones faded to a share `keep`."""
        merged: dict[int, tuple[float, float]] = {
            b: (keep * n, keep * n * mean)
            for b, n, mean in zip(self.bins, self.counts, self.means_ms, strict=True)
        }
        for b, n, mean in zip(newer.bins, newer.counts, newer.means_ms, strict=True):
            before_n, before_sum = merged.get(b, (0.0, 0.0))
            merged[b] = (before_n + n, before_sum + n * mean)
        return DelayCounts.of(merged)

    def within(self, delay_ms: float) -> float:
        """Return the share of records that are delayed by no more than this."""
        means, shares = self._arrays
        return float(shares[means <= delay_ms].sum())

    def quantile_ms(self, p: float) -> float:
        """Return the delay that a share `p` of records stays within, to the width of a bin."""
        if not self.counts:
            return 0.0
        means, shares = self._arrays
        place = int(np.searchsorted(np.cumsum(shares), min(p, 1.0) - 1e-12))
        return float(means[min(place, len(means) - 1)])

    def arrived_shares(self, edges_ms: Sequence[float], now_ms: float) -> list[float]:
        """Return, for each stretch between two neighbouring edges, the share that has arrived.

        A record of time `ts` has arrived if its delay is at most `now - ts`; averaged over the
        stretch that is a difference of `E[(x - delay)+]`, exact for delays that are counted.
        Where nothing is known yet, everything counts as arrived.
        """
        if not self.counts:
            return [1.0] * (len(edges_ms) - 1)
        means, shares = self._arrays
        ages = now_ms - np.asarray(edges_ms, dtype=np.float64)
        mass = np.maximum(ages[:, None] - means[None, :], 0.0) @ shares
        found = (mass[:-1] - mass[1:]) / (ages[:-1] - ages[1:])
        return [min(1.0, max(0.0, share)) for share in found.tolist()]

    def arrived_share(self, from_ms: float, until_ms: float, now_ms: float) -> float:
        """Return the share of one stretch of time that has arrived."""
        return self.arrived_shares((from_ms, until_ms), now_ms)[0]

    def to_json(self) -> list[list[float]]:
        """Write the counts as JSON values, column by column; to the last digit, for replays."""
        return [list(self.bins), list(self.counts), list(self.means_ms)]

    @classmethod
    def from_json(cls, columns: Sequence[Sequence[float]]) -> DelayCounts:
        """Read what `to_json` wrote."""
        bins, counts, means = columns
        return cls(tuple(map(int, bins)), tuple(counts), tuple(means))
