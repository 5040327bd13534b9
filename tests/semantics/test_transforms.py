"""Transforms of whole frames: each tenant gets its own rows, as a batch over them would give."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import slackwater as sw
from slackwater.runtime.runtime import Runtime
from slackwater.testing import ManualClock, scripted
from slackwater.testing.batches import batch_panes

pytestmark = pytest.mark.spark

Transform = Callable[[DataFrame], DataFrame]

SCHEMA = "ts timestamp, k string, v bigint"
TENANTS = 2


def without_ones(batches: Iterator[Any]) -> Iterator[Any]:
    for frame in batches:
        yield frame.replace(1, 0)


TRANSFORMS: dict[str, Transform] = {
    "replace": lambda df: df.replace(1, 0),
    "hash": lambda df: df.withColumn("v", F.hash(*df.columns).cast("bigint")),
    "pandas": lambda df: df.mapInPandas(without_ones, df.schema),
    "kept": lambda df: df.selectExpr("_sw_query", "ts", "k", "v + 1 AS v"),
}


def events(tenant: int) -> list[tuple[dt.datetime, str, int | None]]:
    """Make a tenant's records, with small numbers that whole-frame operations take for others."""
    start = dt.datetime(2024, 1, 1)
    return [
        (start + dt.timedelta(seconds=n), f"k{n % 2}", None if n % 4 == 3 else (n + tenant) % 3)
        for n in range(8)
    ]


@pytest.mark.parametrize("windows", ["tumbling", "counted"])
def test_rows_stay_with_their_tenant_whatever_a_transform_does_to_all_columns(
    spark: SparkSession, windows: str
) -> None:
    some = TRANSFORMS if windows == "tumbling" else {"replace": TRANSFORMS["replace"]}
    kind = sw.tumbling("3 s") if windows == "tumbling" else sw.counted(2)
    sinks, outputs = {}, {}
    clock = ManualClock("2024-01-01")
    with Runtime(spark, slots=1, clock=clock) as runtime:
        for name, transform in some.items():
            app, sinks[name] = sw.App(name), sw.memory()
            stream = app.source("events").transform(transform).window(kind, by="k")
            result = stream.aggregate(n=sw.count(), total=sw.sum("v"))
            outputs[name] = result.to(sinks[name])
            for tenant in range(TENANTS):
                script = scripted(SCHEMA, event_time="ts")
                for ts, k, v in events(tenant):
                    script.add(ts=str(ts), k=k, v=v)
                runtime.deploy(app, f"{name}-{tenant}", events=script.end())
        runtime.run()
    columns = ("query", "window_start", "k", "n", "total")
    for name, output in outputs.items():
        found = sorted(tuple(row[c] for c in columns) for row in sinks[name].rows())
        expected = []
        for tenant in range(TENANTS):
            frame = spark.createDataFrame(events(tenant), SCHEMA)
            panes = batch_panes(
                output, {"events": frame}, event_time="ts", query=f"{name}-{tenant}"
            )
            expected += [tuple(row[c] for c in columns) for row in panes.toArrow().to_pylist()]
        assert found == sorted(expected), name


def test_dead_letters_are_filed_behind_a_transform_that_names_all_columns(
    spark: SparkSession,
) -> None:
    app, sink = sw.App("named"), sw.memory()
    stream = app.source("events").transform(lambda df: df.toDF("ts", "k", "v"))
    stream.window(sw.tumbling("1 s")).aggregate(n=sw.count()).to(sink)
    script = scripted(SCHEMA, event_time="ts", watermark=sw.bounded("0 s"))
    for second in (0, 5):
        script.add(ts=f"2024-01-01 00:00:0{second}", k="a", v=1)
    script.add(ts="2024-01-01 00:00:00", k="late", v=1, arrives="2024-01-01 00:00:08").end()
    with Runtime(spark, slots=1, clock=ManualClock("2024-01-01")) as runtime:
        runtime.deploy(app, "q", events=script)
        runtime.run()
        assert runtime.dead_letters.counts() == {("q", "too late"): 1}


def test_a_function_of_windows_may_cache_what_it_is_given(spark: SparkSession) -> None:
    """Windows are computed anew each time, so nothing of one is kept for the next."""

    def kept(df: DataFrame) -> DataFrame:
        return spark.createDataFrame(df.rdd.cache(), df.schema).selectExpr("sum(v) AS total")

    app, sink = sw.App("kept"), sw.memory()
    app.source("events").window(sw.tumbling("1 s")).apply(kept).to(sink)
    script = scripted(SCHEMA, event_time="ts")
    for second in range(3):
        script.add(ts=f"2024-01-01 00:00:0{second}", k="a", v=10**second)
    with Runtime(spark, slots=1, clock=ManualClock("2024-01-01")) as runtime:
        runtime.deploy(app, "q", events=script.end())
        runtime.run()
    assert sorted(row["total"] for row in sink.rows()) == [1, 10, 100]
