"""A source whose records, arrivals and watermarks a test writes down."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any, ClassVar, Self

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from slackwater.app.durations import Duration, to_ms
from slackwater.app.watermarks import FromSource, WatermarkStrategy, bounded
from slackwater.errors import DescriptionError
from slackwater.progress.times import END_OF_TIME_MS
from slackwater.spark.sources.base import Range, SourceDescription
from slackwater.spark.sources.inline import (
    InlineRows,
    JsonRecords,
    blocks_by_arrival,
    checked_schema,
    inline_entry,
)
from slackwater.testing.clock import moment_ms


@dataclass
class _Lane:
    """Hold one partition's records and watermarks, in order of arrival."""

    arrivals_ms: list[int] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    watermarks: list[tuple[int, int]] = field(default_factory=list)  # (arrival, watermark)

    def arrived(self, now_ms: float) -> int:
        return bisect_right(self.arrivals_ms, now_ms)


class Script(SourceDescription):
    """Describe a source by writing its records down, in order of arrival within a partition."""

    def __init__(
        self,
        schema: StructType | str,
        *,
        event_time: str,
        watermark: WatermarkStrategy,
        partitions: int,
        max_ahead_ms: int,
    ) -> None:
        """Start empty; use `scripted(...)`."""
        self.schema = schema
        self.event_time = event_time
        self.watermark = watermark
        self.max_ahead_ms = max_ahead_ms
        self.lanes = [_Lane() for _ in range(partitions)]
        self.ended_ms: float | None = None

    def add(
        self, *, arrives: str | datetime | float | None = None, partition: int = 0, **values: Any
    ) -> Self:
        """Add a record. It arrives at its event time, or as given, but after the one before."""
        line = json.dumps(values, default=_plain)
        event_time = values.get(self.event_time)
        wanted = arrives if arrives is not None else event_time
        return self.add_line(line, arrives=wanted, partition=partition)

    def add_line(
        self, line: str, *, arrives: str | datetime | float | None = None, partition: int = 0
    ) -> Self:
        """Add a record as the raw text that a producer might send, sound or not."""
        lane = self.lanes[partition]
        before_ms = lane.arrivals_ms[-1] if lane.arrivals_ms else 0
        at_ms = before_ms if arrives is None else int(moment_ms(arrives))
        lane.arrivals_ms.append(max(before_ms, at_ms))
        lane.lines.append(line)
        return self

    def announce(
        self,
        watermark: str | datetime | float,
        *,
        arrives: str | datetime | float,
        partition: int = 0,
    ) -> Self:
        """Let a source watermark arrive (for `watermark=from_source()`)."""
        pair = (int(moment_ms(arrives)), int(moment_ms(watermark)))
        self.lanes[partition].watermarks.append(pair)
        self.lanes[partition].watermarks.sort()
        return self

    def end(self, at: str | datetime | float | None = None) -> Self:
        """Say that nothing comes after this: all windows close once everything is read."""
        last_ms = max((lane.arrivals_ms[-1] for lane in self.lanes if lane.arrivals_ms), default=0)
        self.ended_ms = float(last_ms) if at is None else max(moment_ms(at), float(last_ms))
        return self

    @property
    def first_arrival_ms(self) -> float:
        """Return when the first record arrives."""
        firsts = [lane.arrivals_ms[0] for lane in self.lanes if lane.arrivals_ms]
        return float(min(firsts, default=0))

    def open(self, spark: SparkSession) -> ScriptReader:
        """Make the reader; records added later are seen too."""
        return ScriptReader(self, checked_schema(self.schema, self.event_time))


class ScriptReader(InlineRows):
    """Read a script."""

    foresees: ClassVar[bool] = True

    def __init__(self, script: Script, schema: StructType) -> None:
        """Start at the first record of each partition."""
        self.schema = schema
        self.event_time = script.event_time
        self.watermark = script.watermark
        self.max_ahead_ms = script.max_ahead_ms
        self.records = JsonRecords(schema)
        self._script = script

    @property
    def fusion_key(self) -> Hashable:
        """Fuse scripts whose records look the same."""
        return ("script", self.schema.json(), self.event_time)

    def restore(self, committed: Mapping[int, int], state: Any, ranges: Sequence[Range]) -> None:
        """Need nothing: the script is all there."""

    def plan(self, positions: Mapping[int, int], now_ms: float, max_events: int) -> list[Range]:
        """Plan what has arrived, oldest arrival first over all partitions."""
        untils = self._untils(positions, now_ms, max_events)
        return [
            Range(
                partition=index,
                first=positions.get(index, 0),
                until=until,
                events=until - positions.get(index, 0),
                watermark_ms=self._watermark_ms(index, until, now_ms),
                idle=False,
            )
            for index, until in enumerate(untils)
        ]

    def _untils(self, positions: Mapping[int, int], now_ms: float, most: int) -> list[int]:
        waiting = sorted(
            (lane.arrivals_ms[offset], index, offset)
            for index, lane in enumerate(self._script.lanes)
            for offset in range(positions.get(index, 0), lane.arrived(now_ms))
        )
        untils = [positions.get(index, 0) for index in range(len(self._script.lanes))]
        for _, index, offset in waiting[:most]:
            untils[index] = offset + 1
        return untils

    def _watermark_ms(self, index: int, until: int, now_ms: float) -> int | None:
        lane = self._script.lanes[index]
        if self._has_ended(now_ms) and until == len(lane.lines):
            return END_OF_TIME_MS
        if not isinstance(self.watermark, FromSource):
            return None
        seen_ms = now_ms if until == lane.arrived(now_ms) else lane.arrivals_ms[until]
        told = [mark for arrival, mark in lane.watermarks if arrival <= seen_ms]
        return max(told, default=None)

    def _has_ended(self, now_ms: float) -> bool:
        return self._script.ended_ms is not None and self._script.ended_ms <= now_ms

    def oldest_arrival_ms(self, positions: Mapping[int, int], now_ms: float) -> float | None:
        """Return the arrival of the oldest record that is not read."""
        waiting = [
            lane.arrivals_ms[positions.get(index, 0)]
            for index, lane in enumerate(self._script.lanes)
            if positions.get(index, 0) < lane.arrived(now_ms)
        ]
        return float(min(waiting)) if waiting else None

    def sweep_arrival_ms(self, deadline_ms: int) -> float | None:
        """Return when every partition has announced the deadline, or the script ends."""
        if not isinstance(self.watermark, FromSource):
            return None
        never = float("inf") if self._script.ended_ms is None else self._script.ended_ms
        return max(
            min((at for at, mark in lane.watermarks if mark >= deadline_ms), default=never)
            for lane in self._script.lanes
        )

    def finished(self, positions: Mapping[int, int], now_ms: float) -> bool:
        """Tell whether the script has ended and every record is read."""
        return self._has_ended(now_ms) and all(
            positions.get(index, 0) == len(lane.lines)
            for index, lane in enumerate(self._script.lanes)
        )

    def available_one(self, now_ms: float) -> int:
        """Count what has arrived."""
        return sum(lane.arrived(now_ms) for lane in self._script.lanes)

    def next_arrival_ms(self, now_ms: float) -> float | None:
        """Return when the next record, watermark or the end arrives."""
        coming: list[float] = []
        for lane in self._script.lanes:
            coming += lane.arrivals_ms[lane.arrived(now_ms) :][:1]
            coming += [at for at, _ in lane.watermarks if at > now_ms][:1]
        if self._script.ended_ms is not None and self._script.ended_ms > now_ms:
            coming.append(self._script.ended_ms)
        return min(coming, default=None)

    def entry(self, query: int, piece: Range) -> dict[str, Any]:
        """Send the lines along."""
        lane = self._script.lanes[piece.partition]
        span = slice(piece.first, piece.until)
        records = zip(lane.arrivals_ms[span], lane.lines[span], strict=True)
        return inline_entry(query, piece.partition, blocks_by_arrival(piece.first, records))


def scripted(
    schema: StructType | str,
    *,
    event_time: str,
    watermark: WatermarkStrategy | None = None,
    partitions: int = 1,
    max_ahead: Duration = "1 minute",
) -> Script:
    """Begin a script: `scripted("ts timestamp, user string", event_time="ts")`."""
    if partitions < 1:
        raise DescriptionError(f"partitions={partitions}: give at least one")
    return Script(
        schema,
        event_time=event_time,
        watermark=watermark or bounded("0 s"),
        partitions=partitions,
        max_ahead_ms=to_ms(max_ahead, "max_ahead", allow_zero=True),
    )


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    if isinstance(value, date | Decimal):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
