"""Everything that a generator will ever send, as one frame."""

from __future__ import annotations

import json

from pyspark.sql import DataFrame, SparkSession

from slackwater.spark.latebound import fixed_specification
from slackwater.spark.sources.base import Range
from slackwater.spark.sources.generator import Generator


def everything_of(spark: SparkSession, generator: Generator, count: int) -> DataFrame:
    reader = generator.open(spark)
    entry = reader.entry(0, Range(0, 0, count, count))
    entries = fixed_specification(spark, [[json.dumps([entry])]]).selectExpr(
        f"explode(from_json(s0, 'array<{reader.entry_type}>')) AS r"
    )
    return reader.expand(entries)
