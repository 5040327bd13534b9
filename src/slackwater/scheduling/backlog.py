"""How many records wait for each query: told for those that are asked about, or for all at once.

To count what has arrived for every query takes longer than everything else in a decision about a
few. So it is done only for a policy that wants to know.

>>> backlog = CountedBacklog(np.array([3, 0]), np.array([100.0, np.inf]))
>>> backlog.of([1, 0]), backlog.queued.tolist()
([0, 3], [3, 0])
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


class Backlog(ABC):
    """Tell what has arrived by one moment and is not yet read. Answers never change."""

    @property
    @abstractmethod
    def queued(self) -> NDArray[np.int64]:
        """Count the records that wait for each query."""

    @property
    @abstractmethod
    def oldest_arrival_ms(self) -> NDArray[np.float64]:
        """Tell when the oldest of them arrived; infinite where there is none."""

    @abstractmethod
    def of(self, rows: Sequence[int]) -> list[int]:
        """Count the records that wait for some queries."""


@dataclass(frozen=True)
class CountedBacklog(Backlog):
    """Hold what was counted before."""

    counts: NDArray[np.int64]
    arrivals_ms: NDArray[np.float64]

    @property
    def queued(self) -> NDArray[np.int64]:
        return self.counts

    @property
    def oldest_arrival_ms(self) -> NDArray[np.float64]:
        return self.arrivals_ms

    def of(self, rows: Sequence[int]) -> list[int]:
        return [self.counts.item(row) for row in rows]
