"""Lighter tasks compute what heavy ones do, and are lighter."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from slackwater.spark.batches import PlannedBatches
from slackwater.spark.light_tasks import lighten

pytestmark = pytest.mark.spark

AGGREGATES = (
    "count(1) AS n",
    "sum(id) AS total",
    "avg(id) FILTER (WHERE id % 2 = 0) AS mean",
    "max_by(k, id) AS last",
    "min(id * 1.5D) AS least",
)


def grouped(spark: SparkSession) -> DataFrame:
    """Aggregate rows that went through a few operators, in one partition."""
    weights = spark.createDataFrame([(i, i * 10) for i in range(7)], "k bigint, weight bigint")
    rows = (
        spark.range(10_000)
        .coalesce(1)
        .selectExpr(
            "id",
            "id % 7 AS k",
            "concat('w', id % 101) AS word",
            "cast(id AS decimal(20, 3)) AS exact",
        )
    )
    joined = rows.join(weights.hint("broadcast"), "k").where("id % 13 <> 0")
    return joined.groupBy("word", "weight").agg(*map(expression, AGGREGATES))


def expression(sql: str) -> Column:
    text, name = sql.rsplit(" AS ", 1)
    return F.expr(text).alias(name)


def in_order(table: pa.Table) -> pa.Table:
    return table.sort_by([("word", "ascending"), ("weight", "ascending")])


# After so many rows Spark sorts, as if memory for its two hash maps had run out.
@pytest.mark.parametrize("fallback", [None, "1000, 4000"])
def test_results_are_the_same_whether_memory_suffices_or_not(
    spark: SparkSession, fallback: str | None
) -> None:
    expected = in_order(grouped(spark).toArrow())
    setting = "spark.sql.TungstenAggregate.testFallbackStartsAt"
    if fallback is not None:
        spark.conf.set(setting, fallback)
    try:
        planned = PlannedBatches(grouped(spark))
        for _ in range(2):
            assert in_order(planned.fetch()).equals(expected)
    finally:
        spark.conf.unset(setting)


def test_tasks_carry_less(spark: SparkSession) -> None:
    jvm = cast(Any, spark.sparkContext._jvm)
    planned = cast(Any, grouped(spark))._jdf.toArrowBatchRdd(100, "UTC", True, False)
    serialised = jvm.org.apache.spark.util.Utils.serialize
    before = len(serialised(planned))
    assert lighten(planned, jvm) == 1
    assert len(serialised(planned)) < 0.95 * before  # the more, the longer the pipeline


def test_what_has_no_compiled_stage_is_left_alone(spark: SparkSession) -> None:
    jvm = cast(Any, spark.sparkContext._jvm)
    assert lighten(cast(Any, spark.sparkContext.parallelize([1]))._jrdd.rdd(), jvm) == 0
    assert lighten(jvm.java.util.ArrayList(), jvm) == 0  # as if Spark's classes were others
