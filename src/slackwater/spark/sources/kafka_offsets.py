"""Which offsets of a Kafka input are planned, and how many records and losses that comes to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from slackwater.spark.sources.base import Range


@dataclass
class PlannedOffsets:
    """Follow the ranges that are planned, one after the other, of each partition.

    Offsets have gaps, so that what is planned is counted in records, and what waits in offsets.

    >>> planned = PlannedOffsets()
    >>> planned.plan(Range(0, first=5, until=10, events=3))
    >>> planned.plan(Range(0, first=5, until=12, events=4))  # instead of the former
    >>> planned.at, planned.records
    ({0: 12}, 4)
    """

    at: dict[int, int] = field(default_factory=dict)
    records: int = 0
    lost: int = 0
    identities: dict[str, str] = field(default_factory=dict)  # of topics
    _last: dict[int, Range] = field(default_factory=dict)

    def plan(self, piece: Range) -> None:
        """Take in a range; one that begins where the last began, not ended, takes its place."""
        last = self._last.get(piece.partition)
        if last is not None and last.first == piece.first != last.until:
            self.records -= last.events
            self.lost -= lost_in(last)
        self.records += piece.events
        self.lost += lost_in(piece)
        self.at[piece.partition] = piece.until
        self._last[piece.partition] = piece
        identity = (piece.detail or {}).get("identity")
        if identity is not None:
            self.identities[piece.detail["topic"]] = identity

    def restore(self, state: Any, ranges: Sequence[Range]) -> None:
        """Go back to what a journal holds: a state, and the ranges planned since."""
        if state is not None:
            self.at = {int(index): offset for index, offset in state["at"]}
            self.records = state["records"]
            self.lost = state["lost"]
            self.identities = dict(state["identities"])
        for piece in ranges:
            self.plan(piece)

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs (JSON values only)."""
        return {
            "at": sorted(self.at.items()),
            "records": self.records,
            "lost": self.lost,
            "identities": self.identities,
        }


def lost_in(piece: Range) -> int:
    """Count the offsets that were gone before a range could be read."""
    return int((piece.detail or {}).get("lost", 0))
