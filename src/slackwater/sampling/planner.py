"""When a window may close before its stragglers, and which share of each sub-stream to take.

The earliest moment is the one at which *all* that will have arrived would be enough. From then on,
the later a window closes the fewer records it needs. So latency comes first: close at the deadline,
or as soon after it as the error allows, and then take no more than is needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from math import gcd
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from slackwater.sampling.delays import Floats
from slackwater.sampling.monitor import Monitor
from slackwater.sampling.sizes import (
    Stretch,
    group_share,
    rates_for,
    sampled_share,
)
from slackwater.sampling.targets import Target

# early: sample, and close as soon as that is enough. patient: sample, but close when the source
# says so (the paper's Aion-). slack: take everything, wait until enough is here (AQ-K-Slack).
Method = Literal["early", "patient", "slack"]

SUBSTREAM_MS = 600
_MOST_SUBSTREAMS = 20
_LEAST_SHARE = 0.25  # of a sub-stream that must be here, to speak for the rest of it
_MARGIN = 0.9  # plan for a little less than the error allowed: spreads are not known exactly
_PRECISION_MS = 4.0
_PROBES = 16  # moments that are tried at once


@dataclass(frozen=True)
class SamplePlan:
    """Say how a step samples: rates by sub-stream, and which window's end it may pass.

    Sub-stream `i` begins at `origin_ms + i * width_ms`; records of any other time are taken at the
    rate `rest`, those before `from_ms` not at all. `as_of_ms` is the moment up to which
    everything that arrived has been read after the step.
    """

    seed: int
    origin_ms: int
    width_ms: int
    rates: tuple[float, ...]
    wanted: tuple[float, ...]  # records sampled of each sub-stream, for the window to close
    rest: float
    from_ms: int
    as_of_ms: float
    closes_ms: int | None  # the end of the window that closes if the sample suffices
    # Where groups have rates of their own, they are `rates` times these, and at most 1: by the hash
    # of a group's keys, and for all groups that are not listed.
    groups: tuple[tuple[int, float], ...] = ()
    others: float = 1.0

    @property
    def top(self) -> float:
        """Return the highest rate at which any record is taken."""
        factors = (self.others, *(share for _, share in self.groups))
        return min(1.0, max(*self.rates, self.rest) * max(factors)) if self.rates else 1.0

    def to_json(self) -> list[Any]:
        """Write the plan as JSON values."""
        return [
            self.seed,
            self.origin_ms,
            self.width_ms,
            list(self.rates),
            list(self.wanted),
            self.rest,
            self.from_ms,
            self.as_of_ms,
            self.closes_ms,
            *([[list(each) for each in self.groups], self.others] if self.groups else []),
        ]

    @classmethod
    def from_json(cls, cells: Sequence[Any]) -> SamplePlan:
        """Read what `to_json` wrote."""
        seed, origin, width, rates, wanted, rest, since, as_of, closes, *further = cells
        groups, others = further or ((), 1.0)
        listed = tuple((int(place), float(share)) for place, share in groups)
        return cls(
            seed,
            origin,
            width,
            tuple(rates),
            tuple(wanted),
            rest,
            since,
            as_of,
            closes,
            listed,
            others,
        )


def substream_ms(*lengths_ms: int) -> int:
    """Choose the length of sub-streams: the largest even part of all edges that is fine enough.

    >>> substream_ms(3_000), substream_ms(2_000, 1_000), substream_ms(5_000, 3_000)
    (600, 500, 500)
    >>> substream_ms(3_600_000)
    180000
    """
    common = reduce(gcd, lengths_ms)
    fine_ms = max(SUBSTREAM_MS, max(lengths_ms) // _MOST_SUBSTREAMS)
    for parts in range(1, common + 1):
        if common % parts == 0 and common // parts <= fine_ms:
            found = common // parts
            return found if found >= SUBSTREAM_MS // 6 else common
    return common


@dataclass(eq=False)
class Planner:
    """Decide for one query; `width_ms` is the length of its sub-streams."""

    target: Target
    width_ms: int
    seed: int
    method: Method = "early"
    # The last answer of `closes_at_ms`: the runtime and `plan` ask for the same one.
    _closing: tuple[Monitor, int, int, int | None] | None = field(
        default=None, init=False, repr=False
    )

    def stretches(
        self, monitor: Monitor, start_ms: int, end_ms: int, now_ms: float
    ) -> list[Stretch]:
        """Say of each sub-stream of a window what to expect of it, and what is here by now."""
        edges = list(range(start_ms, end_ms + 1, self.width_ms))
        expected = monitor.expected(self.width_ms)
        shares = monitor.delays.arrived_shares(edges, now_ms)
        return [Stretch(expected, share) for share in shares]

    def closes_at_ms(self, monitor: Monitor, start_ms: int, end_ms: int) -> int | None:
        """Return the earliest moment at which a window may close; None: when its source says so.

        Like all moments of records it is a whole millisecond: a step knows only up to which of
        these it has read everything, so at a fraction of one it could not close what is due.
        """
        last = self._closing
        if last is None or last[0] is not monitor or last[1:3] != (start_ms, end_ms):
            last = (monitor, start_ms, end_ms, self._closing_moment(monitor, start_ms, end_ms))
            self._closing = last
        return last[3]

    def _closing_moment(self, monitor: Monitor, start_ms: int, end_ms: int) -> int | None:
        if not monitor.learned or self.method == "patient":
            return None
        if monitor.delays.quantile_ms(0.5) > end_ms - start_ms:
            return None  # old data, read again: its delays tell nothing of what is still to come
        first, last = float(end_ms), end_ms + monitor.delays.longest_ms + 2.0
        if self._feasible(monitor, start_ms, end_ms, np.array([first]))[0]:
            return end_ms
        apart_ms = math.inf
        while apart_ms > _PRECISION_MS:  # not feasible at `first`; feasible at `last`, if ever
            moments, apart_ms = np.linspace(first, last, _PROBES + 1, retstep=True)
            enough = self._feasible(monitor, start_ms, end_ms, moments[1:])
            if not enough[-1]:
                return None
            place = int(np.argmax(enough))
            first, last = float(moments[place]), float(moments[place + 1])
        return math.ceil(last)

    def plan(
        self,
        monitor: Monitor,
        start_ms: int,
        end_ms: int,
        *,
        closed_ms: int,
        as_of_ms: float,
    ) -> SamplePlan:
        """Plan a step that reads all that had arrived by `as_of_ms`.

        The window from `start_ms` to `end_ms` is the next to close; records before `closed_ms`
        are stragglers of windows that have closed.
        """
        parts = (end_ms - start_ms) // self.width_ms
        whole = SamplePlan(
            seed=self.seed,
            origin_ms=start_ms,
            width_ms=self.width_ms,
            rates=(1.0,) * parts,
            wanted=(0.0,) * parts,
            rest=1.0,
            from_ms=closed_ms,
            as_of_ms=as_of_ms,
            closes_ms=None,
        )
        if not monitor.learned:
            return whole
        closes_at_ms = self.closes_at_ms(monitor, start_ms, end_ms)
        closing = closes_at_ms is not None and as_of_ms >= closes_at_ms
        closes_ms = end_ms if closing else None
        if self.method == "slack":
            return _replaced(whole, closes_ms)
        if closes_at_ms is None:  # its source will say when, and then all is here
            parts_of = self.stretches(monitor, start_ms, end_ms, float(end_ms))
            stretches = [Stretch(each.expected, 1.0) for each in parts_of]
        else:
            # A step ahead of its time samples for the moment at which the window will close.
            now_ms = max(as_of_ms, float(closes_at_ms))
            stretches = self.stretches(monitor, start_ms, end_ms, now_ms)
        allowed = self._allowed(monitor, stretches)
        share = sampled_share(stretches, monitor.spread, allowed)
        if share is None:
            return _replaced(whole, closes_ms)
        groups, others = _group_shares(monitor, stretches, allowed)
        if groups:
            rates = [1.0 / max(each.share, 1e-9) for each in stretches]
        else:
            rates = rates_for(stretches, share)
        mixed = [(monitor.groups[place].share, factor) for place, factor in groups]
        mixed.append((max(0.0, 1.0 - sum(part for part, _ in mixed)), others))
        wanted = [
            each.expected * each.share * sum(part * min(1.0, rate * f) for part, f in mixed)
            for rate, each in zip(rates, stretches, strict=True)
        ]
        return SamplePlan(
            seed=self.seed,
            origin_ms=start_ms,
            width_ms=self.width_ms,
            rates=tuple(round(rate, 6) for rate in rates),
            wanted=tuple(round(_least_of(count), 1) for count in wanted),
            rest=round(min(rates), 6),
            from_ms=closed_ms,
            as_of_ms=as_of_ms,
            closes_ms=closes_ms,
            groups=groups,
            others=others,
        )

    def suffices(self, plan: SamplePlan, sampled: Sequence[float]) -> bool:
        """Tell whether the sub-streams of a window have the sample that was planned."""
        return all(got >= want for got, want in zip(sampled, plan.wanted, strict=True))

    def _allowed(self, monitor: Monitor, stretches: Sequence[Stretch]) -> float:
        """Return the relative variance that the wish leaves, after what stragglers may take."""
        whole = sum(each.expected for each in stretches)
        missing = sum(each.expected * (1.0 - each.share) for each in stretches) / whole
        return float(self._allowed_without(monitor, missing))

    def _allowed_without(self, monitor: Monitor, missing: Any) -> Any:
        audits = monitor.audits
        wish = _MARGIN * self.target.relative - audits.straggler_bias * missing
        return (np.maximum(wish, 0.0) / audits.caution / self.target.deviations) ** 2

    def _feasible(
        self, monitor: Monitor, start_ms: int, end_ms: int, moments_ms: Floats
    ) -> NDArray[np.bool_]:
        """Tell of each moment whether all that will have arrived by then is enough."""
        edges = range(start_ms, end_ms + 1, self.width_ms)
        shares = monitor.delays.arrived_by(edges, moments_ms)
        missing = 1.0 - shares.mean(axis=1)
        if self.method == "slack":
            return np.asarray(missing <= _MARGIN * self.target.relative)
        speaks = shares.min(axis=1) >= _LEAST_SHARE
        # The variance that stays when all is taken, as in `arrival_variance`: alike sub-streams.
        lost = ((1.0 - shares) / np.maximum(shares, _LEAST_SHARE)).sum(axis=1)
        expected, parts = monitor.expected(self.width_ms), shares.shape[1]
        variance = monitor.spread.arrival * lost / (expected * parts**2)
        return np.asarray(speaks & (variance < self._allowed_without(monitor, missing)))


def _group_shares(
    monitor: Monitor, stretches: Sequence[Stretch], allowed: float
) -> tuple[tuple[tuple[int, float], ...], float]:
    """Return the share to sample of each group that is known, and that of all others.

    Others may be new, or about to qualify: they are sampled like the neediest.
    """
    groups = tuple(
        (place, round(group_share(stretches, it.share, it.spread, allowed), 6))
        for place, it in sorted(monitor.groups.items())
    )
    return groups, max((share for _, share in groups), default=1.0)


def _replaced(plan: SamplePlan, closes_ms: int | None) -> SamplePlan:
    return replace(plan, closes_ms=closes_ms)


def _least_of(expected: float) -> float:
    """Return what a random sample of this expected size has, all but certainly."""
    # Expectations are raised by two deviations of the stream's own rate, hence the tenth.
    return max(0.0, 0.9 * expected - 4.0 * math.sqrt(expected))
