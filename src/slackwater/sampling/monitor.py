"""What is known of one query's stream: delays, gaps between events, and how values spread.

History is kept by fading: each closed window leaves the older ones a share of `1 - 1/m` of their
weight, so that `m` windows count and nothing need be stored of each. Spreads grow at once and
shrink slowly: a sample that turns out too small is worse than one too large.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from slackwater.sampling.audits import Audits
from slackwater.sampling.delays import DelayCounts
from slackwater.sampling.estimates import Spread

HISTORY = 20  # windows: the paper's m, counted in windows
LEARNING = 3  # windows that are taken whole, until their source closes them
_SHRINK = 0.3  # how much of the way a spread shrinks with each window


@dataclass(frozen=True)
class SubstreamCount:
    """Say how many records one sub-stream had in the end, or is expected to have."""

    start_ms: int
    length_ms: int
    records: float


@dataclass(frozen=True)
class GroupShare:
    """Say of one group which share of a window's records it has, and how its values spread."""

    share: float
    spread: Spread


@dataclass(frozen=True)
class Monitor:
    """Hold what closed windows taught; never changed, only succeeded."""

    windows: int = 0
    delays: DelayCounts = field(default_factory=DelayCounts)
    per_ms: float = 0.0  # records for each millisecond of event time: one over the mean gap
    per_ms_variance: float = 0.0
    spreads: Mapping[str, Spread] = field(default_factory=dict)
    audits: Audits = field(default_factory=Audits)
    sampled_share: float | None = None  # of windows' records, since it is known how few do
    groups: Mapping[int, GroupShare] = field(default_factory=dict)  # sampled each at its own rate

    @property
    def learned(self) -> bool:
        """Tell whether enough windows were seen to sample and to close early."""
        return self.windows >= LEARNING and bool(self.spreads) and self.per_ms > 0.0

    @property
    def spread(self) -> Spread:
        """Return what is enough for every aggregate."""
        found = Spread(0.0, 0.0)
        for each in self.spreads.values():
            found |= each
        return found

    def expected(self, length_ms: float) -> float:
        """Return how many records a sub-stream of this length will at least have.

        The paper raises the expected size by two deviations, for it counts the sample. We sample by
        rates: then a sub-stream with *fewer* records is the one whose sample is too small.
        """
        least = self.per_ms - 2.0 * math.sqrt(self.per_ms_variance)
        return length_ms * max(least, 0.5 * self.per_ms)

    def delayed(self, counted: DelayCounts) -> Monitor:
        """Take in the delays of all records that a step read, sampled or not."""
        return replace(self, delays=self.delays.plus(counted))

    def closed(
        self,
        substreams: Sequence[SubstreamCount],
        spreads: Mapping[str, Spread],
        sampled_share: float = 1.0,
        groups: Mapping[int, GroupShare] | None = None,
    ) -> Monitor:
        """Take in a closed window: the sizes of its sub-streams, and how its values spread.

        `sampled_share` is how much of it was sampled; `groups` are those that may have a rate of
        their own.
        """
        # The first window began before the query did: it tells nothing of sizes.
        weight = 1.0 / max(1, min(self.windows, HISTORY))
        rates = [each.records / each.length_ms for each in substreams]
        if not rates or not self.windows:
            return replace(self, windows=self.windows + 1)
        mean = sum(rates) / len(rates)
        change = mean - self.per_ms
        within = sum((rate - mean) ** 2 for rate in rates) / len(rates)
        per_ms = self.per_ms + weight * change
        spread = (1 - weight) * (self.per_ms_variance + weight * change**2) + weight * within
        learned = dict(self.spreads)
        for name, seen in spreads.items():
            if math.isfinite(seen.arrival) and math.isfinite(seen.sampling):
                learned[name] = _followed(learned.get(name), seen)
        return Monitor(
            windows=self.windows + 1,
            delays=self.delays.plus(DelayCounts(), keep=1.0 - 1.0 / HISTORY),
            per_ms=per_ms,
            per_ms_variance=within if self.windows == 1 else spread,
            spreads=learned,
            audits=self.audits,
            sampled_share=self._followed_share(sampled_share),
            groups={
                place: _followed_group(self.groups.get(place), seen)
                for place, seen in (groups or {}).items()
                if math.isfinite(seen.spread.arrival) and math.isfinite(seen.spread.sampling)
            },
        )

    def _followed_share(self, seen: float) -> float | None:
        """Return the mean sampled share with one more window."""
        if not self.learned:
            return None  # windows that are learned from are taken whole
        before = seen if self.sampled_share is None else self.sampled_share
        return before + (seen - before) / min(self.windows - LEARNING + 1, HISTORY)

    def to_json(self) -> dict[str, Any]:
        """Write everything as JSON values."""
        return {
            "windows": self.windows,
            "delays": self.delays.to_json(),
            "per_ms": [self.per_ms, self.per_ms_variance],
            "spreads": {name: [s.sampling, s.arrival] for name, s in self.spreads.items()},
            "audits": self.audits.to_json(),
            "sampled": self.sampled_share,
            "groups": [
                [place, it.share, it.spread.sampling, it.spread.arrival]
                for place, it in self.groups.items()
            ],
        }

    @classmethod
    def from_json(cls, cells: Mapping[str, Any] | None) -> Monitor:
        """Read what `to_json` wrote; None: nothing is known yet."""
        if cells is None:
            return cls()
        return cls(
            windows=cells["windows"],
            delays=DelayCounts.from_json(cells["delays"]),
            per_ms=cells["per_ms"][0],
            per_ms_variance=cells["per_ms"][1],
            spreads={name: Spread(*pair) for name, pair in cells["spreads"].items()},
            audits=Audits.from_json(cells["audits"]),
            sampled_share=cells.get("sampled"),
            groups={
                place: GroupShare(share, Spread(sampling, arrival))
                for place, share, sampling, arrival in cells.get("groups", ())
            },
        )


def _followed_group(before: GroupShare | None, seen: GroupShare) -> GroupShare:
    if before is None:
        return seen
    share = before.share + _SHRINK * (seen.share - before.share)
    return GroupShare(share, _followed(before.spread, seen.spread))


def _followed(before: Spread | None, seen: Spread) -> Spread:
    if before is None:
        return seen

    def follow(old: float, new: float) -> float:
        return old + (0.7 if new > old else _SHRINK) * (new - old)

    return Spread(follow(before.sampling, seen.sampling), follow(before.arrival, seen.arrival))
