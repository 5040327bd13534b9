"""The watermark of a query: per partition, minimum over partitions, never backwards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

PartitionId = tuple[int, int]  # (input of the query, partition of that input)


@dataclass(frozen=True)
class PartitionTime:
    """Say what one step learned of one partition.

    `candidate_ms` is the watermark its records or its source allow (None: nothing new).
    `idle` means that the source itself confirmed there is no backlog, for long enough.
    """

    partition: PartitionId
    candidate_ms: int | None
    idle: bool = False


@dataclass(frozen=True)
class Watermarks:
    """Hold what is known of every partition, and what follows for the query.

    >>> start = Watermarks()
    >>> one = start.advance([PartitionTime((0, 0), 5_000), PartitionTime((0, 1), None)])
    >>> one.current_ms is None  # partition 1 has said nothing yet
    True
    >>> one.advance([PartitionTime((0, 1), 3_000)]).current_ms
    3000
    >>> one.advance([PartitionTime((0, 1), None, idle=True)]).current_ms
    5000
    """

    partitions: Mapping[PartitionId, int | None] = field(default_factory=dict)
    current_ms: int | None = None

    def advance(self, observed: Iterable[PartitionTime]) -> Watermarks:
        """Take in what a step saw; partitions reported idle do not hold the others back."""
        partitions = dict(self.partitions)
        idle: set[PartitionId] = set()
        for seen in observed:
            known_ms = partitions.get(seen.partition)
            if seen.candidate_ms is not None and (known_ms is None or seen.candidate_ms > known_ms):
                known_ms = seen.candidate_ms
            partitions[seen.partition] = known_ms
            if seen.idle:
                idle.add(seen.partition)
        active = [time_ms for key, time_ms in partitions.items() if key not in idle]
        return Watermarks(partitions, self._current(active))

    def closed_to(self, time_ms: int) -> Watermarks:
        """Let the query's time pass a moment before its partitions have; late ones come later."""
        current_ms = time_ms if self.current_ms is None else max(self.current_ms, time_ms)
        return Watermarks(self.partitions, current_ms)

    def _current(self, active: list[int | None]) -> int | None:
        known = [time_ms for time_ms in active if time_ms is not None]
        if not active or len(known) < len(active):
            return self.current_ms
        lowest_ms = min(known)
        return lowest_ms if self.current_ms is None else max(self.current_ms, lowest_ms)
