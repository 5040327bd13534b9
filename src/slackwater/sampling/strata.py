"""A window's sample: what arrived and what was taken of it, stratum by stratum, and its variance.

A *stratum* is what one step read of one sub-stream: all its records were sampled at one rate. Every
record that arrived is counted; what is still to come is known by the delays. So a total over all
records of the window is estimated as `sum(arrived / (sampled * share) * total of the sample)`.

Three things make it uncertain: which arrived records were sampled, which records arrived, and how
well the share is known. `variance` adds them up for any estimate that is a sum over records.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Strata:
    """Say of each stratum how many records arrived, how many were sampled, and the share arrived.

    `share` is that of the stratum's sub-stream: what all its records together are, of those that
    will ever come. `share_error` is the relative standard error of that share.
    """

    arrived: Floats
    sampled: Floats
    share: Floats
    share_error: Floats

    @property
    def population(self) -> float:
        """Estimate how many records the window has, those still under way included."""
        return float((self.arrived / self.share).sum())

    @property
    def missing(self) -> float:
        """Return the share of the window's records that have not arrived."""
        population = self.population
        return max(0.0, 1.0 - float(self.arrived.sum()) / population) if population else 0.0

    @property
    def sampled_share(self) -> float:
        """Return the share of the window's records that were sampled."""
        population = self.population
        return min(1.0, float(self.sampled.sum()) / population) if population else 1.0

    @property
    def weights(self) -> Floats:
        """Return for how many records of the window one sampled record stands."""
        weights: Floats = self.arrived / np.maximum(self.sampled, 1.0) / self.share
        return weights

    def collapsed(self, family: NDArray[np.int64] | None = None) -> tuple[Strata, NDArray[np.intp]]:
        """Put strata with too few sampled records to tell a spread together with a neighbour.

        Only strata of one `family` go together, which lie side by side; without, all are one.
        Return the new strata, and for each old one the place of the new one it went into.
        """
        labels = np.zeros(len(self.arrived), dtype=np.intp)
        kinds = np.zeros(len(labels), dtype=np.int64) if family is None else family
        ends = np.searchsorted(kinds, kinds, side="right").tolist()
        place, taken = 0, 0.0
        for index, sampled in enumerate(self.sampled.tolist()):
            labels[index] = place
            taken += sampled
            enough = taken >= 2.0 and self.sampled[index + 1 : ends[index]].sum() >= 2.0
            if enough or index + 1 == ends[index] < len(labels):
                place, taken = place + 1, 0.0
        if place + 1 == len(labels):
            return self, labels
        arrived, sampled = (_folded(each, labels) for each in (self.arrived, self.sampled))
        coming = _folded(self.arrived / self.share, labels)
        errors = _folded(self.arrived / self.share * self.share_error, labels)
        known = np.maximum(coming, 1e-300)
        share = np.where(coming > 0, np.minimum(arrived / known, 1.0), 1.0)
        return Strata(arrived, sampled, share, errors / known), labels


def _folded(values: Floats, labels: NDArray[np.intp]) -> Floats:
    return np.bincount(labels, values).astype(np.float64, copy=False)


def totals(strata: Strata, sums: Floats) -> Floats:
    """Estimate the total over all records of the window, for each group (row) of `sums`."""
    estimate: Floats = sums @ strata.weights
    return estimate


def variance(strata: Strata, sums: Floats, squares: Floats) -> Floats:
    """Return the variance of `totals(strata, sums)`, one number for each group.

    `sums` and `squares` add up, by group and stratum, the values of sampled records and their
    squares; a record that is not of the group, or was filtered out, counts as 0.
    """
    arrived, sampled = strata.arrived, np.maximum(strata.sampled, 1.0)
    share, expansion = strata.share, strata.arrived / sampled
    spread = np.maximum(squares - sums * sums / sampled, 0.0) / np.maximum(sampled - 1.0, 1.0)
    from_sampling = spread @ (arrived * np.maximum(expansion - 1.0, 0.0) / share**2)
    from_arrival = squares @ (expansion * (1.0 - share) / share**2)
    # Shares err together: they come from the same counts of delays.
    from_share = (sums @ (strata.weights * strata.share_error)) ** 2
    found: Floats = from_sampling + from_arrival + from_share
    return found
