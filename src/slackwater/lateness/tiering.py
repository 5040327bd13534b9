"""Which window state is in memory: what a policy sees, what it answers, and how large a bucket is.

A window's state has two places: a *memory bucket*, which functions read, and a *persistent bucket*
on storage. State is kept per slice, so what the paper calls a window is a slice here: the stretch
of event time between two window edges. A slice is *past* once the watermark has passed every
window that it belongs to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

OPEN_SHARE = 0.5  # of the budget: what the memory buckets of open slices may fill together
LEAST_BUCKET_BYTES = 1024 * 1024


class SliceId(NamedTuple):
    """Name a slice of one query's state."""

    query: int
    start_ms: int


@dataclass(frozen=True)
class HeldSlice:
    """Say what is known of one slice's state.

    `memory_bytes` is what memory holds of it, be it the only copy or one of blocks on storage;
    `unsaved_bytes` is the part of it that is on no storage yet (the journal has it, though).
    `unstaged_bytes` is what lies on storage only. `idle_ms` is how long nothing was added or read.
    `next_use_ms` is when a function will probably read it again (None: nobody knows).
    """

    id: SliceId
    past: bool
    memory_bytes: int
    unsaved_bytes: int
    unstaged_bytes: int
    idle_ms: float
    bytes_per_s: float = 0.0  # how fast it has been growing
    next_use_ms: float | None = None


@dataclass(frozen=True)
class TierSnapshot:
    """Hold all slices with state at one moment, against the memory they may take."""

    now_ms: float
    budget_bytes: float
    slices: tuple[HeldSlice, ...]
    staging: StagingTime

    @property
    def used_bytes(self) -> int:
        """Count what memory holds of all slices."""
        return sum(held.memory_bytes for held in self.slices)

    def wanted_soon(self, held: HeldSlice) -> bool:
        """Tell whether a slice should be in memory by the time staging it would take."""
        if held.next_use_ms is None:
            return False
        size = held.memory_bytes + held.unstaged_bytes
        return held.next_use_ms - self.staging.duration_ms(size) <= self.now_ms


@dataclass(frozen=True)
class Destaging:
    """Ask that a slice gives up its memory, but for so many bytes of its first rows."""

    id: SliceId
    keep_bytes: int = 0


@dataclass(frozen=True)
class TierDecision:
    """Say what leaves memory and what comes back, each in the order in which it should."""

    destage: tuple[Destaging, ...] = ()
    prestage: tuple[SliceId, ...] = ()


class TierPolicy(Protocol):
    """Decide where window state lives. The same snapshot gives the same decision."""

    @property
    def name(self) -> str:
        """Return the name it is known by."""
        ...

    def decide(self, snapshot: TierSnapshot) -> TierDecision:
        """Choose among the slices of the snapshot."""
        ...


@dataclass(frozen=True)
class StagingTime:
    """Say how long staging takes, learned from how long it took: a fixed part and a rate.

    >>> learned = StagingTime().after(10_000_000, took_ms=120.0)
    >>> learned.duration_ms(10_000_000) > 100
    True
    """

    fixed_ms: float = 10.0
    ms_per_byte: float = 1e-5  # 100 MB in a second, until measured
    memory: float = 0.3  # how much the newest transfer counts

    def duration_ms(self, size: int) -> float:
        """Return how long staging so many bytes will take."""
        return self.fixed_ms + self.ms_per_byte * size

    def after(self, size: int, *, took_ms: float) -> StagingTime:
        """Learn from one transfer: large ones tell the rate, small ones the fixed part."""
        rest_ms = took_ms - self.fixed_ms
        if rest_ms > self.fixed_ms:
            rate = rest_ms / max(size, 1)
            changed = self.ms_per_byte + self.memory * (rate - self.ms_per_byte)
            return StagingTime(self.fixed_ms, changed, self.memory)
        fixed_ms = max(0.0, took_ms - self.ms_per_byte * size)
        changed = self.fixed_ms + self.memory * (fixed_ms - self.fixed_ms)
        return StagingTime(changed, self.ms_per_byte, self.memory)


def bucket_bytes(budget_bytes: float, open_slices: int) -> float:
    """Return how large the memory bucket of one slice may grow.

    Open slices share half of the budget; the rest is for what is staged and what steps bring.

    >>> bucket_bytes(512 * 1024**2, 4) / 1024**2
    64.0
    """
    return max(OPEN_SHARE * budget_bytes / max(open_slices, 1), LEAST_BUCKET_BYTES)


def stays_in_memory(
    arriving_bytes: int, *, bucket_held: int, bucket_bytes: float, free_bytes: float, past: bool
) -> bool:
    """Decide where new rows go: to memory until the bucket is full; late ones to storage.

    >>> stays_in_memory(10, bucket_held=50, bucket_bytes=60, free_bytes=100, past=False)
    True
    >>> stays_in_memory(10, bucket_held=55, bucket_bytes=60, free_bytes=100, past=False)
    False
    """
    fits = arriving_bytes <= free_bytes and bucket_held + arriving_bytes <= bucket_bytes
    return fits and not past
