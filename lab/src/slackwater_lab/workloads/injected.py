"""The records of a workload, in numpy: what the sources of the same names make on Spark.

Record `n` of a topic is a function of the topic's seed and of `n` alone, so any stretch of them can
be made by itself, and two runs of a scenario write the same. Where Spark has a source of that name
the records equal those of its partition 0, to the last bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slackwater.errors import DescriptionError
from slackwater.progress.arrivals import hash64, stream_salt
from slackwater.progress.distributions import DelayDistribution
from slackwater.progress.tables import Floats

Hashes = NDArray[np.uint64]
Numbers = NDArray[np.int64]
Columns = Mapping[str, pa.Array]

EVENT_TIME = "event_time"
LOWER_BITS = np.uint64(2**32 - 1)
UNIT = 2.0**-32


class InjectedWorkload(ABC):
    """Make the fields of records; frozen, validates itself."""

    name: ClassVar[str]
    key: ClassVar[str]  # the field that becomes the record's key
    settings: ClassVar[tuple[str, ...]] = ()  # what a scenario may say besides

    @abstractmethod
    def columns(self, numbers: Numbers, hashes: Hashes) -> Columns:
        """Make the fields of records, from their numbers and 64 random bits of each."""


@dataclass(frozen=True)
class Records:
    """Hold a stretch of a topic's records: fields with the event time, and when each arrives."""

    table: pa.Table
    arrivals_us: Numbers


def make_records(
    workload: InjectedWorkload,
    delay: DelayDistribution,
    seed: int,
    first: int,
    arrivals_us: Numbers,
) -> Records:
    """Make the records from number `first` on that arrive at these times."""
    numbers = np.arange(first, first + len(arrivals_us), dtype=np.int64)
    hashes = _hashes(seed, numbers)
    moments = pa.array(_events_us(delay, hashes, arrivals_us)).cast(pa.timestamp("us", tz="UTC"))
    columns = {**workload.columns(numbers, hashes), EVENT_TIME: moments}
    return Records(pa.table(columns), arrivals_us)


def event_times_us(delay: DelayDistribution, seed: int, arrivals_us: Numbers) -> Numbers:
    """Tell the event times of the records, from the first on, that arrive at these times."""
    return _events_us(delay, _hashes(seed, np.arange(len(arrivals_us))), arrivals_us)


def _hashes(seed: int, numbers: Numbers) -> Hashes:
    return hash64(np.uint64(stream_salt(seed, 0)) ^ numbers.view(np.uint64))


def _events_us(delay: DelayDistribution, hashes: Hashes, arrivals_us: Numbers) -> Numbers:
    return arrivals_us - (delay.draw(upper(hashes)) * 1_000.0).astype(np.int64)


def upper(hashes: Hashes) -> Floats:
    """Turn the upper halves of hashes into numbers in [0, 1)."""
    return (hashes >> np.uint64(32)).astype(np.float64) * UNIT


def lower(hashes: Hashes) -> Floats:
    """Turn the lower halves of hashes into numbers in [0, 1)."""
    return (hashes & LOWER_BITS).astype(np.float64) * UNIT


def digit(bits: Hashes, base: int) -> tuple[Numbers, Hashes]:
    """Split a uniform 32-bit number into a uniform digit and the rest, uniform again."""
    scaled = bits * np.uint64(base)
    return (scaled >> np.uint64(32)).astype(np.int64), scaled & LOWER_BITS


def whole(values: Floats) -> Numbers:
    """Cut the fraction off, as Spark's cast does."""
    return values.astype(np.int64)


def chosen(names: list[str], places: Numbers) -> pa.Array:
    """Choose a text for each record."""
    return pa.array(names).take(pa.array(places))


def require(holds: bool, field: str, value: object, wanted: str) -> None:
    """Refuse a setting."""
    if not holds:
        raise DescriptionError(f"{field}={value!r} cannot be: give {wanted}")
