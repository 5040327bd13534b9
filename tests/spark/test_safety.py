"""Which plans may be run again with other input, and that the others still give right results."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

import slackwater as sw
from slackwater.app.stream import App
from slackwater.runtime.runtime import Runtime
from slackwater.spark.batches import PlannedBatches
from slackwater.spark.frames import Template
from slackwater.spark.latebound import SpecificationCells
from slackwater.spark.logical import elements
from slackwater.spark.pipeline import CheckedPipeline
from slackwater.spark.prepared import PreparedPlan, PreparedPlans
from slackwater.spark.safety import unsafe_reasons
from slackwater.spark.steps import StepRunner
from slackwater.testing import ManualClock, scripted

pytestmark = pytest.mark.spark

Transform = Callable[[DataFrame], DataFrame]


def specified(spark: SparkSession) -> tuple[SpecificationCells, DataFrame]:
    """Make late-bound input of numbers and letters: rows like {"n": 1, "k": "a"}."""
    cells = SpecificationCells(spark, ["array<struct<n:bigint,k:string>>"])
    return cells, cells.frame.selectExpr("inline(s0)")


def verdict(spark: SparkSession, transform: Transform) -> str:
    cells, rows = specified(spark)
    return "; ".join(unsafe_reasons(transform(rows).coalesce(1), cells.rdd_id))


def collected_table(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([("a", 1), ("b", 2)], "k string, weight int")


def computed_table(spark: SparkSession) -> DataFrame:
    return spark.range(3).selectExpr("chr(97 + id) AS k", "id AS weight")


def stored_table(spark: SparkSession) -> DataFrame:
    return spark.sql("SELECT * FROM VALUES ('a', 1), ('b', 2) AS t(k, weight)")


SAFE: dict[str, Callable[[SparkSession], Transform]] = {
    "projection": lambda s: lambda df: df.selectExpr("n + 1 AS n"),
    "filter": lambda s: lambda df: df.where("n > 1"),
    "explosion": lambda s: lambda df: df.selectExpr("explode(sequence(0L, n)) AS n"),
    "aggregation in one partition": lambda s: lambda df: df.groupBy("k").count(),
    "union with itself": lambda s: lambda df: df.union(df.where("n = 2")),
    "broadcast of a collected table": lambda s: (
        lambda df: df.join(F.broadcast(collected_table(s)), "k")
    ),
    "broadcast of a computed table": lambda s: (
        lambda df: df.join(F.broadcast(computed_table(s)), "k")
    ),
    "broadcast of a literal table": lambda s: (
        lambda df: df.join(F.broadcast(stored_table(s)), "k", "left")
    ),
    "broadcast without a key": lambda s: (
        lambda df: df.crossJoin(F.broadcast(collected_table(s)).withColumnRenamed("k", "j"))
    ),
    "python function": lambda s: (
        lambda df: df.withColumn("n", F.udf(lambda n: n + 1, "bigint", useArrow=False)("n"))
    ),
}


@pytest.mark.parametrize("case", SAFE)
def test_plans_that_keep_nothing_of_their_input_may_be_run_again(
    spark: SparkSession, case: str
) -> None:
    transform = SAFE[case](spark)
    cells, rows = specified(spark)
    frame = transform(rows).coalesce(1)
    assert unsafe_reasons(frame, cells.rdd_id) == []
    planned = PlannedBatches(frame)
    for text in ('[{"n":1,"k":"a"},{"n":2,"k":"a"}]', '[{"n":3,"k":"b"}]'):
        cells.bind([text])
        fresh = spark.createDataFrame(json.loads(text), "n bigint, k string")
        expected = transform(fresh.coalesce(1)).toArrow().to_pylist()
        assert sorted(planned.fetch().to_pylist(), key=repr) == sorted(expected, key=repr)


def with_variable(df: DataFrame) -> DataFrame:
    df.sparkSession.sql("DECLARE OR REPLACE VARIABLE most BIGINT DEFAULT 5")
    return df.where("n < most")


def with_sql_function(df: DataFrame) -> DataFrame:
    df.sparkSession.sql(
        "CREATE OR REPLACE TEMPORARY FUNCTION moment() RETURNS TIMESTAMP RETURN current_timestamp()"
    )
    return df.selectExpr("n", "moment() AS t")


UNSAFE: dict[str, tuple[Callable[[SparkSession], Transform], str]] = {
    "shuffle": (lambda s: lambda df: df.repartition(2, "k"), "ShuffleExchangeExec"),
    "shuffled join": (
        lambda s: lambda df: df.join(collected_table(s).repartition(2).hint("merge"), "k"),
        "ShuffleExchangeExec",
    ),
    "broadcast of the input": (
        lambda s: lambda df: collected_table(s).join(F.broadcast(df), "k"),
        "BroadcastExchangeExec",
    ),
    "broadcast of the input to itself": (
        lambda s: lambda df: df.join(F.broadcast(df.selectExpr("k AS j", "n AS m")), F.expr("k=j")),
        "BroadcastExchangeExec",
    ),
    "subquery over a table": (
        lambda s: lambda df: df.where(df["n"] > computed_table(s).agg(F.max("weight")).scalar()),
        "subquery",
    ),
    "current_timestamp": (
        lambda s: lambda df: df.selectExpr("current_timestamp() AS t"),
        "CurrentTimestamp",
    ),
    "now": (lambda s: lambda df: df.selectExpr("n", "now() AS t"), "Now"),
    "current_date": (lambda s: lambda df: df.where("current_date() > '2020-01-01'"), "CurrentDate"),
    "curdate": (lambda s: lambda df: df.where("curdate() > '2020-01-01'"), "CurrentDate"),
    "localtimestamp": (lambda s: lambda df: df.selectExpr("localtimestamp() AS t"), "LocalTime"),
    "current_time": (lambda s: lambda df: df.selectExpr("current_time() AS t"), "CurrentTime"),
    "unix_timestamp of now": (
        lambda s: lambda df: df.selectExpr("unix_timestamp() AS t"),
        "CurrentTimestamp",
    ),
    "current_timestamp within an aggregate": (
        lambda s: lambda df: df.groupBy("k").agg(F.max(F.current_timestamp())),
        "CurrentTimestamp",
    ),
    "a literal of now": (
        lambda s: lambda df: df.where("timestamp'now' > timestamp'2020-01-01'"),
        "timestamp'now'",
    ),
    "a literal of today": (lambda s: lambda df: df.selectExpr("date'today' AS d"), "date'today'"),
    "a literal of yesterday in a query": (
        lambda s: lambda df: s.sql("SELECT n, DATE ' Yesterday ' AS d FROM {df}", df=df),
        "DATE ' Yesterday '",
    ),
    "a literal without a zone": (
        lambda s: lambda df: df.where(F.expr("timestamp_ntz'tomorrow' IS NULL")),
        "tomorrow",
    ),
    "a cast of now": (
        lambda s: lambda df: df.selectExpr("CAST('now' AS TIMESTAMP) AS t"),
        "text like 'now'",
    ),
    "a comparison with now": (
        lambda s: lambda df: df.where("timestamp_seconds(n) < 'now'"),
        "text like 'now'",
    ),
    "a cast of a composed text": (
        lambda s: lambda df: df.selectExpr("CAST(concat('to', 'day') AS DATE) AS d"),
        "text like 'now'",
    ),
    "to_timestamp of now": (
        lambda s: lambda df: df.selectExpr("to_timestamp('now') AS t"),
        "text like 'now'",
    ),
    "to_date of today": (
        lambda s: lambda df: df.selectExpr("to_date('today') AS t"),
        "text like 'now'",
    ),
    "a session's variable": (lambda s: with_variable, "VariableReference"),
    "time in a function written in SQL": (lambda s: with_sql_function, "CurrentTimestamp"),
    "current_user": (lambda s: lambda df: df.selectExpr("current_user() AS u"), "CurrentUser"),
    "current_database": (
        lambda s: lambda df: df.selectExpr("current_database() AS u"),
        "CurrentDatabase",
    ),
    "current_timezone": (
        lambda s: lambda df: df.selectExpr("current_timezone() AS u"),
        "CurrentTimeZone",
    ),
    "a partition's number": (
        lambda s: lambda df: df.withColumn("x", F.spark_partition_id()),
        "SparkPartitionID",
    ),
    "a file's name": (
        lambda s: lambda df: df.withColumn("x", F.input_file_name()),
        "InputFileName",
    ),
    "a python function that is not deterministic": (
        lambda s: (
            lambda df: df.withColumn(
                "n", F.udf(lambda n: n, "bigint", useArrow=False).asNondeterministic()("n")
            )
        ),
        "not deterministic",
    ),
    "localCheckpoint": (lambda s: lambda df: df.localCheckpoint(), "RDDScanExec"),
    "lazy localCheckpoint": (lambda s: lambda df: df.localCheckpoint(eager=False), "RDDScanExec"),
    "an RDD and back": (
        lambda s: lambda df: s.createDataFrame(df.rdd.map(lambda row: row), df.schema),
        "RDDScanExec",
    ),
    "a cached RDD": (
        lambda s: lambda df: s.createDataFrame(df.rdd.cache(), df.schema),
        "RDDScanExec",
    ),
    "a shuffled RDD": (
        lambda s: lambda df: s.createDataFrame(df.rdd.repartition(2), df.schema),
        "RDDScanExec",
    ),
    "a broadcast of an RDD made of the input": (
        lambda s: (
            lambda df: collected_table(s).join(
                F.broadcast(s.createDataFrame(df.rdd.cache(), df.schema)), "k"
            )
        ),
        "BroadcastExchangeExec",
    ),
    "rand": (lambda s: lambda df: df.where("rand() < 0.5"), "Rand"),
    "rand with a seed": (lambda s: lambda df: df.withColumn("x", F.rand(7)), "Rand"),
    "randn": (lambda s: lambda df: df.withColumn("x", F.randn()), "Randn"),
    "uniform": (lambda s: lambda df: df.selectExpr("uniform(0, 10) AS x"), ""),
    "randstr": (lambda s: lambda df: df.selectExpr("randstr(4) AS x"), ""),
    "uuid": (lambda s: lambda df: df.selectExpr("uuid() AS x"), "Uuid"),
    "shuffle of an array": (lambda s: lambda df: df.selectExpr("shuffle(array(n, 1)) AS x"), ""),
    "sample": (lambda s: lambda df: df.sample(fraction=0.5, seed=3), "Sample"),
    "ids by order": (
        lambda s: lambda df: df.withColumn("x", F.monotonically_increasing_id()),
        "MonotonicallyIncreasingID",
    ),
}


@pytest.mark.parametrize("case", UNSAFE)
def test_plans_that_keep_something_of_a_run_are_rebuilt(spark: SparkSession, case: str) -> None:
    transform, reason = UNSAFE[case]
    found = verdict(spark, transform(spark))
    assert found
    assert reason in found


def test_a_cached_relation_is_rebuilt(spark: SparkSession) -> None:
    cells, rows = specified(spark)
    cached = rows.groupBy("k").count().cache()
    try:
        found = unsafe_reasons(cached.where("k = 'a'"), cells.rdd_id)
    finally:
        cached.unpersist()
    assert "InMemoryTableScanExec" in "; ".join(found)


def test_a_broadcast_of_what_is_cached_of_the_input_is_rebuilt(spark: SparkSession) -> None:
    cells, rows = specified(spark)
    cached = rows.cache()
    try:
        frame = collected_table(spark).join(F.broadcast(cached), "k")
        assert "BroadcastExchangeExec" in "; ".join(unsafe_reasons(frame, cells.rdd_id))
    finally:
        cached.unpersist()


def test_a_broadcast_of_a_cached_table_may_be_run_again(spark: SparkSession) -> None:
    cells, rows = specified(spark)
    cached = collected_table(spark).cache()
    try:
        assert unsafe_reasons(rows.join(F.broadcast(cached), "k"), cells.rdd_id) == []
    finally:
        cached.unpersist()


def test_checkpoints_of_the_input_are_rebuilt(spark: SparkSession, tmp_path: Path) -> None:
    spark.sparkContext.setCheckpointDir(str(tmp_path))
    assert "RDDScanExec" in verdict(spark, lambda df: df.checkpoint())


FIXED_TIMES = [
    "timestamp'2024-01-01 00:00:00'",
    "date'2024-01-01'",
    "CAST('2024-01-01' AS TIMESTAMP)",
    "CAST(k AS TIMESTAMP)",
    "to_date('2024-01-01')",
    "make_date(2024, 1, 1)",
    "'now'",
]


def test_times_that_stay_the_same_are_prepared(spark: SparkSession) -> None:
    assert verdict(spark, lambda df: df.selectExpr(*FIXED_TIMES)) == ""


# Functions without arguments whose value is the same at all times and in all places.
TIMELESS = {"e", "pi", "version"}


def test_no_function_of_spark_freezes_unnoticed(spark: SparkSession) -> None:
    """Try every function that takes no argument: what is prepared must be known to be constant."""
    cells, rows = specified(spark)
    registry = spark._jsparkSession.sessionState().functionRegistry()
    prepared = set()
    for name in elements(registry.listFunction().toIndexedSeq()):
        told, call = registry.lookupFunction(name).get(), f"{name.funcName()}()"
        if call not in told.getUsage() + told.getExamples():
            continue
        try:
            frame = rows.selectExpr("n", f"{call} AS x").coalesce(1)
        except PySparkException:
            continue  # of another kind: an aggregate over windows, a table function
        if not unsafe_reasons(frame, cells.rdd_id):
            prepared.add(name.funcName())
    assert prepared == TIMELESS


@contextmanager
def adaptive(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    try:
        yield
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", "false")


def test_an_adaptive_plan_is_rebuilt(spark: SparkSession) -> None:
    def sorted_by_key(df: DataFrame) -> DataFrame:
        first = Window.partitionBy("k").orderBy("n")
        return df.repartition(2).withColumn("first", F.row_number().over(first))

    with adaptive(spark):
        assert "AdaptiveSparkPlanExec" in verdict(spark, sorted_by_key)


def test_a_late_bound_plan_reads_what_is_bound_each_time(spark: SparkSession) -> None:
    cells, rows = specified(spark)
    frame = rows.groupBy("k").agg(F.sum("n").alias("n"), F.count("*").alias("rows")).coalesce(1)
    assert unsafe_reasons(frame, cells.rdd_id) == []
    planned = PlannedBatches(frame)
    for number in range(200):
        entries = [f'{{"n":{number},"k":"a"}}'] * (number % 3) + [f'{{"n":1,"k":"{number}"}}']
        cells.bind([f"[{','.join(entries)}]"])
        found = {row["k"]: (row["n"], row["rows"]) for row in planned.fetch().to_pylist()}
        expected = {str(number): (1, 1)}
        if number % 3:
            expected["a"] = (number * (number % 3), number % 3)
        assert found == expected


def test_a_shuffle_run_again_would_return_its_first_result(spark: SparkSession) -> None:
    """Show why the check is needed at all; if this fails, Spark has changed and so may we."""
    cells, rows = specified(spark)
    planned = PlannedBatches(rows.repartition(2, "k").groupBy("k").count().coalesce(1))
    cells.bind(['[{"n":1,"k":"first"}]'])
    assert [row["k"] for row in planned.fetch().to_pylist()] == ["first"]
    cells.bind(['[{"n":1,"k":"second"}]'])
    assert [row["k"] for row in planned.fetch().to_pylist()] == ["first"]


def _same(column: str) -> Column:
    return F.udf(lambda value: value, "string", useArrow=False)(column)


STREAMS: dict[str, tuple[Transform, bool]] = {
    "plain": (lambda df: df.where("v >= 0"), True),
    "python": (lambda df: df.withColumn("k", _same("k")), True),
    "shuffled": (lambda df: df.repartition(2, "k"), False),
    "random": (lambda df: df.where("rand() < 2"), False),
    "timed": (lambda df: df.where("ts < current_timestamp()"), False),
    "subquery": (lambda df: df.where("v < (SELECT max(id) FROM range(1000))"), False),
}


@pytest.mark.parametrize("case", STREAMS)
def test_results_are_right_whatever_the_verdict(spark: SparkSession, case: str) -> None:
    transform, safe = STREAMS[case]
    app, sink = App("safety"), sw.memory()
    stream = app.source("events").transform(transform)
    stream.window(sw.tumbling("1 s"), by="k").aggregate(total=sw.sum("v")).to(sink)
    script = scripted("ts timestamp, k string, v bigint", event_time="ts")
    for number in range(5):
        for key in "ab":
            script.add(ts=f"2024-01-01 00:00:0{number}", k=key, v=10 * number + (key == "b"))
    with Runtime(spark, slots=1, clock=ManualClock("2024-01-01")) as runtime:
        runtime.deploy(app, "q", events=script.end())
        runtime.run()
        report = runtime.queries()[0]
    assert (report.rebuilt_because == ()) == safe
    found = {(row["window_start"].second, row["k"]): row["total"] for row in sink.rows()}
    assert found == {(n, k): 10 * n + (k == "b") for n in range(5) for k in "ab"}


def test_a_static_table_is_read_again_when_the_app_is_refreshed(spark: SparkSession) -> None:
    weights = {"a": 1}

    def weighted(df: DataFrame) -> DataFrame:
        table = spark.createDataFrame(list(weights.items()), "k string, weight bigint")
        return df.join(F.broadcast(table), "k")

    app, sink = App("weights"), sw.memory()
    stream = app.source("events").transform(weighted)
    stream.window(sw.tumbling("1 s")).aggregate(total=sw.sum("weight")).to(sink)
    script = scripted("ts timestamp, k string", event_time="ts")
    for second in range(4):
        script.add(ts=f"2024-01-01 00:00:0{second}", k="a")
    with Runtime(spark, slots=1, clock=ManualClock("2024-01-01")) as runtime:
        runtime.deploy(app, "q", events=script)
        runtime.run(seconds=2.5)
        assert runtime.queries()[0].rebuilt_because == ()
        weights["a"] = 10
        runtime.refresh(app)
        script.end()
        runtime.run()
    found = {row["window_start"].second: row["total"] for row in sink.rows()}
    assert (found[0], found[3]) == (1, 10)


def test_a_plan_that_is_in_use_when_it_is_forgotten_does_not_come_back(
    spark: SparkSession,
) -> None:
    app = App("forgotten")
    stream = app.source("events").window(sw.tumbling("1 s"))
    output = stream.aggregate(n=sw.count()).to(sw.memory())
    readers = (scripted("ts timestamp", event_time="ts").open(spark),)
    template = Template(0, output, CheckedPipeline(spark, output, readers), readers)
    plans = StepRunner(spark)._plans
    with plans.lent(template) as first:
        assert first is not None
    with plans.lent(template) as again:
        assert again is first
        plans.forget(template)
    with plans.lent(template) as later:
        assert later is not first


@pytest.mark.parametrize("queries", [1, 3])
def test_plans_are_made_ahead_for_as_many_steps_as_can_run_at_once(
    spark: SparkSession, queries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Template] = []
    build = PreparedPlans._borrow

    def counted(plans: PreparedPlans, template: Template) -> PreparedPlan | None:
        known = bool(plans._idle.get(template))
        made.extend([] if known else [template])
        return build(plans, template)

    monkeypatch.setattr(PreparedPlans, "_borrow", counted)
    app = App("ahead")
    app.source("events").window(sw.tumbling("1 s")).aggregate(n=sw.count()).to(sw.memory())
    with Runtime(spark, slots=2) as runtime:
        for number in range(queries):
            script = scripted("ts timestamp", event_time="ts").add(ts="2024-01-01").end()
            runtime.deploy(app, f"q{number}", events=script)
        runtime.warm()
        assert len(made) == min(2, queries)
        runtime.warm()
        assert len(made) == min(2, queries)


def test_without_preparing_every_plan_is_rebuilt(spark: SparkSession) -> None:
    app = App("rebuilt")
    app.source("events").window(sw.tumbling("1 s")).aggregate(n=sw.count()).to(sw.memory())
    with Runtime(spark, prepare=False) as runtime:
        script = scripted("ts timestamp", event_time="ts").add(ts="2024-01-01").end()
        runtime.deploy(app, "q", events=script)
        assert runtime.queries()[0].rebuilt_because
