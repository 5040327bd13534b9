"""A source whose records, arrivals and watermarks a test writes down."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, ClassVar, Self

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType, TimestampType

from slackwater.app.durations import Duration, to_ms
from slackwater.app.watermarks import FromSource, WatermarkStrategy, bounded
from slackwater.errors import DescriptionError
from slackwater.parsing import brief
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

# What Spark takes for a moment, without a time zone; more digits than these it would cut.
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d:\d\d(\.\d{1,6})?)?")

Record = str | Mapping[str, Any]  # raw text, or the values of columns


@dataclass
class _Lane:
    """Hold one partition's records and watermarks, in order of arrival."""

    arrivals_ms: list[int] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    early: list[Record] = field(default_factory=list)  # before any that says when it arrives
    watermarks: list[tuple[int, int]] = field(default_factory=list)  # (arrival, watermark)

    def arrived(self, now_ms: float) -> int:
        return bisect_right(self.arrivals_ms, now_ms)

    def add(self, record: Record, at_ms: int | None) -> None:
        """Add a record, not before the one before it; those first of all come with the next."""
        before_ms = self.arrivals_ms[-1] if self.arrivals_ms else at_ms
        if before_ms is None:
            self.early.append(record)
            return
        at_ms = before_ms if at_ms is None else max(before_ms, at_ms)
        for each in (*self.early, record):
            self.arrivals_ms.append(at_ms)
            self.records.append(each)
        self.early.clear()


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
        """Add a record. It arrives at its event time, or as given, but after the one before.

        Moments without a time zone are UTC, whatever the time zone of the session.
        """
        self._lane(partition)
        json.dumps(values, default=_plain)  # refuses what is no JSON
        wanted = arrives if arrives is not None else values.get(self.event_time)
        try:
            return self._add(values, wanted, partition)
        except DescriptionError as error:
            if arrives is not None:
                raise
            raise DescriptionError(
                f"add({self.event_time}={wanted!r}): say when a record arrives whose event time "
                f"does not, with arrives=... ({error})"
            ) from None

    def add_line(
        self, line: str, *, arrives: str | datetime | float | None = None, partition: int = 0
    ) -> Self:
        """Add a record as the raw text that a producer might send, sound or not.

        It arrives as given, or with the one before it, or else with the next one.
        """
        return self._add(line, arrives, partition)

    def _add(self, record: Record, arrives: str | datetime | float | None, partition: int) -> Self:
        at_ms = None if arrives is None else int(moment_ms(arrives))
        self._lane(partition).add(record, at_ms)
        return self

    def _lane(self, partition: int) -> _Lane:
        if partition not in range(len(self.lanes)):
            raise DescriptionError(
                f"partition={partition!r}: the script has {len(self.lanes)}, counted from 0; make "
                "more with scripted(..., partitions=...)"
            )
        return self.lanes[partition]

    def announce(
        self,
        watermark: str | datetime | float,
        *,
        arrives: str | datetime | float,
        partition: int = 0,
    ) -> Self:
        """Let a source watermark arrive (for `watermark=from_source()`)."""
        if not isinstance(self.watermark, FromSource):
            raise DescriptionError(
                "announce(...): the script's watermarks do not come with its records; make it with "
                "scripted(..., watermark=from_source())"
            )
        lane = self._lane(partition)
        lane.watermarks.append((int(moment_ms(arrives)), int(moment_ms(watermark))))
        lane.watermarks.sort()
        return self

    def end(self, at: str | datetime | float | None = None) -> Self:
        """Say that nothing comes after this: all windows close once everything is read."""
        self._place_early()
        last_ms = max((lane.arrivals_ms[-1] for lane in self.lanes if lane.arrivals_ms), default=0)
        self.ended_ms = float(last_ms) if at is None else max(moment_ms(at), float(last_ms))
        return self

    @property
    def first_arrival_ms(self) -> float:
        """Return when the first record arrives."""
        self._place_early()
        firsts = [lane.arrivals_ms[0] for lane in self.lanes if lane.arrivals_ms]
        return float(min(firsts, default=0))

    def open(self, spark: SparkSession) -> ScriptReader:
        """Make the reader; records added later are seen too."""
        self._place_early()
        schema = checked_schema(self.schema, self.event_time)
        self._check_names(schema)
        return ScriptReader(self, schema)

    def _place_early(self) -> None:
        """Let records that nothing says the arrival of come with the first of another partition."""
        if not any(lane.early for lane in self.lanes):
            return
        firsts = [lane.arrivals_ms[0] for lane in self.lanes if lane.arrivals_ms]
        if not firsts:
            raise DescriptionError(
                f"no record of the script says when it arrives: none has the event time "
                f"{self.event_time!r}; mend scripted(event_time=...), or give one of them "
                "arrives='2024-01-01 10:00:01'"
            )
        for lane in self.lanes:
            for record in lane.early[:]:
                lane.early.remove(record)
                lane.add(record, min(firsts))

    def _check_names(self, schema: StructType) -> None:
        names = set(schema.names)
        for lane in self.lanes:
            for record in lane.records:
                odd = [] if isinstance(record, str) else [n for n in record if n not in names]
                if odd:
                    raise DescriptionError(
                        f"add({odd[0]}=...): {odd[0]!r} is not in the script's schema "
                        f"({', '.join(schema.names)}); what producers send beside it goes in as "
                        "text, with add_line(...)"
                    )


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
        moments = (each.name for each in schema.fields if isinstance(each.dataType, TimestampType))
        self._moments = frozenset(moments)

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
        if self._has_ended(now_ms) and until == len(lane.records):
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
            positions.get(index, 0) == len(lane.records)
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
        lines = [self.line(record) for record in lane.records[span]]
        records = zip(lane.arrivals_ms[span], lines, strict=True)
        return inline_entry(query, piece.partition, blocks_by_arrival(piece.first, records))

    def line(self, record: Record) -> str:
        """Write a record as a producer would, with its moments in UTC."""
        if isinstance(record, str):
            return record
        values = {
            name: _in_utc(value) if name in self._moments else value
            for name, value in record.items()
        }
        return json.dumps(values, default=_plain)


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


def _in_utc(value: Any) -> Any:
    """Add the time zone to a moment that has none; what is no moment stays as it is.

    >>> _in_utc("2024-01-01 10:00:01"), _in_utc("2024-01-01T10:00:01+02:00"), _in_utc("soon")
    ('2024-01-01 10:00:01+00:00', '2024-01-01T10:00:01+02:00', 'soon')
    """
    if isinstance(value, str) and _MOMENT.fullmatch(value):
        with suppress(ValueError):  # there is no 30 February
            value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        zoned = value if value.tzinfo else value.replace(tzinfo=UTC)
        return zoned.isoformat(sep=" ")
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    if isinstance(value, date | Decimal):
        return str(value)
    raise DescriptionError(
        f"add(...): {brief(value)} cannot be written as JSON: give text, numbers, moments, lists "
        "or dictionaries"
    )
