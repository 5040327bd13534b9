"""Steps computed in plain Python in place of Spark's jobs; everything behind them is the product's.

`without_spark` puts them under a real `Runtime`: loop, executor, ledger, tiers, sinks and clerk do
what they always do, and a run of some dozen steps takes a few hundredths of a second.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from slackwater.app.aggregates import Aggregate, Count, Max, Min, Sum
from slackwater.app.outputs import Output
from slackwater.app.windows import CountWindows, KeyedWindows
from slackwater.runtime import deploying
from slackwater.runtime import runtime as runtime_module
from slackwater.spark.frames import ROWS, SLICE, Template, TooLate
from slackwater.spark.jobtimes import JobTimes
from slackwater.spark.keyed_rows import FIRST, LAST, TIE, value_columns
from slackwater.spark.outcome import PartitionStatistics, StepOutcome
from slackwater.spark.shapes import ResultShape, _bound_aggregates
from slackwater.spark.sources.base import OFFSET, PARTITION, QUERY, SourceReader
from slackwater.spark.steps import Piece
from slackwater.testing.script import ScriptReader

_NUMBERS = {QUERY: pa.int32()}


@dataclass(frozen=True)
class _Event:
    """Hold one record that was read: sound where `time_us` is not None."""

    query: int
    partition: int
    offset: int
    arrival_ms: int
    line: str
    values: Mapping[str, Any]
    time_us: int | None
    reason: str | None = None

    @property
    def time_ms(self) -> int:
        assert self.time_us is not None
        return self.time_us // 1_000


class ArrowRunner:
    """Stand for a StepRunner whose pipelines change nothing: they only group what is read."""

    def warm(self, template: Template, copies: int = 1) -> None:
        """Have nothing to plan."""

    def why_rebuilt(self, template: Template) -> list[str]:
        """Never rebuild."""
        return []

    def forget(self, template: Template) -> None:
        """Have nothing to forget."""

    def run(
        self, template: Template, pieces: Sequence[Piece], slot: int, *, parallelism: int = 1
    ) -> StepOutcome:
        """Read the pieces; group, or keep, what is sound; count the rest."""
        statistics, sound = [], []
        for piece in pieces:
            if piece.range.events:
                events = list(_events(piece))
                statistics.append(_statistics(piece, events))
                sound += [event for event in events if event.reason is None]
        counted = isinstance(template.output.windows, CountWindows)
        rows = (_singles if counted else _groups)(template, sound)
        return StepOutcome(rows, Counter(), tuple(statistics), prepared=True, times=JobTimes())

    def rejected(self, template: Template, pieces: Sequence[Piece]) -> pa.Table:
        """List the records without a usable event time."""
        events = (event for piece in pieces for event in _events(piece))
        return _letters([(event, event.reason) for event in events if event.reason])

    def too_late(
        self, template: Template, pieces: Sequence[Piece], over: Mapping[int, TooLate]
    ) -> pa.Table:
        """List the sound records all of whose windows were over."""
        found: list[tuple[_Event, str | None]] = []
        for event in (event for piece in pieces for event in _events(piece)):
            if event.reason is None:
                grid, late = template.output.windows.grid(event.query), over[event.query]
                start = grid.slice_start(event.time_ms)
                assert start is not None
                ends = grid.last_window_of(start) + grid.size_ms
                if start in late.slices or (late.until_ms is not None and ends <= late.until_ms):
                    found.append((event, "too late"))
        return _letters(found)


class ArrowPipeline:
    """Stand for a CheckedPipeline without transforms, over one scripted input."""

    calls_python = False
    keys_from_source = True
    fusable = True
    result_names: tuple[str, ...] = ()

    def __init__(self, spark: object, output: Output, readers: Sequence[SourceReader]) -> None:
        """Bind the aggregates as Spark's analysis would."""
        (reader,) = readers
        self.event_time = reader.event_time
        self.columns = reader.schema
        kinds = {field.name: field.dataType.simpleString() for field in self.columns.fields}
        self.aggregates: dict[str, Aggregate] = {
            name: each if each.column is None else each.over(kinds[each.column], output.place)
            for name, each in output.aggregates.items()
        }
        shapes = [ResultShape(output.windows, output.by, self.aggregates)]
        schema = _result_schema(self.columns, output.by, self.aggregates)
        for stage in output.stages:
            bound = _bound_aggregates(schema, stage, output.place)
            schema = _result_schema(schema, stage.by, bound)
            shapes.append(ResultShape(stage.windows, stage.by, bound, result=schema))
        self.shapes = tuple(shapes)
        self.result = to_arrow_schema(schema, timezone="UTC", prefers_large_types=False)


def without_spark(patch: pytest.MonkeyPatch) -> Any:
    """Put plain Python in the place of Spark under every Runtime made from now on."""
    patch.setattr(runtime_module, "StepRunner", lambda *_, **__: ArrowRunner())
    patch.setattr(runtime_module, "parallelism", lambda _: 1)
    patch.setattr(runtime_module, "stored_bytes", lambda _: 0)
    patch.setattr(deploying, "CheckedPipeline", ArrowPipeline)
    patch.setattr(deploying, "analyse_step", lambda *_: None)
    return SimpleNamespace(
        conf=SimpleNamespace(get=lambda *_: "false"),
        addTag=lambda _: None,
        interruptTag=lambda _: [],
    )


def _result_schema(
    columns: StructType, by: Sequence[str], aggregates: Mapping[str, Aggregate]
) -> StructType:
    values = [StructField(name, LongType()) for name in aggregates]
    return StructType([*(columns[key] for key in by), *values])


def _events(piece: Piece) -> Iterator[_Event]:
    reader = piece.reader
    assert isinstance(reader, ScriptReader)
    lane = reader._script.lanes[piece.range.partition]
    for offset in range(piece.range.first, piece.range.until):
        line, arrival_ms = reader.line(lane.records[offset]), lane.arrivals_ms[offset]
        values: dict[str, Any] = {}
        time_us: int | None = None
        reason: str | None = "malformed"
        try:
            values = json.loads(line)
        except ValueError:
            pass
        else:
            reason = "no event time"
            if values.get(reader.event_time) is not None:
                moment = datetime.fromisoformat(values[reader.event_time]).replace(tzinfo=UTC)
                time_us, reason = round(moment.timestamp() * 1_000_000), None
        yield _Event(
            piece.query, piece.range.partition, offset, arrival_ms, line, values, time_us, reason
        )


def _statistics(piece: Piece, events: Sequence[_Event]) -> PartitionStatistics:
    sound = [event for event in events if event.reason is None]
    newest = max(sound, key=lambda event: event.time_ms, default=None)
    delays = [event.arrival_ms - event.time_ms for event in sound]
    return PartitionStatistics(
        query=piece.query,
        input=piece.input,
        partition=piece.range.partition,
        records=len(events),
        rejected=len(events) - len(sound),
        newest_ms=None if newest is None else newest.time_ms,
        newest_arrival_ms=None if newest is None else newest.arrival_ms,
        delays=len(delays),
        delay_sum_ms=float(sum(delays)),
        delay_squares_ms2=float(sum(delay * delay for delay in delays)),
        delay_most_ms=float(max(delays, default=0)),
    )


def _groups(template: Template, events: Sequence[_Event]) -> pa.Table:
    """Make the partials of each query, slice and group."""
    output = template.output
    groups: dict[tuple[Any, ...], list[_Event]] = defaultdict(list)
    for event in events:
        slice_ms = output.windows.grid(event.query).slice_start(event.time_ms)
        group = (event.values.get(key) for key in output.by)
        groups[event.query, slice_ms, *group].append(event)
    rows = []
    for (query, slice_ms, *keys), members in groups.items():
        row = {QUERY: query, SLICE: slice_ms, **dict(zip(output.by, keys, strict=True))}
        row[ROWS] = len(members)
        if isinstance(output.windows, KeyedWindows):
            row[FIRST] = min(event.time_us or 0 for event in members)
            row[LAST] = max(event.time_us or 0 for event in members)
        for name, aggregate in template.aggregates.items():
            (partial,) = aggregate.partials(name)
            row[partial.column] = _partial(aggregate, members)
        rows.append(row)
    return _table(template, rows)


def _singles(template: Template, events: Sequence[_Event]) -> pa.Table:
    """Keep each event by itself, as windows that count events need them."""
    output, rows = template.output, []
    values = value_columns(template.aggregates)
    for event in events:
        row = {
            QUERY: event.query,
            SLICE: output.windows.grid(event.query).slice_start(event.time_ms),
        }
        row |= {key: event.values.get(key) for key in output.by}
        row |= {ROWS: 1, FIRST: event.time_us, LAST: event.time_us}
        row |= {PARTITION: event.partition, OFFSET: event.offset}
        row[TIE] = zlib.crc32(event.line.encode())
        for name, column in values.items():
            row[column] = event.values.get(template.aggregates[name].column or "")
        rows.append(row)
    return _table(template, rows)


def _partial(aggregate: Aggregate, events: Sequence[_Event]) -> int | None:
    if isinstance(aggregate, Count):
        return len(events)
    found: list[int] = [event.values[aggregate.column or ""] for event in events]
    match aggregate:
        case Sum():
            return sum(found)
        case Min():
            return min(found)
        case Max():
            return max(found)
    raise TypeError(f"{aggregate.label} is not computed without Spark")


def _table(template: Template, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Make the columns that a step's job brings back: numbers, but for keys, which are text."""
    names = [QUERY, SLICE, *template.state_columns]
    kinds = dict.fromkeys(template.output.by, pa.string()) | _NUMBERS
    return pa.table(
        {name: pa.array([row[name] for row in rows], kinds.get(name, pa.int64())) for name in names}
    )


def _letters(found: Sequence[tuple[_Event, str | None]]) -> pa.Table:
    moments = pa.timestamp("us", tz="UTC")
    events = [event for event, _ in found]
    return pa.table(
        {
            QUERY: pa.array([event.query for event in events], pa.int32()),
            "input": pa.array([0] * len(events), pa.int32()),
            PARTITION: pa.array([event.partition for event in events], pa.int32()),
            OFFSET: pa.array([event.offset for event in events], pa.int64()),
            "event_time": pa.array([event.time_us for event in events], moments),
            "arrival": pa.array([event.arrival_ms * 1_000 for event in events], moments),
            "reason": pa.array([reason for _, reason in found], pa.string()),
            "record": pa.array([event.line for event in events], pa.string()),
        }
    )
