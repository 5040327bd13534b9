"""Close windows on Spark: functions over a window's rows, and windows too large for the driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from slackwater.app.aggregates import quoted
from slackwater.spark.frames import Template


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
        name = self.query.replace("\\", "\\\\").replace("'", "\\'")
        return [
            f"'{name}' AS query",
            f"timestamp_millis({self.start_ms}L) AS window_start",
            f"timestamp_millis({self.end_ms}L) AS window_end",
            f"CAST({self.pane} AS INT) AS pane",
            f"'{self.timing}' AS timing",
            f"CAST({self.accuracy} AS DOUBLE) AS accuracy",
        ]


def window_frame(
    spark: SparkSession, template: Template, held: Sequence[pa.Table], files: Sequence[Path]
) -> DataFrame:
    """Read a window's state, wherever it lies."""
    parts = []
    if held:
        table = pa.concat_tables(held).select(template.state_columns)
        if template.keeps_rows:
            parts.append(spark.createDataFrame(table, schema=template.pipeline.columns))
        else:
            parts.append(spark.createDataFrame(table))
    if files:
        stored = spark.read.parquet(*(str(path) for path in files))
        parts.append(stored.select(*map(quoted, template.state_columns)))
    return parts[0] if len(parts) == 1 else parts[0].union(parts[1])


def pane_frame(template: Template, state: DataFrame, pane: PaneValues) -> DataFrame:
    """Compute a window's result as one batch over its state."""
    if template.output.function is not None:
        result: DataFrame = template.output.function(state)
        return result.selectExpr(*pane.expressions(), "*")
    merges = [
        F.expr(merge)
        for name, aggregate in template.aggregates.items()
        for merge in aggregate.merge_sql(name)
    ]
    keys = [f"`{key}`" for key in template.output.by]
    merged = state.groupBy(*keys).agg(*merges)
    values = [
        f"{aggregate.finish_sql(name)} AS `{name}`"
        for name, aggregate in template.aggregates.items()
    ]
    return merged.selectExpr(*pane.expressions(), *keys, *values)
