"""Joins and chains are checked against schemas on deployment, and run in prepared, fused steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import slackwater as sw
from slackwater.app.results import Result
from slackwater.app.stream import App, Stream
from slackwater.errors import DescriptionError, QuarantinedError
from slackwater.runtime.reports import StepReport
from slackwater.runtime.runtime import Runtime
from slackwater.spark.pipeline import CheckedPipeline
from slackwater.testing import ManualClock, Script, scripted

pytestmark = pytest.mark.spark

SECOND = sw.tumbling("1 s")
LEFT = "ts timestamp, k string, v double"
RIGHT = "at timestamp, k string, n int, v double"
Make = Callable[[Stream, Stream], Result]


def counted(stream: Stream, name: str, by: str = "k") -> Result:
    return stream.window(SECOND, by=by).aggregate(**{name: sw.count()})


def check(spark: SparkSession, make: Make) -> CheckedPipeline:
    app = App("shop")
    output = make(app.source("left"), app.source("right")).to(sw.memory())
    readers = [
        scripted(schema, event_time=time).open(spark)
        for schema, time in ((LEFT, "ts"), (RIGHT, "at"))
    ]
    return CheckedPipeline(spark, output, readers)


def joined(left: Stream, right: Stream) -> Result:
    return counted(left, "a").join(counted(right, "b"), on="k")


def test_a_join_may_be_fused_if_all_its_sides_keep_the_query_number(spark: SparkSession) -> None:
    assert check(spark, joined).fusable
    assert not check(
        spark, lambda a, b: joined(a, b.transform(lambda df: df.drop("_sw_query")))
    ).fusable


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda a, b: joined(a, b.transform(lambda df: df.drop("k"))),
            r"join\(on='k'\): a side has no such column",
        ),
        (
            lambda a, b: joined(a, b.transform(lambda df: df.withColumn("k", F.lit(1)))),
            r"join\(on='k'\).*string and as int; cast",
        ),
        (
            lambda a, b: joined(a, b.transform(lambda df: df.drop("at"))),
            "drop the event time 'at'",
        ),
        (
            lambda a, b: counted(a, "a").join(
                b.window(SECOND, by="k").aggregate(s=sw.sum("price")), on="k"
            ),
            "aggregate of a join's side does not fit.*price",
        ),
        (
            lambda a, b: counted(a, "a").join(
                b.window(SECOND, by="k").aggregate(s=sw.sum("k || 'x'")), on="k"
            ),
            r"aggregate\(s=\.\.\.\).*text",
        ),
        (
            lambda a, b: a.window(SECOND).join(b.window(SECOND), on="k").aggregate(n=sw.count()),
            "'v' is a column of two sides.*rename",
        ),
        (
            lambda a, b: joined(a, b).derive(x=lambda rows: pa.array([])),
            r"derive\(x=\.\.\.\).*without a type",
        ),
        (
            lambda a, b: joined(a, b).derive(x=lambda rows: rows["colour"]),
            r"derive\(x=<lambda> .*\) fails over a table without rows.*colour",
        ),
        (
            lambda a, b: joined(a, b).window(SECOND, by="colour").aggregate(n=sw.count()),
            "stage 2: by='colour' is not among the columns.*: k, a, b",
        ),
        (
            lambda a, b: joined(a, b).window(SECOND).aggregate(n=sw.sum("a + b")),
            r"aggregate\(n=\.\.\.\): 'a \+ b' is not a column.*derive",
        ),
        (
            lambda a, b: joined(a, b).window(SECOND).aggregate(n=sw.sum("k")),
            r"stage 2, aggregate\(n=\.\.\.\).*text",
        ),
    ],
)
def test_what_does_not_fit_its_inputs_is_refused(
    spark: SparkSession, make: Make, says: str
) -> None:
    with pytest.raises(DescriptionError, match=says):
        check(spark, make)


class Steps:
    """Note every step."""

    def __init__(self) -> None:
        self.reports: list[StepReport] = []

    def step_committed(self, report: StepReport) -> None:
        self.reports.append(report)


def script_of(schema: str, **columns: Any) -> Script:
    event_time = schema.split()[0]
    script = scripted(schema, event_time=event_time, watermark=sw.bounded("0 s"))
    for second in range(5):
        script.add(**{event_time: f"2024-01-01 00:00:0{second}", "k": "a", **columns})
    return script.end()


def test_queries_with_a_join_and_a_chain_share_prepared_steps(spark: SparkSession) -> None:
    app, sink, steps = App("shop"), sw.memory(), Steps()
    result = joined(app.source("left"), app.source("right"))
    result.derive(both=lambda rows: pc.add(rows["a"], rows["b"])).window(
        sw.tumbling("2 s")
    ).aggregate(total=sw.sum("both")).to(sink)
    with Runtime(spark, slots=1, clock=ManualClock("2024-01-01T00:00:00")) as runtime:
        runtime.observe(steps)
        for name in ("one", "two"):
            runtime.deploy(
                app, name, left=script_of(LEFT, v=1.0), right=script_of(RIGHT, n=1, v=2.0)
            )
        runtime.run()
        assert [report.rebuilt_because for report in runtime.queries()] == [(), ()]
    assert any(set(report.queries) == {"one", "two"} for report in steps.reports)
    assert all(report.prepared for report in steps.reports if report.events)
    found = sorted((row["query"], row["window_start"].second, row["total"]) for row in sink.rows())
    assert found == [(q, s, t) for q in ("one", "two") for s, t in ((0, 4), (2, 4), (4, 2))]


def test_a_derived_column_of_the_wrong_length_stops_its_query_with_the_reason(
    spark: SparkSession,
) -> None:
    app = App("shop")
    result = joined(app.source("left"), app.source("right"))
    result.derive(x=lambda rows: pa.array([], pa.int64())).to(sw.memory())
    with Runtime(spark, slots=1, clock=ManualClock("2024-01-01T00:00:00")) as runtime:
        runtime.deploy(app, "q", left=script_of(LEFT, v=1.0), right=script_of(RIGHT, n=1, v=2.0))
        with pytest.raises(QuarantinedError, match=r"derive\(x=\.\.\.\) must return"):
            runtime.run()
        assert "derive(x=...) must return" in str(runtime.queries()[0].quarantined)
