"""The DataFrame of a step: ranges in, partials or rows per slice out, statistics beside them.

Statistics (records, delays, highest event time) are taken before the transforms, per query and
partition, and leave the same job in rows of their own: a filter must not hold back event time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from slackwater.app.aggregates import Aggregate, Partial
from slackwater.app.names import quoted
from slackwater.app.nodes import EVENT_TIME
from slackwater.app.outputs import Output
from slackwater.app.sampled import sampled_partials
from slackwater.app.watermarks import FromSource, Punctuated
from slackwater.app.windows import CountWindows, Windows
from slackwater.progress.times import END_OF_TIME_MS, START_OF_TIME_MS
from slackwater.spark.flows import PLACE_COLUMNS, Flow, through
from slackwater.spark.keyed_rows import (
    PLACES,
    event_columns,
    span_columns,
    spans,
    value_columns,
)
from slackwater.spark.pipeline import CheckedPipeline
from slackwater.spark.sampled import (
    GROUP,
    SAMPLE,
    SAMPLE_TYPE,
    STRATUM_COLUMNS,
    SUBSTREAM,
    group_sql,
    population_frame,
    substream_of,
    taken_sql,
)
from slackwater.spark.sources.base import (
    ARRIVAL,
    MALFORMED,
    OFFSET,
    PARTITION,
    QUERY,
    LateBoundReader,
    SourceReader,
)

SLICE = "_sw_slice"
ROWS = "_sw_rows"
STATISTICS = "_sw_statistics"

# Of an output with an error wish: which of its panes a query makes.
Bounds = Literal["early", "exact"] | None


@dataclass(frozen=True, eq=False)
class Template:
    """Describe what queries share so that one step can serve them all.

    `query` is the number of its only query where the pipeline drops the query's number. `bounds`
    says, where the output has an error wish, which of its panes are made: the early ones, from a
    sample, or the exact ones that follow.
    """

    index: int
    output: Output
    pipeline: CheckedPipeline
    readers: tuple[
        SourceReader, ...
    ]  # of one of its queries; the others' differ in parameters only
    query: int | None = None
    bounds: Bounds = None

    @property
    def samples(self) -> bool:
        """Tell whether its steps sample."""
        return self.bounds == "early"

    @property
    def stratified_by(self) -> tuple[str, ...]:
        """Name the keys whose groups are sampled at rates of their own; none: all at the same."""
        wish = self.output.error
        if not self.samples or wish is None or wish.groups is None or wish.method == "slack":
            return ()
        return self.output.by if self.pipeline.keys_from_source else ()

    @property
    def partials(self) -> list[Partial]:
        """List what steps compute of each group."""
        return [
            partial
            for name, aggregate in self.aggregates.items()
            for partial in (
                sampled_partials(name, aggregate) if self.samples else aggregate.partials(name)
            )
        ]

    @property
    def aggregates(self) -> dict[str, Aggregate]:
        """Return the output's aggregates, bound to the types of their columns."""
        return self.pipeline.aggregates

    @property
    def keeps_rows(self) -> bool:
        """Tell whether a window's state is its rows rather than partial aggregates."""
        return self.output.keeps_rows

    @property
    def state_columns(self) -> list[str]:
        """Name the columns of a slice's state, without the query and slice themselves."""
        if self.keeps_rows:
            stratum = STRATUM_COLUMNS if self.samples else ()
            return [*(field.name for field in self.pipeline.columns.fields), *stratum]
        windows = self.output.windows
        if isinstance(windows, CountWindows):
            values = value_columns(self.aggregates).values()
            return [*self.output.by, ROWS, *span_columns(windows), *values]
        stratum = STRATUM_COLUMNS if self.samples else ()
        partials = (partial.column for partial in self.partials)
        return [*self.output.by, ROWS, *span_columns(windows), *partials, *stratum]

    @property
    def specification_types(self) -> list[str]:
        """Return the types of what steps are told to read, of each input."""
        kinds = (
            reader.entry_type if isinstance(reader, LateBoundReader) else "string"
            for reader in self.readers
        )
        return [
            f"array<struct<r:{kind},s:{SAMPLE_TYPE}>>" if self.samples else f"array<{kind}>"
            for kind in kinds
        ]

    def samples_statistics(self, index: int) -> bool:
        """Tell whether a sample of an input's records is enough (the source tells its time)."""
        reader = self.readers[index]
        return reader.trusted and isinstance(reader.watermark, FromSource)


def step_frame(
    template: Template,
    rows: Sequence[DataFrame],
    measured: Sequence[DataFrame],
    *,
    single: bool = False,
) -> DataFrame:
    """Build a step: `rows` of each input through the pipeline, statistics from `measured`.

    `single` says that the rows are in one partition, so that nothing need be shuffled.
    """
    usable = (
        frame if reader.trusted else frame.where(_valid(reader))
        for frame, reader in zip(rows, template.readers, strict=True)
    )
    counted = isinstance(template.output.windows, CountWindows)
    if template.samples:
        usable = (
            frame.where(taken_sql(reader, template.stratified_by))
            for frame, reader in zip(list(usable), template.readers, strict=True)
        )
    stream = _stream(template, usable, PLACES if counted else ())
    if single and (template.pipeline.calls_python or len(rows) > 1):
        # Behind a Python function Spark no longer knows it, and several inputs are as many.
        stream = stream.coalesce(1)
    stream = sliced(template, stream)
    if template.samples:
        main = _sampled_main(template, stream, rows)
    elif template.keeps_rows:
        main = stream.selectExpr(QUERY, SLICE, *map(quoted, template.state_columns))
    elif counted:
        kept = event_columns(
            stream.columns, template.pipeline.event_time, template.output.by, template.aggregates
        )
        columns = [f"{sql} AS {quoted(name)}" for name, sql in kept.items()]
        keys = map(quoted, template.output.by)
        main = stream.selectExpr(QUERY, SLICE, *keys, f"1L AS {ROWS}", *columns)
    else:
        partials = [F.expr(partial.sql).alias(partial.column) for partial in template.partials]
        grouped = stream.groupBy(QUERY, SLICE, *map(quoted, template.output.by))
        times = spans(template.output.windows, template.pipeline.event_time)
        main = grouped.agg(
            F.count(F.lit(1)).alias(ROWS),
            *(F.expr(sql).alias(name) for name, sql in times.items()),
            *partials,
        )
    nothing = ["NULL"] * len(template.state_columns)
    result = main.selectExpr(
        QUERY, SLICE, *map(quoted, template.state_columns), f"NULL AS {STATISTICS}"
    )
    for index, (frame, reader) in enumerate(zip(measured, template.readers, strict=True)):
        result = result.union(
            frame.groupBy(QUERY, PARTITION)
            .agg(F.expr(_statistics(index, reader)).alias(STATISTICS))
            .selectExpr(QUERY, "NULL", *nothing, STATISTICS)
        )
    return result


def _sampled_main(template: Template, stream: DataFrame, rows: Sequence[DataFrame]) -> DataFrame:
    """Aggregate the rows of a sample by sub-stream, or keep them; count all records beside them."""
    windows = template.output.windows
    assert isinstance(windows, Windows)
    time = _event_ms(template)
    number = QUERY if template.query is None else f"{template.query}"
    width = substream_of(windows)
    keys = template.stratified_by
    main = stream.withColumn(SUBSTREAM, F.expr(windows.substream_sql(time, number, width)))
    main = main.withColumn(GROUP, F.expr(group_sql(keys)))
    if not template.keeps_rows:
        partials = [F.expr(partial.sql).alias(partial.column) for partial in template.partials]
        grouped = main.groupBy(QUERY, SLICE, *map(quoted, template.output.by), SUBSTREAM, GROUP)
        main = grouped.agg(F.count(F.lit(1)).alias(ROWS), *partials)
    kept = [name for name in template.state_columns if name not in STRATUM_COLUMNS]
    nothing = [f"CAST(NULL AS {kind})" for kind in ("BIGINT", "BIGINT", "INT", "DOUBLE")]
    main = main.selectExpr(QUERY, SLICE, *map(quoted, kept), SUBSTREAM, *nothing, GROUP)
    counted = population_frame(
        windows,
        template.readers,
        rows,
        [_valid(reader) for reader in template.readers],
        slice_sql=lambda time: _slice_sql(template, time, QUERY),
        slice_column=SLICE,
        columns=len(template.state_columns),
        keys=keys,
    )
    return main.union(counted).toDF(QUERY, SLICE, *template.state_columns)


def _stream(
    template: Template, records: Iterable[DataFrame], further: Sequence[str] = ()
) -> DataFrame:
    """Pass each input's usable records through the pipeline, with `further` system columns."""
    pipeline, output = template.pipeline, template.output
    visible = (
        Flow(frame.selectExpr(*pipeline.visible(reader, further)), reader.event_time)
        for frame, reader in zip(records, template.readers, strict=True)
    )
    with pipeline.passage.undisturbed():
        stream = through(output.stream, visible, output.place).frame
    # A query that is alone has its number from the template, whatever a transform made of it.
    return stream if template.query is None else stream.drop(QUERY)


def sliced(template: Template, stream: DataFrame) -> DataFrame:
    """Add the slice that each row belongs to, and drop rows that no window holds.

    Rows that a transform left without event time, or with one that no window can reach, stay,
    without a slice, to be counted.
    """
    windows = template.output.windows
    query = QUERY if template.query is None else f"{template.query}"
    columns = ["*", f"{_slice_sql(template, _event_ms(template), query)} AS {SLICE}"]
    if template.query is not None:
        columns.append(f"{template.query} AS {QUERY}")
    frame = stream.selectExpr(*columns)
    if not windows.grid(0).has_gaps:
        return frame
    return frame.where(f"{SLICE} IS NOT NULL OR {_timeless_sql(template)}")


def _event_ms(template: Template) -> str:
    return f"unix_millis({quoted(template.pipeline.event_time)})"


def _slice_sql(template: Template, time_ms_sql: str, query_sql: str) -> str:
    """Write the slice of an event; null where its time is one that no window can reach."""
    found = template.output.windows.slice_sql(time_ms_sql, query_sql)
    if template.pipeline.time_from_source and all(reader.trusted for reader in template.readers):
        return found
    first_ms, last_ms = template.output.times_ms
    return f"CASE WHEN {time_ms_sql} BETWEEN {first_ms}L AND {last_ms}L THEN {found} END"


def _timeless_sql(template: Template) -> str:
    """Write the condition that a row behind the transforms has no event time to go by."""
    first_ms, last_ms = template.output.times_ms
    return f"NOT coalesce({_event_ms(template)} BETWEEN {first_ms}L AND {last_ms}L, FALSE)"


def _shown_time(time_sql: str) -> str:
    """Write an event time for a dead letter; null where no calendar has it."""
    within = f"unix_millis({time_sql}) BETWEEN {START_OF_TIME_MS}L AND {END_OF_TIME_MS}L"
    return f"CASE WHEN {within} THEN {time_sql} END AS event_time"


def rejected_frame(reader: SourceReader, index: int, rows: DataFrame) -> DataFrame:
    """List the records that have no usable event time, with the reason."""
    time = quoted(reader.event_time)
    reason = (
        f"CASE WHEN {MALFORMED} IS NOT NULL THEN 'malformed' "
        f"WHEN {time} IS NULL THEN 'no event time' ELSE 'ahead of time' END"
    )
    columns = ", ".join(f"{quoted(field.name)}" for field in reader.schema.fields)
    return rows.where(f"NOT ({_valid(reader)})").selectExpr(
        QUERY,
        f"{index} AS input",
        PARTITION,
        OFFSET,
        _shown_time(time),
        f"timestamp_millis({ARRIVAL}) AS arrival",
        f"{reason} AS reason",
        f"coalesce({MALFORMED}, to_json(struct({columns}))) AS record",
    )


@dataclass(frozen=True)
class TooLate:
    """Say which rows of a query came too late: by the end of their last window, or by slice."""

    until_ms: int | None
    slices: tuple[int, ...] = ()

    def sql(self, last_end: str) -> str:
        """Write the condition over a row's slice and the end of its last window."""
        conditions = [] if self.until_ms is None else [f"{last_end} <= {self.until_ms}L"]
        if self.slices:
            conditions.append(f"{SLICE} IN ({', '.join(f'{start}L' for start in self.slices)})")
        return " OR ".join(conditions) or "FALSE"


def too_late_frame(
    template: Template, rows: Sequence[DataFrame], over: Mapping[int, TooLate]
) -> DataFrame:
    """List the rows all of whose windows were over, as said for each query."""
    query = QUERY if template.query is None else f"{template.query}"
    last_end = template.output.windows.last_end_sql(SLICE, query)
    cases = " ".join(f"WHEN {number} THEN {late.sql(last_end)}" for number, late in over.items())
    return _unused_rows(template, rows, f"CASE {QUERY} {cases} END", "'too late'")


def timeless_frame(template: Template, rows: Sequence[DataFrame]) -> DataFrame:
    """List the rows that a transform left without an event time to go by."""
    time = quoted(template.pipeline.event_time)
    _, last_ms = template.output.times_ms
    reason = (
        f"CASE WHEN {time} IS NULL THEN 'no event time' "
        f"WHEN {_event_ms(template)} > {last_ms}L THEN 'ahead of time' ELSE 'before time' END"
    )
    return _unused_rows(template, rows, _timeless_sql(template), reason)


def _unused_rows(
    template: Template, rows: Sequence[DataFrame], condition: str, reason: str
) -> DataFrame:
    """List the rows behind the transforms for which a condition holds, as dead letters.

    `reason` is SQL.
    """
    usable = (
        frame.where(_valid(reader)) for frame, reader in zip(rows, template.readers, strict=True)
    )
    stream = sliced(template, _stream(template, usable, PLACE_COLUMNS))
    kept = [column if column in stream.columns else "NULL" for column in PLACE_COLUMNS]
    join = template.output.join
    hidden = {EVENT_TIME, *(join.marks if join is not None else ())}
    fields = (field.name for field in template.pipeline.columns.fields)
    columns = ", ".join(quoted(name) for name in fields if name not in hidden)
    return stream.where(condition).selectExpr(
        QUERY,
        "CAST(NULL AS INT) AS input",
        f"CAST({kept[0]} AS INT) AS {PARTITION}",
        f"CAST({kept[1]} AS BIGINT) AS {OFFSET}",
        _shown_time(quoted(template.pipeline.event_time)),
        f"timestamp_millis(CAST({kept[2]} AS BIGINT)) AS arrival",
        f"{reason} AS reason",
        f"to_json(struct({columns})) AS record",
    )


def entry_rows(
    template: Template, specification: DataFrame, index: int, *, sampled: bool = False
) -> DataFrame:
    """Turn the specification of one input into its records; `sampled`, for statistics alone."""
    reader = template.readers[index]
    assert isinstance(reader, LateBoundReader)
    entries = specification.selectExpr(f"explode(s{index}) AS r")
    if template.samples:
        entries = entries.selectExpr("r.r AS r", f"r.s AS {SAMPLE}")
    if sampled:
        return reader.expand_sampled(entries)
    return reader.expand(entries, (SAMPLE,) if template.samples else ())


def _valid(reader: SourceReader) -> str:
    if reader.trusted:
        return "TRUE"
    time, latest = quoted(reader.event_time), f"{ARRIVAL} + {reader.max_ahead_ms}L"
    valid = f"{MALFORMED} IS NULL AND {time} IS NOT NULL AND unix_millis({time}) <= {latest}"
    if isinstance(reader.watermark, Punctuated):
        valid += f" AND coalesce({_announced(reader.watermark)} <= {latest}, TRUE)"
    return valid


def _announced(watermark: Punctuated) -> str:
    return f"unix_millis(CAST({watermark.expression} AS TIMESTAMP))"


def _statistics(index: int, reader: SourceReader) -> str:
    """Write the statistics of one query's partition as one SQL aggregate: a JSON object."""
    valid, time = _valid(reader), f"unix_millis({quoted(reader.event_time)})"
    delay = f"CAST({ARRIVAL} - {time} AS DOUBLE)"
    told, holds = time, valid
    if isinstance(reader.watermark, Punctuated):
        told = _announced(reader.watermark)
        holds = f"{valid} AND {told} IS NOT NULL"
    return (
        f"to_json(named_struct('input', {index}, 'partition', first({PARTITION}), "
        f"'records', count(1), 'rejected', count_if(NOT ({valid})), "
        f"'newest', max({told}) FILTER (WHERE {holds}), "
        f"'newest_arrival', max_by({ARRIVAL}, {told}) FILTER (WHERE {holds}), "
        f"'delays', count(1) FILTER (WHERE {valid}), "
        f"'delay_most', max({delay}) FILTER (WHERE {valid}), "
        f"'delay_sum', sum({delay}) FILTER (WHERE {valid}), "
        f"'delay_squares', sum({delay} * {delay}) FILTER (WHERE {valid})))"
    )
