"""Values at the edges: text that Spark compares its own way, sums that overflow, odd times."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import slackwater as sw
from slackwater.app.results import Result
from slackwater.app.stream import App, Stream
from slackwater.errors import DescriptionError
from slackwater.runtime.placing import Limits
from slackwater.runtime.runtime import Runtime
from slackwater.spark.frames import Template
from slackwater.spark.pipeline import CheckedPipeline
from slackwater.spark.steps import analyse_step
from slackwater.testing import ManualClock, run_app, scripted
from slackwater.testing.batches import batch_panes
from slackwater.testing.oracle import assert_same_panes

pytestmark = pytest.mark.spark

START_MS = 1_704_067_200_000


def second(number: int) -> str:
    return f"2024-01-01 00:00:{number:02d}"


@pytest.mark.parametrize(
    "describe",
    [
        lambda s: s.window(sw.tumbling("4 s"), by="name").aggregate(n=sw.count()),
        lambda s: s.window(sw.sessions("4 s"), by="name").aggregate(n=sw.count()),
        lambda s: s.window(sw.counted(2), by="name").aggregate(n=sw.count()),
        lambda s: s.window(sw.tumbling("4 s"), by="id").aggregate(m=sw.max("name")),
        lambda s: s.window(sw.tumbling("4 s"), by="id").aggregate(m=sw.approx_distinct("name")),
    ],
    ids=["tumbling", "sessions", "counted", "max", "distinct"],
)
def test_text_that_only_spark_can_compare_is_refused(
    spark: SparkSession, describe: Callable[[Stream], Result]
) -> None:
    app = App("collated")
    describe(app.source("events")).to(sw.memory())
    schema = "ts timestamp, id int, name string collate UTF8_LCASE"
    with (
        Runtime(spark, clock=ManualClock(START_MS)) as runtime,
        pytest.raises(DescriptionError, match=r"string collate UTF8_LCASE.*COLLATE UTF8_BINARY\)"),
    ):
        runtime.deploy(app, "q", events=scripted(schema, event_time="ts"))


def test_a_function_sees_collated_text_variants_and_intervals_as_they_came(
    spark: SparkSession,
) -> None:
    def widened(df: DataFrame) -> DataFrame:
        return df.selectExpr(
            "*", "parse_json('{\"a\": 1}') AS v", "make_dt_interval(id) AS d", "map(id, name) AS m"
        )

    def grouped(df: DataFrame) -> DataFrame:
        age, inner = "sum(extract(DAY FROM d)) AS days", "sum(variant_get(v, '$.a', 'int')) AS a"
        return df.groupBy(F.expr("upper(name) AS who")).agg(
            F.expr("count(1) AS n"), F.expr(age), F.expr(inner), F.expr("count(DISTINCT name) AS m")
        )

    schema = "ts timestamp, id int, name string collate UTF8_LCASE"
    rows = [(second(at), at, name) for at, name in enumerate(["ann", "ANN", "Bob", "bob", "ann"])]
    frame = spark.createDataFrame(rows, "ts string, id int, name string").selectExpr(
        "CAST(ts AS TIMESTAMP) AS ts", "id", "CAST(name AS STRING COLLATE UTF8_LCASE) AS name"
    )
    for limits in (Limits(), Limits(journal_bytes=0, function_bytes=0)):
        app, sink = App("collated"), sw.memory()
        stream = app.source("events").transform(widened)
        output = stream.window(sw.tumbling("10 s")).apply(grouped).to(sink)
        script = scripted(schema, event_time="ts")
        for ts, number, name in rows:
            script.add(ts=ts, id=number, name=name)
        reports = run_app(spark, app, events=script, runtime={"limits": limits})
        assert reports[0].quarantined is None
        assert sorted(row["m"] for row in sink.rows()) == [1, 1]
        assert_same_panes(sink.table(), batch_panes(output, {"events": frame}, event_time="ts"))


@pytest.mark.parametrize("windows", [sw.tumbling("9 s"), sw.sessions("9 s"), sw.counted(3)])
def test_both_zeros_and_every_nan_are_one_key_across_steps(
    spark: SparkSession, windows: sw.Windows
) -> None:
    def keyed(df: DataFrame) -> DataFrame:
        odd = "CASE id % 4 WHEN 0 THEN 0D WHEN 1 THEN -0D WHEN 2 THEN double('NaN') END"
        return df.selectExpr("*", f"coalesce({odd}, -double('NaN')) AS k", "float(id % 2) AS f")

    app, sink = App("floats"), sw.memory()
    windowed = app.source("events").transform(keyed).window(windows, by="k")
    output = windowed.aggregate(n=sw.count(), most=sw.max("f"), ids=sw.sum("id")).to(sink)
    script = scripted("ts timestamp, id int", event_time="ts")
    for at in range(8):
        script.add(ts=second(at), id=at)
    [report] = run_app(spark, app, events=script)
    assert report.quarantined is None
    frame = spark.range(8).selectExpr("timestamp_seconds(1704067200 + id) AS ts", "int(id) AS id")
    assert_same_panes(sink.table(), batch_panes(output, {"events": frame}, event_time="ts"))


@pytest.mark.parametrize("windows", [sw.tumbling("8 s"), sw.sessions("8 s"), sw.counted(4)])
def test_a_sum_that_overflowed_in_one_step_stays_null_without_ansi_mode(
    spark: SparkSession, windows: sw.Windows
) -> None:
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        app, sink = App("large"), sw.memory()
        windowed = app.source("events").window(windows, by="k")
        windowed.aggregate(total=sw.sum("v"), mean=sw.mean("v"), whole=sw.sum("i")).to(sink)
        script = scripted("ts timestamp, k int, v decimal(38,0), i bigint", event_time="ts")
        large = Decimal(10**38 - 1)
        for at, (key, value, whole) in enumerate(
            [(1, large, 2**63 - 1), (1, large, 1), (1, 1, 0), (1, 1, 0)] + [(2, 1, 1)] * 4
        ):
            arrives = second(0 if at < 2 else at)  # the first two overflow in one step
            script.add(ts=second(at), arrives=arrives, k=key, v=value, i=whole)
        [report] = run_app(spark, app, events=script)
        assert report.quarantined is None
        found = {row["k"]: (row["total"], row["mean"], row["whole"]) for row in sink.rows()}
        assert found == {1: (None, None, -(2**63)), 2: (4, 1, 4)}
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


MOVED = {  # where a transform moves the event of each second
    0: "ts",
    1: "timestamp'9999-12-31 23:59:59.999'",
    2: "timestamp_micros(9223372036854775807)",
    3: "timestamp_micros(-9223372036854775807)",
    4: "timestamp'0001-01-01 00:00:00'",
    5: "CAST(NULL AS TIMESTAMP)",
    6: "ts",
    7: "timestamp'9999-12-31 23:00:00'",  # its windows end in time
    8: "timestamp'0001-01-02 00:00:00'",
}


@pytest.mark.parametrize(
    "describe",
    [
        lambda s: s.window(sw.tumbling("4 s")).aggregate(n=sw.count()),
        lambda s: s.window(sw.sliding("4 s", "2 s")).aggregate(n=sw.count()),
        lambda s: s.window(sw.sliding("2 s", "4 s")).aggregate(n=sw.count()),
        lambda s: s.window(sw.sessions("4 s")).aggregate(n=sw.count()),
        lambda s: s.window(sw.counted(3, pause="4 s")).aggregate(n=sw.count()),
        lambda s: s.window(sw.tumbling("4 s")).apply(lambda df: df.selectExpr("count(1) AS n")),
        lambda s: (
            s.window(sw.tumbling("4 s"))
            .aggregate(n=sw.count())
            .window(sw.tumbling("8 s"))
            .aggregate(n=sw.sum("n"))
        ),
    ],
    ids=["tumbling", "sliding", "gaps", "sessions", "counted", "apply", "chained"],
)
def test_rows_moved_to_times_that_no_window_reaches_are_counted_and_filed(
    spark: SparkSession, describe: Callable[[Stream], Result]
) -> None:
    def move(df: DataFrame) -> DataFrame:
        cases = " ".join(f"WHEN {at} THEN {time}" for at, time in MOVED.items())
        return df.withColumn("ts", F.expr(f"CASE at {cases} END"))

    app, sink = App("moved"), sw.memory()
    describe(app.source("events").transform(move)).to(sink)
    script = scripted("ts timestamp, at int", event_time="ts")
    for at in MOVED:
        script.add(ts=second(at), arrives=second(0), at=at)
    script.end()
    with Runtime(spark, clock=ManualClock(START_MS)) as runtime:
        runtime.deploy(app, "q", events=script)
        runtime.run()
        [report] = runtime.queries()
        letters = runtime.dead_letters.read().to_pylist()
    assert (report.quarantined, report.records, report.rejected) == (None, len(MOVED), 5)
    reasons = dict.fromkeys((1, 2), "ahead of time") | dict.fromkeys((3, 4), "before time")
    assert {_at(letter): letter["reason"] for letter in letters} == reasons | {5: "no event time"}
    times = {row["window_end"].year for row in sink.rows()}
    assert times == {1, 2024, 9999}


def _at(letter: dict[str, Any]) -> int:
    return int(letter["record"].partition('"at":')[2].partition("}")[0])


def test_an_input_whose_name_is_misspelt_is_named_with_the_one_that_was_meant(
    spark: SparkSession,
) -> None:
    app = App("shop")
    app.source("events").window(sw.tumbling("4 s")).aggregate(n=sw.count()).to(sw.memory())
    source: Any = scripted("ts timestamp", event_time="ts")
    with Runtime(spark, clock=ManualClock(START_MS)) as runtime:
        with pytest.raises(DescriptionError, match=r"evnets=... is not.*did you mean events=...\?"):
            runtime.deploy(app, "q", evnets=source)
        with pytest.raises(DescriptionError, match=r"clicks=... is not an input.*has 'events'$"):
            runtime.deploy(app, "q", clicks=source, events=source)
        with pytest.raises(DescriptionError, match=r"give its input, events=..."):
            runtime.deploy(app, "q")


def test_what_spark_finds_wrong_with_a_step_is_told_on_deployment(spark: SparkSession) -> None:
    app = App("shop")
    windowed = app.source("events").window(sw.tumbling("4 s"))
    output = windowed.aggregate(n=sw.count()).to(sw.memory())
    source = scripted("ts timestamp", event_time="ts", watermark=sw.punctuated("mark"))
    readers = (source.open(spark),)
    template = Template(0, output, CheckedPipeline(spark, output, readers), readers)
    with pytest.raises(DescriptionError, match=r"'output': Spark cannot run its steps.*mark"):
        analyse_step(spark, template)
