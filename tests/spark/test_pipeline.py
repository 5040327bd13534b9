"""What needs a schema is checked on deployment, before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window

import slackwater as sw
from slackwater.errors import DescriptionError
from slackwater.spark.pipeline import CheckedPipeline
from slackwater.testing import scripted

pytestmark = pytest.mark.spark

SCHEMA = "ts timestamp, user string, amount double, tags array<string>"


def check(
    spark: SparkSession,
    transform: Callable[[DataFrame], DataFrame] = lambda df: df,
    *,
    by: str | tuple[str, ...] = (),
    **aggregates: Any,
) -> CheckedPipeline:
    stream = sw.App("shop").source("events").transform(transform)
    windowed = stream.window(sw.tumbling("1 s"), by=by)
    output = windowed.aggregate(**(aggregates or {"n": sw.count()})).to(sw.memory())
    return CheckedPipeline(spark, output, [scripted(SCHEMA, event_time="ts").open(spark)])


def test_a_pipeline_that_keeps_the_query_number_can_be_fused(spark: SparkSession) -> None:
    assert check(spark, lambda df: df.where("amount > 1")).fusable
    assert not check(spark, lambda df: df.select("ts", "user")).fusable


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"by": "colour"}, "by='colour' is not among the columns: amount, tags, ts, user"),
        ({"by": "tags"}, r"by='tags' is array<string>"),
        ({"total": sw.sum("price")}, r"aggregate\(total=...\).*'price' is not among the columns"),
        ({"total": sw.sum("user")}, r"sum\('user'\).*text.*CAST"),
        ({"top": sw.max("tags")}, r"max\('tags'\)"),
    ],
)
def test_a_description_that_does_not_fit_its_input_is_refused(
    spark: SparkSession, settings: Any, says: str
) -> None:
    with pytest.raises(DescriptionError, match=says):
        check(spark, **settings)


@pytest.mark.parametrize(
    ("transform", "says"),
    [
        (lambda df: df.where("colour = 'red'"), r"transform .* does not fit its input"),
        (lambda df: df.groupBy("user", "ts").count(), "an aggregation.*aggregate"),
        (lambda df: df.dropDuplicates(["user"]), "dropDuplicates"),
        (lambda df: df.distinct(), "distinct"),
        (lambda df: df.limit(3), "limit"),
        (lambda df: df.orderBy("ts"), "a sort"),
        (
            lambda df: df.withColumn(
                "r", F.row_number().over(Window.partitionBy("user").orderBy("ts"))
            ),
            "a window function",
        ),
        (lambda df: df.join(df.select("user"), "user"), "joins the stream with itself"),
        (lambda df: df.drop("ts"), "drop the event time 'ts'"),
        (lambda df: df.withColumn("ts", F.col("ts").cast("string")), "not a timestamp"),
        (lambda df: None, "returned NoneType"),
    ],
)
def test_a_transform_whose_result_depends_on_the_steps_is_refused(
    spark: SparkSession, transform: Any, says: str
) -> None:
    with pytest.raises(DescriptionError, match=says):
        check(spark, transform)


def test_a_static_table_may_be_joined_but_its_rows_not_preserved(spark: SparkSession) -> None:
    names = spark.createDataFrame([("ann", "Ann")], "user string, name string")
    assert check(spark, lambda df: df.join(F.broadcast(names), "user", "left")).fusable
    with pytest.raises(DescriptionError, match=r"RightOuter.*turn the join round"):
        check(spark, lambda df: df.join(names, "user", "right"))
    with pytest.raises(DescriptionError, match="FullOuter"):
        check(spark, lambda df: df.join(names, "user", "full"))


def test_inputs_of_a_union_must_agree(spark: SparkSession) -> None:
    app = sw.App("shop")
    union = app.source("a").union(app.source("b").transform(lambda df: df.drop("amount")))
    output = union.window(sw.tumbling("1 s")).aggregate(n=sw.count()).to(sw.memory())
    readers = [scripted(SCHEMA, event_time="ts").open(spark) for _ in range(2)]
    with pytest.raises(DescriptionError, match="only one side has amount"):
        CheckedPipeline(spark, output, readers)


def test_an_apply_is_checked_against_the_window_s_columns(spark: SparkSession) -> None:
    stream = sw.App("shop").source("events").window(sw.tumbling("1 s"))
    reader = scripted(SCHEMA, event_time="ts").open(spark)
    wrong = stream.apply(lambda df: df.select("colour")).to(sw.memory(), name="wrong")
    with pytest.raises(DescriptionError, match=r"apply.*does not fit"):
        CheckedPipeline(spark, wrong, [reader])
    taken = stream.apply(lambda df: df.selectExpr("1 AS pane")).to(sw.memory(), name="taken")
    with pytest.raises(DescriptionError, match=r"'pane'.*rename"):
        CheckedPipeline(spark, taken, [reader])
