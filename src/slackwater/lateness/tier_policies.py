"""Policies for where window state lives, after AION (section 3.2 of the paper).

Local ones look at one slice at a time: `Standard`, `Bootstrap`, `Idle`. Global ones look at how
much memory is left: `BySize`, `ByIngestionRate`, `Emergency`. `Together` asks several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from slackwater.errors import DescriptionError
from slackwater.lateness.tiering import (
    Destaging,
    HeldSlice,
    SliceId,
    TierDecision,
    TierPolicy,
    TierSnapshot,
)

SMALL_BYTES = 64 * 1024
EMERGENCY_FREE = 0.1
STAGED_UNTIL = 0.6  # of the budget: below where memory counts as scarce, so that nothing swings


@dataclass(frozen=True)
class Standard:
    """Destage a slice when it is past; stage it again ahead of its next use.

    A slice below `small_bytes` stays until memory is `small_until` full: a file and two flushes
    cost more than the memory they would free.
    """

    small_bytes: int = SMALL_BYTES
    small_until: float = 0.5
    keep_share: float = 0.0
    name = "standard"

    def __post_init__(self) -> None:
        """Refuse shares that are none."""
        _check_share("keep_share", self.keep_share)
        _check_share("small_until", self.small_until)

    def decide(self, snapshot: TierSnapshot) -> TierDecision:
        """Look at each slice by itself; longest idle first."""
        roomy = snapshot.used_bytes < self.small_until * snapshot.budget_bytes
        leaving = [
            held
            for held in snapshot.slices
            if held.past
            and not snapshot.wanted_soon(held)
            and not (roomy and held.unsaved_bytes == held.memory_bytes < self.small_bytes)
        ]
        leaving.sort(key=lambda held: -held.idle_ms)
        coming = [h for h in snapshot.slices if h.unstaged_bytes and snapshot.wanted_soon(h)]
        coming.sort(key=lambda held: held.next_use_ms or 0.0)
        return TierDecision(
            tuple(_destagings(leaving, self.keep_share)), tuple(_fitting(snapshot, coming))
        )


@dataclass(frozen=True)
class Bootstrap(Standard):
    """Destage past slices but for a share of their first rows, so that re-execution can begin.

    The share is the paper's `rho_min`.
    """

    keep_share: float = 0.1
    name = "bootstrap"


@dataclass(frozen=True)
class Idle:
    """Destage a slice to which nothing was added, and which nobody read, for `idle_ms` (`tau`)."""

    idle_ms: float = 60_000.0
    keep_share: float = 0.0
    name = "idle"

    def __post_init__(self) -> None:
        """Refuse a share that is none, and a time that is none."""
        _check_share("keep_share", self.keep_share)
        if not self.idle_ms > 0:
            raise DescriptionError(f"idle_ms={self.idle_ms}: give a time above 0 milliseconds")

    def decide(self, snapshot: TierSnapshot) -> TierDecision:
        """Look at each slice by itself; longest idle first."""
        leaving = [
            held
            for held in snapshot.slices
            if held.idle_ms >= self.idle_ms and not snapshot.wanted_soon(held)
        ]
        leaving.sort(key=lambda held: -held.idle_ms)
        return TierDecision(tuple(_destagings(leaving, self.keep_share)))


@dataclass(frozen=True)
class _Scarce:
    """Destage in some order, once memory is `above` full, until it is `below` full."""

    above: float = 0.7
    below: float = 0.5
    keep_share: float = 0.0

    def __post_init__(self) -> None:
        """Refuse shares that are none, or the wrong way round."""
        for field in ("above", "below", "keep_share"):
            _check_share(field, getattr(self, field))
        if self.below > self.above:
            raise DescriptionError(
                f"below={self.below} is above above={self.above}: destaging begins at `above` and "
                "ends at `below`"
            )

    def _in_order(
        self, snapshot: TierSnapshot, order: Callable[[HeldSlice], float]
    ) -> TierDecision:
        used = snapshot.used_bytes
        if used < self.above * snapshot.budget_bytes:
            return TierDecision()
        sizes = {held.id: held.memory_bytes for held in snapshot.slices}
        leaving = []
        for destaging in _destagings(sorted(snapshot.slices, key=order), self.keep_share):
            if used <= self.below * snapshot.budget_bytes:
                break
            leaving.append(destaging)
            used -= sizes[destaging.id] - destaging.keep_bytes
        return TierDecision(tuple(leaving))


@dataclass(frozen=True)
class BySize(_Scarce):
    """Where memory is moderately scarce, destage the largest first: the fastest saving."""

    name = "by_size"

    def decide(self, snapshot: TierSnapshot) -> TierDecision:
        """Take slices by the memory they hold."""
        return self._in_order(snapshot, lambda held: -held.memory_bytes)


@dataclass(frozen=True)
class ByIngestionRate(_Scarce):
    """Where memory is moderately scarce, destage what grows slowest: the least delay."""

    name = "by_ingestion_rate"

    def decide(self, snapshot: TierSnapshot) -> TierDecision:
        """Take slices by how fast they have been growing."""
        return self._in_order(snapshot, lambda held: held.bytes_per_s)


@dataclass(frozen=True)
class Emergency:
    """Where less than a tenth of memory is free, destage everything but the bootstrap rows."""

    free_share: float = EMERGENCY_FREE
    keep_share: float = 0.0
    name = "emergency"

    def __post_init__(self) -> None:
        """Refuse shares that are none."""
        _check_share("free_share", self.free_share)
        _check_share("keep_share", self.keep_share)

    def decide(self, snapshot: TierSnapshot) -> TierDecision:
        """Take everything, largest first, or nothing."""
        if snapshot.used_bytes <= (1.0 - self.free_share) * snapshot.budget_bytes:
            return TierDecision()
        largest = sorted(snapshot.slices, key=lambda held: -held.memory_bytes)
        return TierDecision(tuple(_destagings(largest, self.keep_share)))


@dataclass(frozen=True)
class Together:
    """Ask several policies: a slice leaves if one of them says so, and keeps what the last says.

    What one policy sends away, another does not fetch.
    """

    policies: tuple[TierPolicy, ...]

    @property
    def name(self) -> str:
        """Name all of them."""
        return "+".join(policy.name for policy in self.policies)

    def decide(self, snapshot: TierSnapshot) -> TierDecision:
        """Put their decisions together."""
        leaving: dict[SliceId, Destaging] = {}
        coming: dict[SliceId, None] = {}
        for policy in self.policies:
            decision = policy.decide(snapshot)
            leaving |= {destaging.id: destaging for destaging in decision.destage}
            coming |= dict.fromkeys(decision.prestage)
        return TierDecision(
            tuple(leaving.values()), tuple(id for id in coming if id not in leaving)
        )


def default_tiering() -> Together:
    """Return what the runtime does unless told otherwise.

    Memory is freed at 70 % of the budget already, before the scheduler, at 80 %, would rather
    close windows that free much than those that are most urgent.
    """
    return Together((Standard(), BySize(), Emergency()))


def _destagings(slices: Iterable[HeldSlice], keep_share: float) -> list[Destaging]:
    """Ask for all that would free something."""
    asked = []
    for held in slices:
        keep = int(keep_share * (held.memory_bytes + held.unstaged_bytes))
        if held.memory_bytes > keep:
            asked.append(Destaging(held.id, keep))
    return asked


def _fitting(snapshot: TierSnapshot, coming: Iterable[HeldSlice]) -> list[SliceId]:
    """Stage only what fits without pressing anything out."""
    room = STAGED_UNTIL * snapshot.budget_bytes - snapshot.used_bytes
    chosen = []
    for held in coming:
        if held.unstaged_bytes <= room:
            room -= held.unstaged_bytes
            chosen.append(held.id)
    return chosen


def _check_share(field: str, share: float) -> None:
    if not 0.0 <= share <= 1.0:
        raise DescriptionError(f"{field}={share}: give a share between 0 and 1")
