"""What a query must come to: the same description as one Spark batch over all events."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from slackwater.app.stream import Output, leaves
from slackwater.spark.pipeline import through
from slackwater.spark.sinks.pane_tables import last_panes
from slackwater.spark.sources.base import QUERY

_NOT_IN_A_BATCH = ("pane", "timing", "accuracy")


def batch_panes(
    output: Output,
    inputs: Mapping[str, DataFrame],
    *,
    event_time: str,
    query: str = "test",
    number: int = 0,
) -> DataFrame:
    """Compute an output over all events at once: query, window_start, window_end, then the result.

    `inputs` holds every event of each of the app's inputs, with the columns the source would give.
    `query` is the name it is deployed under; `number`, counted from 0 in the order of deployment,
    matters only to windows with the offset "spread".
    """
    frames = (
        inputs[leaf.name].withColumn(QUERY, F.lit(number).cast("int"))
        for leaf in leaves(output.stream)
    )
    rows = through(output.stream, frames, output.place)
    window = _exploded_windows(output, rows, event_time, number)
    start, end = "timestamp_micros(_sw_start)", f"_sw_start + {output.windows.size_ms * 1_000}L"
    columns = [f"'{query}' AS query", f"{start} AS window_start"]
    columns.append(f"timestamp_micros({end}) AS window_end")
    if output.function is not None:
        return _applied(output, window, columns)
    keys = [f"`{key}`" for key in output.by]
    values = []
    for name, aggregate in output.aggregates.items():
        if aggregate.column is not None:
            kind = rows.selectExpr(f"{aggregate.column} AS argument").schema[0].dataType
            aggregate = aggregate.over(kind.simpleString(), output.place)
        values.append(F.expr(aggregate.batch_sql).alias(name))
    grouped = window.groupBy("_sw_start", *keys).agg(*values)
    return grouped.selectExpr(*columns, *keys, *(f"`{name}`" for name in output.aggregates))


def assert_same_panes(panes: pa.Table, expected: DataFrame | pa.Table) -> None:
    """Compare the last pane of each window with a batch: same columns, types and rows.

    Rows may come in any order; floating-point numbers may differ by the order of addition.
    """
    wanted = expected if isinstance(expected, pa.Table) else expected.toArrow()
    kept = [name for name in panes.column_names if name not in _NOT_IN_A_BATCH]
    found = last_panes(panes).select(kept)
    if found.num_rows or wanted.num_rows:
        assert found.column_names == wanted.column_names
        for name in found.column_names:
            one, other = found.schema.field(name).type, wanted.schema.field(name).type
            assert one == other or pa.types.is_timestamp(one), f"{name} is {one}, not {other}"
    got, want = _sorted_rows(found), _sorted_rows(wanted)
    assert len(got) == len(want), f"{len(got)} rows, not {len(want)}: {got} {want}"
    for row, other_row in zip(got, want, strict=True):
        assert all(map(_close, row.values(), other_row.values())), f"{row} is not {other_row}"


def _exploded_windows(output: Output, rows: DataFrame, event_time: str, number: int) -> DataFrame:
    """Repeat each row for every window that holds it, in plain arithmetic on microseconds."""
    size_us, slide_us = output.windows.size_ms * 1_000, output.windows.slide_ms * 1_000
    offset_us = output.windows.grid(number).offset_ms * 1_000
    most = math.ceil(size_us / slide_us)
    time = f"unix_micros(`{event_time}`)"
    last = f"{time} - pmod({time} - {offset_us}L, {slide_us}L)"
    starts = f"transform(sequence(0, {most - 1}), i -> {last} - i * {slide_us}L)"
    held = f"filter({starts}, start -> start + {size_us}L > {time})"
    return rows.selectExpr("*", f"explode({held}) AS _sw_start")


def _applied(output: Output, window: DataFrame, columns: list[str]) -> DataFrame:
    """Run the function over the rows of each window by itself."""
    assert output.function is not None
    inner = [name for name in window.columns if name not in (QUERY, "_sw_start")]
    found = [row[0] for row in window.select("_sw_start").distinct().orderBy("_sw_start").collect()]
    results = []
    for start in found or [0]:
        rows = window.where(f"_sw_start = {start}L").select(*(f"`{name}`" for name in inner))
        labels = [column.replace("_sw_start", f"{start}L") for column in columns]
        result: DataFrame = output.function(rows)
        results.append(result.selectExpr(*labels, "*"))
    return reduce(DataFrame.union, results)


def _sorted_rows(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_pylist()
    return sorted(rows, key=lambda row: [_rank(value) for value in _exact_first(row)])


def _exact_first(row: dict[str, Any]) -> list[Any]:
    values = list(row.values())
    return sorted(values, key=lambda value: isinstance(value, float | list))


def _rank(value: Any) -> tuple[str, str]:
    if isinstance(value, float):
        return "1", f"{value + 0.0:.6g}"
    return ("0", "") if value is None else ("2", str(value))


def _close(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        both_nan = math.isnan(one) and math.isnan(other)
        return both_nan or math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_close, one, other))
    return bool(one == other)
