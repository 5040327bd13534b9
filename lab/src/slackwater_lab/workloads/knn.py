"""Points to find the nearest neighbours of: clusters in a plane, each around its own centre."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import ClassVar

import numpy as np
import pyarrow as pa

from slackwater.progress.arrivals import hash64
from slackwater.progress.tables import Floats, QuantileTable
from slackwater_lab.workloads.injected import (
    LOWER_BITS,
    Columns,
    Hashes,
    InjectedWorkload,
    Numbers,
    digit,
    lower,
    require,
    upper,
)

SPREAD = 0.05  # the deviation of a cluster, in a square of side 1


@dataclass(frozen=True)
class KnnPoints(InjectedWorkload):
    """Points `x`, `y` with the `label` of their cluster; `point` numbers them."""

    name: ClassVar[str] = "knn"
    key: ClassVar[str] = "point"
    settings: ClassVar[tuple[str, ...]] = ("clusters",)
    clusters: int = 10

    def __post_init__(self) -> None:
        require(1 <= self.clusters <= 100_000, "clusters", self.clusters, "1 to 100000")

    def columns(self, numbers: Numbers, hashes: Hashes) -> Columns:
        """Draw a cluster, and a point around its centre."""
        label, _ = digit(hashes & LOWER_BITS, self.clusters)
        centres = hash64(label.view(np.uint64))
        more = hash64(hashes)
        return {
            "point": pa.array(numbers),
            "label": pa.array(label.astype(np.int32)),
            "x": pa.array(_inner(upper(centres)) + _deviations().draw(upper(more))),
            "y": pa.array(_inner(lower(centres)) + _deviations().draw(lower(more))),
        }


def _inner(u: Floats) -> Floats:
    """Keep centres off the edges."""
    return 0.1 + 0.8 * u


@lru_cache(maxsize=1)
def _deviations() -> QuantileTable:
    normal = NormalDist(0.0, SPREAD)
    return QuantileTable.of(lambda p: np.array([normal.inv_cdf(share) for share in p.tolist()]))
