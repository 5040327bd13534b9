"""What every source offers: partitions of numbered records, read in ranges, many in one scan."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from slackwater.app.watermarks import BoundedLateness, WatermarkStrategy
from slackwater.progress.sweeps import SweepGeneration

QUERY = "_sw_query"
PARTITION = "_sw_partition"
OFFSET = "_sw_offset"
ARRIVAL = "_sw_arrival"  # milliseconds since the epoch: when the record could first be read
MALFORMED = "_sw_malformed"  # the raw record where it could not be parsed, else null
SYSTEM_COLUMNS = (QUERY, PARTITION, OFFSET, ARRIVAL, MALFORMED)


@dataclass(frozen=True)
class Range:
    """Name the records `first <= offset < until` of a partition, and what holds once they are read.

    `watermark_ms` is the source's own watermark after these records (None: none, or none yet).
    `idle` says that the source confirms there is no more, and was none for its idle timeout.
    `detail` is whatever the source needs to read exactly these records again (JSON values only).
    `events` is how many records the range holds (offsets may count files).
    """

    partition: int
    first: int
    until: int
    events: int
    watermark_ms: int | None = None
    idle: bool = False
    detail: Any = None
    sample: Any = None  # how records are sampled (JSON values only); None: all are taken


class SourceReader(ABC):
    """Read one deployment's input. Opened by a source description; used by the runtime only.

    Offsets start at 0 and are dense. A range that was planned once can always be read again,
    with the same records in it, until the runtime has committed it.
    """

    schema: StructType
    event_time: str
    watermark: WatermarkStrategy
    max_ahead_ms: int
    # True where event times cannot be null, malformed or ahead of arrival: nothing need be checked.
    trusted: ClassVar[bool] = False
    # True where `next_arrival_ms` is known: then nobody need look every few milliseconds.
    foresees: ClassVar[bool] = False

    @property
    @abstractmethod
    def fusion_key(self) -> Hashable:
        """Tell which readers one scan can serve: those with equal keys."""

    @abstractmethod
    def restore(self, committed: Mapping[int, int], state: Any, ranges: Sequence[Range]) -> None:
        """Go back to where a journal left off.

        `committed` holds the next offset of each partition, `state` what `state()` returned at the
        last snapshot (None: no snapshot), `ranges` the ranges planned since then, oldest first.
        """

    def state(self) -> Any:
        """Return what must be remembered besides offsets (JSON values only)."""
        return None

    @abstractmethod
    def plan(self, positions: Mapping[int, int], now_ms: float, max_events: int) -> list[Range]:
        """Plan what to read next from `positions`: what has arrived by now, at most `max_events`.

        Return one range for every partition, an empty one (`first == until`) where there is
        nothing, so that watermarks and idleness are told too. Plan at least one record if there
        is any.
        """

    @abstractmethod
    def oldest_arrival_ms(self, positions: Mapping[int, int], now_ms: float) -> float | None:
        """Tell when the oldest record that is not yet read arrived; None where there is none."""

    def split(self, piece: Range, parts: int) -> list[Range]:
        """Cut a range into about `parts` that tasks can read side by side (by default, not)."""
        return [piece]

    @property
    def sweep_generation(self) -> SweepGeneration:
        """Tell how this input's watermarks are made, for forecasts; what is unknown is learned."""
        if isinstance(self.watermark, BoundedLateness):
            return SweepGeneration.bounded(self.watermark.bound_ms)
        return SweepGeneration.unknown()

    def sweep_arrival_ms(self, deadline_ms: int) -> float | None:
        """Tell when the first source watermark `>= deadline_ms` arrives; None if unknowable."""
        return None

    def next_arrival_ms(self, now_ms: float) -> float | None:
        """Tell when something next arrives, for a source that foresees; None: nothing will."""
        return None

    def again(self, partition: int, first: int, until: int) -> Range | None:
        """Name records that were read before, to audit a result; None where that cannot be done."""
        return None

    def finished(self, positions: Mapping[int, int], now_ms: float) -> bool:
        """Tell whether everything has been read and nothing will ever come."""
        return False

    @classmethod
    def available(cls, readers: Sequence[Any], now_ms: float) -> NDArray[np.int64]:
        """Count, for each reader, the records of all partitions that have arrived by now."""
        return np.array([reader.available_one(now_ms) for reader in readers], dtype=np.int64)

    @abstractmethod
    def available_one(self, now_ms: float) -> int:
        """Count the records of all partitions that have arrived by now, since offset 0."""

    @property
    def lost(self) -> int:
        """Count the records that were gone before they could be read."""
        return 0

    def clock_set(self, by_ms: float) -> None:  # noqa: B027 (most readers remember no moments)
        """Take note that the machine's clock was set: moments remembered are others by so much."""

    def waits_for(self) -> str | None:
        """Say what the source cannot reach at the moment; None where nothing is missing."""
        return None

    def lags(self, positions: Mapping[int, int]) -> dict[str, int]:
        """Tell how many records each partition is behind, by its name; empty: it has no names."""
        return {}

    def origin(self, partition: int) -> tuple[str | None, int]:
        """Tell which topic and partition a partition's number stands for."""
        return None, partition

    def resume(self) -> None:  # noqa: B027 (most readers have nothing that could stop)
        """Start again what stopped by a failure that was mended since."""

    def close(self) -> None:  # noqa: B027 (most readers hold nothing)
        """Release what the reader holds."""


class LateBoundReader(SourceReader):
    """A reader whose rows are expressions over a specification, so that plans can be prepared."""

    # The DDL type of one specification entry, always with `query int`, such as
    # "struct<query:int,partition:int,first:bigint,until:bigint>".
    entry_type: str

    @abstractmethod
    def entry(self, query: int, piece: Range) -> dict[str, Any]:
        """Write one range as a specification entry (JSON values only, of `entry_type`)."""

    def entry_in_full(self, query: int, piece: Range) -> dict[str, Any]:
        """Write one range so that its rows tell the text of malformed records, if that costs more.

        `entry` may leave the text out, or at least `MALFORMED` empty, where only the fact matters.
        """
        return self.entry(query, piece)

    @abstractmethod
    def expand(self, entries: DataFrame, further: Sequence[str] = ()) -> DataFrame:
        """Turn a frame with one column `r` (of `entry_type`) into source rows.

        The result has the columns of `schema`, then SYSTEM_COLUMNS, then `further` columns that
        entries have beside `r`. No shuffle, no nondeterminism.
        """

    def expand_sampled(self, entries: DataFrame) -> DataFrame:
        """Turn entries into a fixed share of their rows, for delay statistics; all by default."""
        return self.expand(entries)

    def suits(self, ranges: Sequence[tuple[int, Range]]) -> bool:
        """Tell whether these ranges are small enough to travel in a specification."""
        return True

    def most_records(self) -> int | None:
        """Return how many records a step had better not exceed now; None where nothing is gained.

        That is where a step that carries its records is far quicker than one that does not.
        """
        return None


class ScanReader(SourceReader):
    """A reader that needs a Spark scan of its own for each step (rebuilt, never prepared)."""

    @abstractmethod
    def scan(self, spark: SparkSession, ranges: Sequence[tuple[int, Range]]) -> DataFrame:
        """Read the ranges of many queries in one scan: `schema` columns, then SYSTEM_COLUMNS."""


class SourceDescription(ABC):
    """What a user writes to name an input; frozen, validates itself, opens as a reader."""

    @abstractmethod
    def open(self, spark: SparkSession) -> SourceReader:
        """Make the reader that the runtime uses."""
