"""Session and count windows as one Spark batch: Spark's own sessions, and its row numbers."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from slackwater.app.aggregates import Aggregate
from slackwater.app.names import argument_sql, quoted, sql_text
from slackwater.app.outputs import Output
from slackwater.app.windows import CountWindows, KeyedWindows
from slackwater.spark.flows import Flow
from slackwater.spark.keyed_rows import PLACES, tie_sql


def keyed_batch(output: Output, windows: KeyedWindows, rows: Flow, query: str) -> DataFrame:
    """Compute an output over windows that each key has for itself.

    Events of the same time are numbered in the order of `_sw_partition` and `_sw_offset`, where the
    inputs have these columns, and then of what they hold.
    """
    keys, names = list(map(quoted, output.by)), list(map(quoted, output.aggregates))
    values = batch_values(rows.frame, output.aggregates)
    if isinstance(windows, CountWindows):
        numbered = _numbered(output, windows, rows)
        result = numbered.groupBy("_run", "_window", *keys).agg(
            F.min("_time").alias("window_start"), F.max("_time").alias("window_end"), *values
        )
    else:
        session = F.session_window(F.col(quoted(rows.event_time)), f"{windows.gap_ms} milliseconds")
        result = rows.frame.groupBy(session, *keys).agg(*values)
        result = result.selectExpr(
            "session_window.start AS window_start",
            "session_window.end AS window_end",
            *keys,
            *names,
        )
    labels = [f"{sql_text(query)} AS query", "window_start", "window_end"]
    return result.selectExpr(*labels, *keys, *names)


def batch_values(rows: DataFrame, aggregates: Mapping[str, Aggregate]) -> list[Column]:
    """Write aggregates as a batch computes them, bound to the types of their columns."""
    bound = _bound(rows, aggregates)
    return [F.expr(aggregate.batch_sql).alias(name) for name, aggregate in bound.items()]


def _bound(rows: DataFrame, aggregates: Mapping[str, Aggregate]) -> dict[str, Aggregate]:
    bound = {}
    for name, aggregate in aggregates.items():
        if aggregate.column is not None:
            argument = argument_sql(aggregate.column, rows.columns)
            kind = rows.selectExpr(f"{argument} AS argument").schema[0].dataType.simpleString()
            named = aggregate.column in rows.columns
            aggregate = aggregate.over(kind, f"aggregate({name}=...)", named=named)
        bound[name] = aggregate
    return bound


def _numbered(output: Output, windows: CountWindows, rows: Flow) -> DataFrame:
    """Give the events of each key numbers, anew after a pause, and repeat each by its windows."""
    keys = [F.col(quoted(key)) for key in output.by] or [F.lit(0)]
    frame = rows.frame.withColumn("_time", F.col(quoted(rows.event_time)))
    frame = frame.withColumn(
        "_tie", F.expr(tie_sql(output.by, _bound(rows.frame, output.aggregates)))
    )
    order = ["_time", *rows.kept(PLACES), "_tie"]
    before = F.lag("_time").over(Window.partitionBy(*keys).orderBy(*order))
    pause = F.expr("unix_micros(_time) - unix_micros(_before)") > windows.gap_ms * 1_000
    so_far = Window.partitionBy(*keys).orderBy(*order).rowsBetween(Window.unboundedPreceding, 0)
    frame = frame.withColumn("_before", before)
    frame = frame.withColumn("_run", F.sum(F.when(pause, 1).otherwise(0)).over(so_far))
    number = F.row_number().over(Window.partitionBy(*keys, "_run").orderBy(*order)) - 1
    first = f"greatest(0, (_number - {windows.events} + {windows.every}) div {windows.every})"
    held = f"explode(sequence({first}, _number div {windows.every}))"
    return frame.withColumn("_number", number).withColumn("_window", F.expr(held))
