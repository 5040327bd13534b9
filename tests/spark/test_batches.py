"""Planned frames run again return what `toArrow` returns, under the session's settings."""

from __future__ import annotations

import json
from itertools import product

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from slackwater.spark.batches import PlannedBatches
from slackwater.spark.latebound import SpecificationCells

pytestmark = pytest.mark.spark

VALUES = (
    "id",
    "cast(id AS string) AS text",
    "cast(id AS decimal(20, 3)) AS exact",
    "id / 3 AS share",
    "id % 2 = 0 AS even",
    "timestamp_millis(id * 1000) AS at",
    "to_date('2024-02-29') AS day",
    "cast('bytes' AS binary) AS raw",
    "if(id % 3 = 0, NULL, id) AS missing",
    "array(id, NULL, id + 1) AS list",
    "map('a', id) AS lookup",
    "named_struct('x', id, 'y', array(named_struct('z', 'ü'))) AS nested",
)


@pytest.mark.parametrize("rows", [0, 25_000])
def test_values_of_all_types_arrive(spark: SparkSession, rows: int) -> None:
    frame = spark.range(rows).coalesce(1).selectExpr(*VALUES)
    found, expected = PlannedBatches(frame).fetch(), frame.toArrow()
    assert found.schema.equals(expected.schema)
    assert found.equals(expected)


def test_tasks_see_the_settings_of_the_session(spark: SparkSession) -> None:
    setting = "spark.sql.jsonGenerator.ignoreNullFields"  # read by the task that writes JSON
    found = {}
    for ignored in ("true", "false"):
        spark.conf.set(setting, ignored)
        try:
            rows = spark.range(1).coalesce(1)
            frame = rows.selectExpr("to_json(named_struct('a', nullif(id, 0))) AS text")
            found[ignored] = PlannedBatches(frame).fetch()["text"].to_pylist()
        finally:
            spark.conf.unset(setting)
    assert found == {"true": ["{}"], "false": ['{"a":null}']}


def test_a_frame_of_several_partitions_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="2 partitions"):
        PlannedBatches(spark.range(10, numPartitions=2))


def test_a_failure_is_raised_and_the_next_run_succeeds(spark: SparkSession) -> None:
    cells = SpecificationCells(spark, ["array<string>"])
    words = cells.frame.selectExpr("explode(s0) AS s")
    planned = PlannedBatches(words.select(F.expr("if(s = 'bad', raise_error(s), s) AS s")))
    cells.bind(['["bad"]'])
    with pytest.raises(Exception, match="bad"):
        planned.fetch()
    cells.bind(['["good"]'])
    assert planned.fetch()["s"].to_pylist() == ["good"]


@pytest.mark.parametrize("steady", [True, False])
def test_texts_of_any_length_are_bound(spark: SparkSession, steady: bool) -> None:
    cells = SpecificationCells(spark, ["array<string>", "array<struct<a:string,b:array<int>>>"])
    assert cells._parser.steady, "this Spark makes rows anew, which costs two more calls a step"
    cells._parser.steady = steady
    planned = PlannedBatches(cells.frame)
    for letter, length in product("aü水😀", (10, 100_000, 1_200_000, 3)):
        words, entries = [letter * length, ""], [{"a": letter, "b": [1, 2]}, {"a": None, "b": []}]
        cells.bind([json.dumps(words, ensure_ascii=False), json.dumps(entries)])
        assert planned.fetch().to_pylist() == [{"s0": words, "s1": entries}]
