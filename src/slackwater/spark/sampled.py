"""Sampling inside a step: which records are taken, and how many there were in all.

A record is taken if a hash of its position and the plan's seed is below the rate of its sub-stream:
the same records each time the step is run. The test needs the record's place alone for most
records, and its event time for the rest, so Spark moves it below parsing and computing of columns.
Beside the sample, every record is counted, by sub-stream and delay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from slackwater.app.bounds import WEIGHT
from slackwater.app.names import quoted
from slackwater.app.outputs import Output
from slackwater.app.windows import Windows
from slackwater.sampling.delays import bin_sql
from slackwater.sampling.planner import SamplePlan, substream_ms
from slackwater.spark.sources.base import ARRIVAL, OFFSET, PARTITION, QUERY, Range, SourceReader

SAMPLE = "_sw_sample"  # how to sample, on each record
SUBSTREAM = "_sw_substream"
ARRIVED = "_sw_arrived"  # records counted; null on rows of the sample
TAKEN = "_sw_taken"  # records sampled, of those
DELAY_BIN = "_sw_delay_bin"
DELAY_SUM = "_sw_delay_sum"
GROUP = "_sw_group"  # the hash of a row's keys; of counted records, 0 where none has it as its own
STRATUM_COLUMNS = (SUBSTREAM, ARRIVED, TAKEN, DELAY_BIN, DELAY_SUM, GROUP)

SAMPLE_TYPE = (
    "struct<seed:bigint,origin:bigint,width:bigint,since:bigint,"
    "top:double,rest:double,rates:array<double>,"
    "groups:array<bigint>,shares:array<double>,others:double>"
)
_PLACE = (
    f"(shiftrightunsigned(xxhash64({SAMPLE}.seed, {PARTITION}, {OFFSET}), 11)"
    " * 1.1102230246251565E-16D)"
)


def sample_cell(piece: Range) -> dict[str, Any]:
    """Write how a range is sampled as a JSON value of SAMPLE_TYPE."""
    plan = SamplePlan.from_json(piece.sample)
    return {
        "seed": plan.seed,
        "origin": plan.origin_ms,
        "width": plan.width_ms,
        "since": plan.from_ms,
        "top": plan.top,
        "rest": plan.rest,
        "rates": list(plan.rates),
        "groups": [place for place, _ in plan.groups],
        "shares": [share for _, share in plan.groups],
        "others": plan.others,
    }


def sample_sql(pieces: Iterable[tuple[int, Range]]) -> str:
    """Write how the records of each query are sampled, for a plan that is run once."""
    cases = {}
    for query, piece in pieces:
        cell = sample_cell(piece)
        rates = ", ".join(f"{rate!r}D" for rate in cell["rates"])
        cases[query] = (
            f"named_struct('seed', {cell['seed']}L, 'origin', {cell['origin']}L, "
            f"'width', {cell['width']}L, 'since', {cell['since']}L, 'top', {cell['top']!r}D, "
            f"'rest', {cell['rest']!r}D, 'rates', array({rates}), "
            f"'groups', {_array(cell['groups'], 'L', 'BIGINT')}, "
            f"'shares', {_array(cell['shares'], 'D', 'DOUBLE')}, 'others', {cell['others']!r}D)"
        )
    if not cases:
        return f"CAST(NULL AS {SAMPLE_TYPE}) AS {SAMPLE}"
    whens = " ".join(f"WHEN {query} THEN {struct}" for query, struct in cases.items())
    return f"CASE {QUERY} {whens} END AS {SAMPLE}"


def _array(values: Iterable[Any], suffix: str, kind: str) -> str:
    return f"CAST(array({', '.join(f'{each!r}{suffix}' for each in values)}) AS ARRAY<{kind}>)"


def group_sql(keys: Sequence[str]) -> str:
    """Write the hash of a row's keys, which names its group in plans and among strata.

    It is positive, and small enough for a JSON number of any reader.
    """
    if not keys:
        return "0L"
    return f"shiftrightunsigned(xxhash64({', '.join(map(quoted, keys))}), 11)"


def taken_sql(reader: SourceReader, keys: Sequence[str] = ()) -> str:
    """Write the condition that a record is sampled; the first half needs no parsing.

    `keys` are the columns of groups that have rates of their own.
    """
    rate = f"({_rate_sql(reader)})"
    if keys:
        place = f"CAST(nullif({_listed_sql(keys)}, 0L) AS INT)"
        rate += f" * coalesce(element_at({SAMPLE}.shares, {place}), {SAMPLE}.others)"
    return f"{_PLACE} < {SAMPLE}.top AND {_PLACE} < {rate}"


def _listed_sql(keys: Sequence[str]) -> str:
    return f"array_position({SAMPLE}.groups, {group_sql(keys)})"


def _rate_sql(reader: SourceReader) -> str:
    time = f"unix_millis({quoted(reader.event_time)})"
    place = f"({time} - {SAMPLE}.origin) div {SAMPLE}.width"
    inside = f"{time} >= {SAMPLE}.origin AND {place} < size({SAMPLE}.rates)"
    return (
        f"CASE WHEN {time} < {SAMPLE}.since THEN 0D WHEN {inside} "
        f"THEN {SAMPLE}.rates[cast({place} AS int)] ELSE {SAMPLE}.rest END"
    )


def whole_rows(output: Output, rows: DataFrame) -> DataFrame:
    """Add, for a function that gets samples too, the weight of rows that are all there."""
    if output.function is None or output.error is None:
        return rows
    return rows.selectExpr("*", f"1D AS {WEIGHT}")


def substream_of(windows: Windows) -> int:
    """Return how long the sub-streams of windows are, in milliseconds."""
    return substream_ms(windows.size_ms, windows.slide_ms)


def population_frame(
    windows: Windows,
    readers: Sequence[SourceReader],
    rows: Sequence[DataFrame],
    valid: Sequence[str],
    *,
    slice_sql: Callable[[str], str],
    slice_column: str,
    columns: int,
    keys: Sequence[str] = (),
) -> DataFrame:
    """Count every record by query, slice, sub-stream and delay, and by group if it has a rate.

    `slice_sql` writes the slice of an event from the SQL of its time in milliseconds.
    The result has the query, the slice, and as many state columns, the last of which are those of
    a stratum and the others null.
    """
    width = substream_of(windows)
    counted: DataFrame | None = None
    for frame, reader, usable in zip(rows, readers, valid, strict=True):
        time = f"unix_millis({quoted(reader.event_time)})"
        delay = f"CAST({ARRIVAL} - {time} AS DOUBLE)"
        one = frame.where(usable).selectExpr(
            QUERY,
            f"{slice_sql(time)} AS {slice_column}",
            f"{windows.substream_sql(time, QUERY, width)} AS {SUBSTREAM}",
            f"{bin_sql(delay)} AS {DELAY_BIN}",
            f"greatest({delay}, 0D) AS delay",
            f"if({taken_sql(reader, keys)}, 1L, 0L) AS taken",
            (f"if({_listed_sql(keys)} > 0, {group_sql(keys)}, 0L)" if keys else "0L")
            + f" AS {GROUP}",
        )
        counted = one if counted is None else counted.union(one)
    assert counted is not None
    grouped = (
        counted.where(f"{slice_column} IS NOT NULL")
        .groupBy(QUERY, slice_column, SUBSTREAM, DELAY_BIN, GROUP)
        .agg(
            F.count(F.lit(1)).alias(ARRIVED),
            F.sum("taken").alias(TAKEN),
            F.sum("delay").alias(DELAY_SUM),
        )
    )
    nothing = ["NULL"] * (columns - len(STRATUM_COLUMNS))
    return grouped.selectExpr(QUERY, slice_column, *nothing, *STRATUM_COLUMNS)
