"""What waits in the sources of all queries: asked for one by one, or together by kind of source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from slackwater.runtime.deployed import DeployedQuery
from slackwater.scheduling.backlog import Backlog
from slackwater.spark.sources.base import SourceReader

_NEVER = float("inf")
_FEW = 16  # queries: more are counted sooner all at once


@dataclass(frozen=True)
class _Asked:
    """Hold the readers of one kind, which are asked together, and whose rows they are."""

    kind: type[SourceReader]
    readers: tuple[SourceReader, ...]
    rows: NDArray[np.intp]
    each_once: bool  # no query has two of them


class Queues:
    """Ask the sources of all queries, but for those that cannot answer."""

    def __init__(self) -> None:
        """Start without queries."""
        self._readers: dict[type[SourceReader], tuple[list[SourceReader], list[int]]] = {}
        self._of_row: dict[int, tuple[SourceReader, ...]] = {}
        self._asked: list[_Asked] | None = None

    def register(self, query: DeployedQuery) -> None:
        """Ask the sources of a query from now on."""
        self._asked = None
        self._of_row[query.row] = query.readers
        for reader in query.readers:
            readers, rows = self._readers.setdefault(type(reader), ([], []))
            readers.append(reader)
            rows.append(query.row)

    def arrived(self, now_ms: float, size: int) -> NDArray[np.int64]:
        """Count the records that have arrived for each of `size` queries."""
        if self._asked is None:
            self._asked = [
                _Asked(
                    kind,
                    tuple(readers),
                    np.array(rows, dtype=np.intp),
                    len(set(rows)) == len(rows),
                )
                for kind, (readers, rows) in self._readers.items()
            ]
        counts = np.zeros(size, dtype=np.int64)
        for asked in self._asked:
            available = asked.kind.available(asked.readers, now_ms)
            if asked.each_once:
                counts[asked.rows] += available
            else:
                np.add.at(counts, asked.rows, available)
        return counts

    def arrived_for(self, row: int, now_ms: float) -> int:
        """Count the records that have arrived for one query."""
        return sum(reader.available_one(now_ms) for reader in self._of_row.get(row, ()))

    def next_arrival_ms(self, now_ms: float, cycle_ms: float) -> float:
        """Return when to look for input: when sources say, or after a cycle where one cannot."""
        if not all(kind.foresees for kind in self._readers):
            return now_ms + cycle_ms
        arrivals = [
            reader.next_arrival_ms(now_ms)
            for readers, _ in self._readers.values()
            for reader in readers
        ]
        return min((arrival for arrival in arrivals if arrival is not None), default=_NEVER)


@dataclass
class QueueBacklog(Backlog):
    """Count what waits at one moment, when it is wanted; `read` has been read by then."""

    queues: Queues
    now_ms: float
    read: NDArray[np.int64]
    first_arrival_ms: NDArray[np.float64]
    _counts: NDArray[np.int64] | None = field(default=None, init=False)

    @property
    def queued(self) -> NDArray[np.int64]:
        if self._counts is None:
            counts = self.queues.arrived(self.now_ms, len(self.read)) - self.read
            self._counts = np.maximum(counts, 0, out=counts)
        return self._counts

    @property
    def oldest_arrival_ms(self) -> NDArray[np.float64]:
        return np.where(self.queued > 0, self.first_arrival_ms, _NEVER)

    def of(self, rows: Sequence[int]) -> list[int]:
        if self._counts is None and len(rows) <= _FEW:
            arrived, read = self.queues.arrived_for, self.read
            return [max(arrived(row, self.now_ms) - read.item(row), 0) for row in rows]
        queued = self.queued
        return [queued.item(row) for row in rows]
