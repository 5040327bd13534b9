"""When generated records arrive: a stream that can be entered at any record, or at any time.

Record `n` of a stream arrives at `start + position(n) * gap`, in whole microseconds. Evenly, its
position is `n`. Irregularly, gaps follow Gamma(2), and every 64 records last exactly 64 mean gaps:
a block takes one of 64 patterns, chosen by a hash. Records can be read from the first whole
millisecond after they arrived. Python and Spark SQL give the same microseconds.

>>> stream = Arrivals(salt=stream_salt(7, 0), start_us=0, gap_us=250.0)
>>> stream.arrival_us(10), stream.arrived(2), stream.arrived(2.7)
(2500, 9, 9)
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from slackwater.progress.distributions import GammaDelay
from slackwater.progress.tables import Floats, array_sql

BLOCK = 64
_PATTERNS = 64
_MASK = (1 << 64) - 1
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_SPARK_SEED = 42
_FIRST_SEED = np.uint64(_SPARK_SEED)

# The upper half of a hash as a number in [0, 1); the lower half is left for the fields of a row.
UPPER_UNIFORM_SQL = "(shiftrightunsigned({h}, 32) * 2.3283064365386963E-10D)"


def hash64(
    values: NDArray[np.uint64], seeds: NDArray[np.uint64] | None = None
) -> NDArray[np.uint64]:
    """Hash each value as Spark's `xxhash64` hashes a bigint; `seeds` are hashes of earlier ones."""
    before = _FIRST_SEED if seeds is None else seeds
    x = values * np.uint64(_P2)
    x = ((x << np.uint64(31)) | (x >> np.uint64(33))) * np.uint64(_P1)
    x ^= before + np.uint64((_P5 + 8) & _MASK)
    x = ((x << np.uint64(27)) | (x >> np.uint64(37))) * np.uint64(_P1) + np.uint64(_P4)
    return _mixed(x)


def hash64_int(value: int, seeds: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash a small number as `xxhash64` hashes an int that comes after others."""
    x = seeds + np.uint64((_P5 + 4) & _MASK)
    x ^= np.uint64(value * _P1 & _MASK)
    x = ((x << np.uint64(23)) | (x >> np.uint64(41))) * np.uint64(_P2) + np.uint64(_P3)
    return _mixed(x)


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x ^= x >> np.uint64(33)
    x *= np.uint64(_P2)
    x ^= x >> np.uint64(29)
    x *= np.uint64(_P3)
    return x ^ (x >> np.uint64(32))


def hash64_one(value: int) -> int:
    """Hash one value like `hash64`, without the cost of an array."""
    x = (value & _MASK) * _P2 & _MASK
    x = ((x << 31 | x >> 33) & _MASK) * _P1 & _MASK
    x ^= (_SPARK_SEED + _P5 + 8) & _MASK
    x = (((x << 27 | x >> 37) & _MASK) * _P1 + _P4) & _MASK
    x ^= x >> 33
    x = x * _P2 & _MASK
    x ^= x >> 29
    x = x * _P3 & _MASK
    return x ^ x >> 32


def upper_uniform(hashes: NDArray[np.uint64]) -> Floats:
    """Turn the upper halves of hashes into numbers in [0, 1)."""
    return (hashes >> np.uint64(32)).astype(np.float64) * 2.0**-32


def stream_salt(seed: int, partition: int) -> int:
    """Return the 64 bits that tell one partition's stream from every other."""
    return hash64_one(hash64_one(seed) ^ partition)


@lru_cache(maxsize=1)
def _patterns() -> Floats:
    """Cumulate Gamma(2) gaps, one pattern to a row, each `BLOCK` mean gaps long."""
    count = _PATTERNS * BLOCK
    ordered = GammaDelay(2.0, 0.5)._quantiles((np.arange(count) + 0.5) / count)
    shuffle = np.argsort(hash64(np.arange(count, dtype=np.uint64)))
    gaps = ordered[shuffle].reshape(_PATTERNS, BLOCK)
    gaps *= BLOCK / gaps.sum(axis=1, keepdims=True)
    return np.round(np.cumsum(gaps, axis=1) - gaps, 6)


@lru_cache(maxsize=1)
def _pattern_lists() -> list[list[float]]:
    lists: list[list[float]] = _patterns().tolist()
    return lists


@dataclass(frozen=True)
class Arrivals:
    """Say when each record of one partition arrives."""

    salt: int
    start_us: int
    gap_us: float
    irregular: bool = False
    limit: int | None = None

    def arrival_us(self, n: int) -> int:
        """Tell when record `n` arrives."""
        if not self.irregular:
            return self.start_us + int(n * self.gap_us)
        block, place = divmod(n, BLOCK)
        return self.start_us + int((n - place + self._pattern(block)[place]) * self.gap_us)

    def arrival_ms(self, n: int) -> int:
        """Tell from which whole millisecond on record `n` can be read."""
        return -(-self.arrival_us(n) // 1_000)

    @property
    def end_ms(self) -> int | None:
        """Tell when the last record can be read; None where there is no last one."""
        if self.limit is None:
            return None
        return self.arrival_ms(self.limit - 1) if self.limit else -(-self.start_us // 1_000)

    def arrived(self, now_ms: float) -> int:
        """Count the records that can be read by now."""
        before_us = math.floor(now_ms) * 1_000 - self.start_us + 1
        if before_us <= 0:
            return 0
        count = self._arrived_irregularly(before_us) if self.irregular else self._ticks(before_us)
        return count if self.limit is None else min(count, self.limit)

    def _ticks(self, before_us: float, every: int = 1) -> int:
        """Count the multiples of `every` gaps, from nought, that lie before a time."""
        count = int(before_us / (every * self.gap_us))
        while count * every * self.gap_us < before_us:
            count += 1
        while (count - 1) * every * self.gap_us >= before_us:
            count -= 1
        return count

    def _arrived_irregularly(self, before_us: float) -> int:
        block = self._ticks(before_us, BLOCK) - 1
        pattern = self._pattern(block)
        start = block * BLOCK
        return start + bisect_left(
            range(BLOCK),
            True,
            key=lambda place: (start + pattern[place]) * self.gap_us >= before_us,
        )

    def _pattern(self, block: int) -> list[float]:
        return _pattern_lists()[hash64_one(~self.salt ^ block) % _PATTERNS]


class ArrivalCounter:
    """Count arrived records of many streams at once."""

    def __init__(self, streams: Sequence[Arrivals]) -> None:
        self._starts_us = np.array([s.start_us for s in streams], dtype=np.float64)
        self._gaps_us = np.array([s.gap_us for s in streams], dtype=np.float64)
        self._limits = np.array(
            [np.inf if s.limit is None else s.limit for s in streams], dtype=np.float64
        )
        self._ends = bool(np.isfinite(self._limits).any())
        self._irregular = np.flatnonzero([s.irregular for s in streams])
        self._salts = np.array([s.salt for s in streams if s.irregular], dtype=np.uint64)

    def arrived(self, now_ms: float) -> NDArray[np.int64]:
        """Count, for each stream, the records that can be read by now."""
        before_us = np.maximum(math.floor(now_ms) * 1_000.0 - self._starts_us + 1.0, 0.0)
        counts = _ticks(before_us, self._gaps_us)
        if len(self._irregular):
            counts[self._irregular] = self._arrived_irregularly(before_us[self._irregular])
        if self._ends:
            counts = np.minimum(counts, self._limits)
        return counts.astype(np.int64)

    def _arrived_irregularly(self, before_us: Floats) -> Floats:
        gaps_us = self._gaps_us[self._irregular]
        blocks = np.maximum(_ticks(before_us, BLOCK * gaps_us) - 1.0, 0.0)
        patterns = (hash64(~self._salts ^ blocks.astype(np.uint64)) % np.uint64(_PATTERNS)).astype(
            np.intp
        )
        starts, last = blocks * BLOCK, np.zeros(len(blocks), dtype=np.intp)
        half = BLOCK // 2
        while half:
            at_us = (starts + _patterns()[patterns, last + half]) * gaps_us
            last += half * (at_us < before_us)
            half //= 2
        return np.where(before_us > 0, starts + last + 1.0, 0.0)


def _ticks(before_us: Floats, gaps_us: Floats) -> Floats:
    """Count the multiples of each gap, from nought, that lie before each time."""
    counts = np.floor(before_us / gaps_us)
    counts += counts * gaps_us < before_us
    counts -= (counts - 1.0) * gaps_us >= before_us
    return counts


def arrival_us_sql(irregular: bool) -> str:
    """Say `arrival_us` in Spark SQL, over the columns n, salt, start_us and gap_us."""
    position = "n"
    if irregular:
        cells = array_sql(_patterns().ravel().tolist())
        pattern = f"(xxhash64(~salt ^ shiftright(n, 6)) & {_PATTERNS - 1})"
        cell = f"cast({pattern} * {BLOCK} + (n & {BLOCK - 1}) AS int)"
        position = f"(n - (n & {BLOCK - 1}) + {cells}[{cell}])"
    return f"start_us + cast({position} * gap_us AS bigint)"
