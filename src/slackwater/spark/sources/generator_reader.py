"""Read generated streams: what has arrived, what to read next, and the watermarks beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from slackwater.app.watermarks import FromSource, WatermarkStrategy
from slackwater.progress.arrivals import ArrivalCounter, Arrivals, stream_salt
from slackwater.progress.periodic import PeriodicWatermarks
from slackwater.progress.sweeps import SweepGeneration
from slackwater.progress.times import END_OF_TIME_MS
from slackwater.spark.sources.base import LateBoundReader, Range
from slackwater.spark.sources.generated_rows import ENTRY_TYPE, SAMPLE_STEP, RowShape

if TYPE_CHECKING:
    from slackwater.spark.sources.generator import Generator


class GeneratorReader(LateBoundReader):
    """Read a generated stream."""

    trusted: ClassVar[bool] = True
    entry_type = ENTRY_TYPE

    # The counter of the readers that were asked about last: the runtime asks about the same ones
    # at every step, and to gather their parameters takes longer than to count.
    _counted: ClassVar[tuple[tuple[Any, ...], NDArray[np.intp], ArrivalCounter] | None] = None

    def __init__(self, description: Generator, schema: StructType, start_ms: int) -> None:
        self.schema = schema
        self.event_time = description.event_time
        self.watermark = description.watermark
        self.max_ahead_ms = description.max_ahead_ms
        self._description = description
        self._shape = description.shape
        self._start(start_ms)

    def _start(self, start_ms: int) -> None:
        it = self._description
        gap_us = 1e6 * it.partitions / it.rate
        self._start_ms = start_ms
        self._streams = tuple(
            Arrivals(
                salt=stream_salt(it.seed, partition),
                start_us=start_ms * 1_000 + int(gap_us * partition / it.partitions),
                gap_us=gap_us,
                irregular=it.gap == "gamma",
                limit=None if it.limit is None else -((partition - it.limit) // it.partitions),
            )
            for partition in range(it.partitions)
        )
        self._watermarks = tuple(
            PeriodicWatermarks(
                it.delay,
                salt=stream.salt,
                period_ms=it.watermark_period_ms,
                lag_ms=it.watermark_lag_ms,
                start_ms=start_ms,
            )
            for stream in self._streams
        )
        GeneratorReader._counted = None

    @property
    def fusion_key(self) -> tuple[RowShape, WatermarkStrategy]:
        """Tell which readers one scan can serve: any rate, seed and start, rows of one shape."""
        return self._shape, self.watermark

    @property
    def sweep_generation(self) -> SweepGeneration:
        """Tell the period of the source's own watermarks, and how far they stay behind."""
        it = self._description
        if not isinstance(self.watermark, FromSource):
            return super().sweep_generation
        return SweepGeneration.periodic(it.watermark_period_ms, it.watermark_lag_ms)

    def restore(self, committed: Mapping[int, int], state: Any, ranges: Sequence[Range]) -> None:
        """Go on with the stream that was started then."""
        starts = [state["start_ms"]] if state else [r.detail for r in ranges if r.detail]
        if starts:
            self._start(starts[0])

    def state(self) -> dict[str, int]:
        """Remember when the stream started."""
        return {"start_ms": self._start_ms}

    def plan(self, positions: Mapping[int, int], now_ms: float, max_events: int) -> list[Range]:
        """Plan all that has arrived, or of each partition the same share of it."""
        firsts = [positions.get(partition, 0) for partition in range(len(self._streams))]
        backlogs = [
            max(0, stream.arrived(now_ms) - first)
            for stream, first in zip(self._streams, firsts, strict=True)
        ]
        counts = _proportional(backlogs, max(1, max_events))
        # A start that nobody gave must outlive a crash before the first snapshot.
        detail = self._start_ms if self._description.start_ms is None else None
        return [
            Range(
                partition=partition,
                first=first,
                until=first + count,
                events=count,
                watermark_ms=self._watermark_ms(partition, first + count, count < backlog, now_ms),
                detail=detail,
            )
            for partition, (first, count, backlog) in enumerate(
                zip(firsts, counts, backlogs, strict=True)
            )
        ]

    def _watermark_ms(self, partition: int, until: int, cut: bool, now_ms: float) -> int | None:
        stream = self._streams[partition]
        if stream.limit is not None and until >= stream.limit:
            return END_OF_TIME_MS
        if not isinstance(self.watermark, FromSource):
            return None
        # What came before the next record came before it: no more may be told yet.
        seen_ms = stream.arrival_us(until) // 1_000 if cut else now_ms
        return self._watermarks[partition].at(seen_ms)

    def oldest_arrival_ms(self, positions: Mapping[int, int], now_ms: float) -> float | None:
        """Tell when the oldest record that is not yet read arrived; None where there is none."""
        waiting = [
            stream.arrival_ms(positions.get(partition, 0))
            for partition, stream in enumerate(self._streams)
            if positions.get(partition, 0) < stream.arrived(now_ms)
        ]
        return min(waiting, default=None)

    def sweep_arrival_ms(self, deadline_ms: int) -> float | None:
        """Tell when all partitions have said, by watermark or end, that the deadline passed."""
        if not isinstance(self.watermark, FromSource):
            return None
        latest_ms = 0
        for stream, watermarks in zip(self._streams, self._watermarks, strict=True):
            swept_ms, end_ms = watermarks.sweep_arrival_ms(deadline_ms), stream.end_ms
            latest_ms = max(latest_ms, swept_ms if end_ms is None else min(swept_ms, end_ms))
        return latest_ms

    def again(self, partition: int, first: int, until: int) -> Range:
        """Name records that were read before."""
        return Range(partition, first, until, max(0, until - first))

    def finished(self, positions: Mapping[int, int], now_ms: float) -> bool:
        """Tell whether the stream has a last record in each partition, and all are read."""
        return all(
            stream.limit is not None and positions.get(partition, 0) >= stream.limit
            for partition, stream in enumerate(self._streams)
        )

    @classmethod
    def available(cls, readers: Sequence[Any], now_ms: float) -> NDArray[np.int64]:
        """Count, for each reader, the records of all partitions that have arrived by now."""
        asked, counted = tuple(readers), GeneratorReader._counted
        if not asked:
            return np.zeros(0, dtype=np.int64)
        if counted is None or (counted[0] is not asked and counted[0] != asked):
            sizes = [len(reader._streams) for reader in asked]
            begins = np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(np.intp)
            counter = ArrivalCounter([s for reader in asked for s in reader._streams])
            counted = GeneratorReader._counted = (asked, begins, counter)
        arrived, begins = counted[2].arrived(now_ms), counted[1]
        if len(begins) == len(arrived):  # one partition each
            return arrived
        totals: NDArray[np.int64] = np.add.reduceat(arrived, begins)
        return totals

    def available_one(self, now_ms: float) -> int:
        """Count the records of all partitions that have arrived by now, since offset 0."""
        return sum(stream.arrived(now_ms) for stream in self._streams)

    def split(self, piece: Range, parts: int) -> list[Range]:
        """Cut a range of offsets into equal parts."""
        size = max(1, -(-piece.events // parts))
        return [
            replace(
                piece,
                first=first,
                until=min(first + size, piece.until),
                events=min(size, piece.until - first),
            )
            for first in range(piece.first, piece.until, size)
        ]

    def entry(self, query: int, piece: Range) -> dict[str, Any]:
        """Write one range as a specification entry."""
        stream = self._streams[piece.partition]
        entry: dict[str, Any] = {
            "query": query,
            "partition": piece.partition,
            "first": piece.first,
            "until": piece.until,
            "salt": stream.salt - (1 << 64) if stream.salt >> 63 else stream.salt,
            "start_us": stream.start_us,
            "gap_us": stream.gap_us,
        }
        if self._description.parameters:
            entry["parameters"] = [value for _, value in self._description.parameters]
        return entry

    def expand(self, entries: DataFrame, further: Sequence[str] = ()) -> DataFrame:
        """Turn entries into source rows."""
        return self._shape.expand(entries, further=further)

    def expand_sampled(self, entries: DataFrame) -> DataFrame:
        """Turn entries into every sixteenth of their rows, the same however ranges are cut."""
        return self._shape.expand(entries, SAMPLE_STEP)

    def close(self) -> None:
        """Forget the readers that were counted together."""
        GeneratorReader._counted = None


def _proportional(backlogs: Sequence[int], most: int) -> list[int]:
    """Share out at most `most` records over partitions, in proportion to what waits in each."""
    total = sum(backlogs)
    if total <= most:
        return list(backlogs)
    counts = [backlog * most // total for backlog in backlogs]
    by_remainder = sorted(
        range(len(backlogs)), key=lambda i: backlogs[i] * most % total, reverse=True
    )
    for index in by_remainder[: most - sum(counts)]:
        counts[index] += 1
    return counts
