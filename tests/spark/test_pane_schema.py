from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

import slackwater as sw
from slackwater.app.stream import App
from slackwater.runtime.placing import Limits
from slackwater.runtime.runtime import Runtime
from slackwater.spark.sinks.memory import MemorySink
from slackwater.testing import ManualClock, Script, scripted

START_MS = 1_704_067_200_000
SCHEMA = (
    "ts timestamp, k string, i int, l bigint, d double, f float, m decimal(10,2), day date, "
    "b boolean, raw binary, t tinyint, long interval day to second, local timestamp_ntz"
)


def records() -> Script:
    script = scripted(SCHEMA, event_time="ts")
    for second in range(8):
        script.add(ts=f"2024-01-01 00:00:{second:02d}", k="ab"[second % 2], i=second, l=second)
    return script.end()


def described(sinks: dict[str, MemorySink]) -> App:
    """Write one output of each kind, with all types that a column may have."""
    app = App("all")
    events = app.source("events")

    def to(result: Any, name: str, **wishes: Any) -> None:
        sinks[name] = sw.memory()
        result.to(sinks[name], name=name, **wishes)

    windows = sw.tumbling("2 s")
    keyed = events.window(windows, by=["k", "i", "m", "day", "b", "raw", "t", "local"])
    to(keyed.aggregate(n=sw.count()), "keys")
    functions = {"sum": sw.sum, "mean": sw.mean, "stddev": sw.stddev, "variance": sw.variance}
    numbers = {
        f"{name}_{column}": function(column)
        for name, function in functions.items()
        for column in ("i", "l", "d", "f", "m", "t")
    }
    to(events.window(windows, by="k").aggregate(**numbers), "numbers")
    extremes = {
        f"{name}_{column}": function(column)
        for name, function in {"min": sw.min, "max": sw.max}.items()
        for column in ("k", "i", "l", "d", "f", "m", "day", "b", "t", "ts", "local")
    }
    sketches = {"distinct": sw.approx_distinct("k"), "median": sw.approx_quantile("d", 0.5)}
    to(events.window(windows).aggregate(**extremes, **sketches), "extremes")
    counted = events.window(windows, by="k").aggregate(n=sw.count(), total=sw.sum("m"))
    derived = counted.derive(
        half=lambda rows: pc.cast(rows["n"], pa.int16()), same=lambda rows: rows["total"]
    )
    to(derived, "derived")
    to(counted.window(sw.tumbling("4 s"), by="k").aggregate(most=sw.max("total")), "stage")
    to(events.window(sw.sessions("1 s"), by="k").aggregate(n=sw.count(), s=sw.sum("m")), "sessions")
    to(events.window(sw.counted(2), by="k").aggregate(n=sw.count(), a=sw.mean("i")), "counted")
    applied = events.window(windows).apply(
        lambda rows: rows.selectExpr(
            "k", "array(i) AS list", "struct(l, m) AS pair", "map(k, d) AS map"
        )
    )
    to(applied, "function")
    other = events.window(windows, by="k").aggregate(least=sw.min("day"))
    to(counted.join(other, on="k", how="left"), "join")
    to(
        events.window(sw.tumbling("2 s", offset="0 s"), by="k").aggregate(
            n=sw.count(), s=sw.sum("l")
        ),
        "bounds",
        error=sw.within(0.05),
        lateness="1 s",
    )
    return app


@pytest.mark.spark
@pytest.mark.parametrize(
    "limits",
    [
        pytest.param(Limits(), id="driver"),
        pytest.param(Limits(window_rows=0), id="spark", marks=pytest.mark.slow),
    ],
)
def test_panes_have_the_columns_that_their_sink_was_told_of(
    limits: Limits, spark: SparkSession
) -> None:
    sinks: dict[str, MemorySink] = {}
    app = described(sinks)
    with Runtime(spark, clock=ManualClock(START_MS), limits=limits) as runtime:
        runtime.deploy(app, "q", events=records())
        runtime.run()
        assert {each.name: each.quarantined for each in runtime.queries() if each.quarantined} == {}
    assert [name for name, sink in sinks.items() if not sink.table().num_rows] == []
