"""Close windows on Spark: functions over a window's rows, and windows too large for the driver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from slackwater.app.bounds import WEIGHT
from slackwater.app.names import quoted, sql_text
from slackwater.app.nodes import joined
from slackwater.spark.frames import Template
from slackwater.spark.row_joins import WINDOW, aggregated_join, joined_rows
from slackwater.spark.sampled import whole_rows
from slackwater.spark.shapes import ResultShape, derived_fields
from slackwater.spark.staged_frames import checked_parquet


@dataclass(frozen=True)
class PaneValues:
    """Hold the columns that all rows of one pane share."""

    query: str
    start_ms: int
    end_ms: int
    pane: int
    timing: str
    accuracy: float

    def expressions(self) -> list[str]:
        """Write the columns as Spark SQL."""
        return [
            f"{sql_text(self.query)} AS query",
            f"timestamp_millis({self.start_ms}L) AS window_start",
            f"timestamp_millis({self.end_ms}L) AS window_end",
            f"CAST({self.pane} AS INT) AS pane",
            f"'{self.timing}' AS timing",
            f"CAST({self.accuracy} AS DOUBLE) AS accuracy",
        ]


def window_frame(
    spark: SparkSession,
    template: Template,
    held: Sequence[pa.Table],
    files: Sequence[str],
    frames: Sequence[DataFrame] = (),
) -> DataFrame:
    """Read a window's state, wherever it lies: in the driver, in files, in executors' memory."""
    parts = []
    if held:
        table = pa.concat_tables(held).select(template.state_columns)
        if template.keeps_rows:
            parts.append(spark.createDataFrame(table, schema=template.pipeline.columns))
        else:
            # Left to itself, Spark would take a timestamp without a zone for one of the session's.
            schema = from_arrow_schema(table.schema, prefer_timestamp_ntz=True)
            parts.append(spark.createDataFrame(table, schema=schema))
    if files:
        columns = template.pipeline.columns if template.keeps_rows else None
        stored = checked_parquet(spark, files, columns)
        parts.append(stored.select(*map(quoted, template.state_columns)))
    parts += [frame.select(*map(quoted, template.state_columns)) for frame in frames]
    return reduce(DataFrame.union, parts)


def joined_state(spark: SparkSession, template: Template, rows: pa.Table) -> DataFrame:
    """Give Spark the rows of many windows of a join, with the place of each row's window."""
    columns = StructType([*template.pipeline.columns.fields]).add(WINDOW, "integer")
    return spark.createDataFrame(rows.select([f.name for f in columns.fields]), schema=columns)


def pane_frame(template: Template, state: DataFrame, pane: PaneValues) -> DataFrame:
    """Compute a window's result as one batch over its state."""
    shape = template.pipeline.shapes[0]
    result = _result(template, state)
    if template.bounds == "exact":
        names = template.output.bounded
        kept = [name for name in result.columns if name not in names]
        result = result.selectExpr(*map(quoted, kept), *_exact_bounds(names, result.columns))
    return _with_derived(shape, result.selectExpr(*pane.expressions(), "*"))


def applied_rows(
    spark: SparkSession, template: Template, rows: pa.Table, weights: pa.Array
) -> DataFrame:
    """Run a template's function over rows of a window that stand for more than themselves."""
    assert template.output.function is not None
    columns = template.pipeline.columns
    table = rows.select([field.name for field in columns.fields]).append_column(WEIGHT, weights)
    schema = StructType([*columns.fields]).add(WEIGHT, "double")
    result: DataFrame = template.output.function(spark.createDataFrame(table, schema=schema))
    return result


def _exact_bounds(names: Iterable[str], there: Sequence[str]) -> list[str]:
    """Write the columns of estimated panes for exact values; null for what the result lacks."""
    columns = [
        f"CAST({quoted(name) if name in there else 'NULL'} AS DOUBLE) AS {quoted(name + bound)}"
        for name in names
        for bound in ("", "_low", "_high")
    ]
    unknown = ["CAST(NULL AS BIGINT) AS sampled", "CAST(NULL AS BIGINT) AS population"]
    return [*columns, "1D AS confidence", *unknown, "TRUE AS met"]


def _result(template: Template, state: DataFrame) -> DataFrame:
    """Compute keys and values."""
    output, shape = template.output, template.pipeline.shapes[0]
    if output.function is not None:
        rows = state if output.row_join is None else joined_rows(output.row_join, state)
        result: DataFrame = output.function(whole_rows(output, rows))
        return result
    if output.row_join is not None:
        rows = state.selectExpr("*", f"0 AS {WINDOW}")
        return aggregated_join(output.row_join, rows, shape.by, shape.aggregates).drop(WINDOW)
    merges = [
        F.expr(merge)
        for name, aggregate in shape.aggregates.items()
        for merge in aggregate.merge_sql(name)
    ]
    keys = [quoted(key) for key in shape.by]
    merged = state.groupBy(*keys).agg(*merges)
    values = {name: aggregate.finish_sql(name) for name, aggregate in shape.aggregates.items()}
    if shape.join is not None:
        present = [f"{values.pop(mark)} > 0" for mark in shape.join.marks]
        kept, shown = joined(shape.join.hows, present, _both, _either)
        merged = merged.where(kept)
        for leg, has_leg in zip(shape.join.legs, shown, strict=True):
            values |= {n: f"CASE WHEN {has_leg} THEN {values[n]} END" for n in leg.aggregates}
    return merged.selectExpr(*keys, *(f"{sql} AS {quoted(name)}" for name, sql in values.items()))


def _with_derived(shape: ResultShape, panes: DataFrame) -> DataFrame:
    if not shape.derived:
        return panes
    derive = shape.deriver()

    def derive_batches(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        for batch in batches:
            yield from derive(pyarrow.Table.from_batches([batch])).to_batches()

    schema = StructType([*panes.schema.fields, *derived_fields(shape.derived)])
    return panes.mapInArrow(derive_batches, schema)


def _both(one: str, other: str) -> str:
    return f"({one} AND {other})"


def _either(one: str, other: str) -> str:
    return f"({one} OR {other})"
