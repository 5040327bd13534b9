"""What needs a schema is checked on deployment, before anything runs."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window

import slackwater as sw
from slackwater.errors import DescriptionError
from slackwater.spark.frames import Template, _stream
from slackwater.spark.pipeline import CheckedPipeline
from slackwater.testing import scripted

pytestmark = pytest.mark.spark

Transform = Callable[[DataFrame], DataFrame]

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
        ({"by": "tags"}, r"by='tags' is arrays \(array<string>\)"),
        ({"total": sw.sum("struct(amount)")}, r"aggregate\(total=...\).*one of its fields"),
        ({"by": "user", "User": sw.count()}, "'user' and 'User' differ in case only"),
        ({"by": "_sw_slice"}, "'_sw_slice' is a name that Slackwater"),
        ({"by": "n__n", "n": sw.count()}, "by='n__n' is not among"),
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
        (lambda df: df.withColumn("_sw_slice", F.lit(1)), "adds a column '_sw_slice'.*rename it"),
        (lambda df: df.withColumn("_SW_mine", F.lit(1)), "adds a column '_SW_mine'"),
        (lambda df: df.select("*", F.col("ts").alias("TS")), "leave 'ts' twice"),
    ],
)
def test_a_transform_whose_result_depends_on_the_steps_is_refused(
    spark: SparkSession, transform: Any, says: str
) -> None:
    with pytest.raises(DescriptionError, match=says):
        check(spark, transform)


def over_view(df: DataFrame, sql: str) -> DataFrame:
    """Query the stream by the name `events`; there is a static table `names` beside it."""
    df.createOrReplaceTempView("events")
    spark = df.sparkSession
    spark.createDataFrame([("ann", "Ann")], "user string, name string").createOrReplaceTempView(
        "names"
    )
    return spark.sql(sql)


def same(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


def written(df: DataFrame) -> DataFrame:
    df.write.saveAsTable("events_seen")
    return df


HIDDEN_STATE: dict[str, tuple[Transform, str]] = {
    "a common table without the query's number, grouped": (
        lambda df: over_view(
            df,
            "WITH plain AS (SELECT ts, user FROM events) "
            "SELECT user, max(ts) AS ts FROM plain GROUP BY user",
        ),
        "an aggregation",
    ),
    "a scalar subquery": (
        lambda df: over_view(
            df, "SELECT * FROM events WHERE amount > (SELECT avg(amount) FROM events)"
        ),
        "subquery over the stream",
    ),
    "a scalar subquery of the DataFrame API": (
        lambda df: df.where(df["amount"] > df.agg(F.max("amount")).scalar()),
        "subquery over the stream",
    ),
    "a lateral subquery": (
        lambda df: over_view(
            df,
            "SELECT * FROM events, LATERAL "
            "(SELECT max(amount) AS top FROM events AS e WHERE e.user = events.user)",
        ),
        "subquery over the stream",
    ),
    "IN": (
        lambda df: over_view(df, "SELECT * FROM events WHERE user IN (SELECT user FROM events)"),
        "subquery over the stream",
    ),
    "EXISTS": (
        lambda df: over_view(
            df,
            "SELECT * FROM events WHERE EXISTS "
            "(SELECT 1 FROM events AS e WHERE e.user = events.user AND e.amount > 1)",
        ),
        "subquery over the stream",
    ),
    "a cogroup in Arrow": (
        lambda df: (
            df.groupBy("user")
            .cogroup(df.sparkSession.range(1).selectExpr("'a' AS user").groupBy("user"))
            .applyInArrow(lambda left, right: left, "ts timestamp, user string")
        ),
        "a cogroup",
    ),
    "a group in Arrow": (
        lambda df: df.groupBy("user").applyInArrow(lambda group: group, "ts timestamp"),
        "applyInArrow",
    ),
    "sample": (lambda df: df.sample(fraction=0.5), "sample"),
    "sortWithinPartitions": (lambda df: df.sortWithinPartitions("ts"), "a sort"),
    "observe": (lambda df: df.observe("o", F.count(F.lit(1)).alias("n")), "observe"),
    "transposed": (lambda df: df.select("user").transpose(), "at once|transpose"),
    "dropDuplicatesWithinWatermark": (
        lambda df: df.withWatermark("ts", "1 second").dropDuplicatesWithinWatermark(["user"]),
        "dropDuplicatesWithinWatermark",
    ),
    "row numbers": (
        lambda df: df.withColumn("n", F.monotonically_increasing_id()),
        "monotonically_increasing_id",
    ),
    "a partition's number": (
        lambda df: df.where(F.spark_partition_id() == 0),
        "spark_partition_id",
    ),
    "a file's name": (lambda df: df.withColumn("f", F.input_file_name()), "input_file_name"),
    "an RDD": (
        lambda df: df.sparkSession.createDataFrame(df.rdd.map(lambda row: row), df.schema),
        "at once, or keeps it.*rdd",
    ),
    "localCheckpoint": (lambda df: df.localCheckpoint(), "localCheckpoint"),
    "lazy localCheckpoint": (lambda df: df.localCheckpoint(eager=False), "localCheckpoint"),
    "checkpoint": (lambda df: df.checkpoint(), "checkpoint"),
    "cache": (lambda df: df.cache(), "cache"),
    "a broadcast of what is cached": (
        lambda df: df.sparkSession.range(3).join(F.broadcast(df.cache()), F.expr("id = amount")),
        "cache",
    ),
    "count": (lambda df: df.withColumn("n", F.lit(df.count())), "count"),
    "collect": (lambda df: df.withColumn("n", F.lit(len(df.collect()))), "collect"),
    "isEmpty": (lambda df: df.limit(1) if df.isEmpty() else df, "at once"),
    "write": (written, "at once, or keeps it.*write"),
    "union with a static table": (
        lambda df: df.unionByName(
            df.sparkSession.createDataFrame([("ann",)], "user string"), allowMissingColumns=True
        ),
        "static table.*again in each step",
    ),
    "a stateful transform hidden from streams": (
        lambda df: df if df.isStreaming else df.distinct(),
        "isStreaming",
    ),
    "groupBy that drops the event time": (lambda df: df.groupBy("user").count(), "an aggregation"),
}


@pytest.mark.parametrize("case", HIDDEN_STATE)
def test_state_is_found_wherever_it_hides(spark: SparkSession, case: str) -> None:
    transform, says = HIDDEN_STATE[case]
    with pytest.raises(DescriptionError, match=says):
        check(spark, transform)


def test_a_table_function_in_python_is_refused(spark: SparkSession) -> None:
    class Doubled:
        def eval(self, text: str) -> Iterator[tuple[str]]:
            yield (text,)

    doubled: Any = F.udtf(Doubled, returnType="twice string")
    spark.udtf.register("doubled", doubled)
    with pytest.raises(DescriptionError, match=r"table function.*explode"):
        check(spark, lambda df: over_view(df, "SELECT * FROM events, LATERAL doubled(user)"))


def test_a_join_s_side_is_refused_for_its_state_before_its_event_time(spark: SparkSession) -> None:
    app = sw.App("shop")
    grouped = app.source("a").transform(lambda df: df.groupBy("user").count())
    left, right = (
        each.window(sw.tumbling("1 s"), by="user").aggregate(**{name: sw.count()})
        for name, each in {"x": grouped, "y": app.source("b")}.items()
    )
    output = left.join(right, on="user").to(sw.memory())
    readers = [scripted(SCHEMA, event_time="ts").open(spark) for _ in range(2)]
    with pytest.raises(DescriptionError, match="an aggregation"):
        CheckedPipeline(spark, output, readers)


ROWWISE: dict[str, Transform] = {
    "nothing": lambda df: df,
    "projection": lambda df: df.select("*", (F.col("amount") * 2).alias("twice")),
    "explode": lambda df: df.withColumn("tag", F.explode_outer("tags")),
    "posexplode": lambda df: df.select("*", F.posexplode("tags")),
    "union with itself": lambda df: df.union(df.where("amount > 1")),
    "unpivot": lambda df: df.unpivot(["ts", "_sw_query"], ["user"], "name", "value"),
    "sliding windows": lambda df: df.withColumn("w", F.window("ts", "2 hours", "1 hour")),
    "repartition": lambda df: df.repartition(2, "user").coalesce(1).hint("rebalance"),
    "a view": lambda df: over_view(df, "SELECT * FROM events WHERE amount > 1"),
    "pipes": lambda df: over_view(df, "FROM events |> WHERE amount > 1 |> EXTEND 1 AS one"),
    "a common table": lambda df: over_view(
        df, "WITH e AS (SELECT * FROM events) SELECT *, upper(user) AS u FROM e"
    ),
    "SQL with an argument": lambda df: df.sparkSession.sql("SELECT * FROM {d}", d=df),
    "IN a static table": lambda df: over_view(
        df, "SELECT * FROM events WHERE user IN (SELECT user FROM names)"
    ),
    "EXISTS in a static table": lambda df: over_view(
        df,
        "SELECT * FROM events WHERE EXISTS (SELECT 1 FROM names WHERE names.user = events.user)",
    ),
    "lateral static table": lambda df: over_view(
        df,
        "SELECT events.*, n FROM events, LATERAL "
        "(SELECT max(name) AS n FROM names WHERE names.user = events.user)",
    ),
    "python": lambda df: df.withColumn("u", F.udf(lambda u: u, "string")("user")),
    "chance": lambda df: df.where(F.rand() < 2).where("rand() < 2"),
    "a rename and back": lambda df: df.withColumnRenamed("_sw_query", "q").withColumnRenamed(
        "q", "_sw_query"
    ),
    "drop of nulls in a column": lambda df: df.na.drop(subset=["user"]),
    "fill of a column": lambda df: df.fillna(0, subset=["amount"]),
}


@pytest.mark.parametrize("case", ROWWISE)
def test_what_treats_each_row_for_itself_is_taken_and_fused(spark: SparkSession, case: str) -> None:
    assert check(spark, ROWWISE[case]).fusable


WHOLE_FRAMES: dict[str, Transform] = {
    "replace": lambda df: df.replace(1, 0),
    "fillna": lambda df: df.fillna(0),
    "drop of rows with few values": lambda df: df.na.drop(thresh=3),
    "casts": lambda df: df.select("ts", *(F.col(c).cast("string") for c in df.columns[1:])),
    "a hash of all columns": lambda df: df.withColumn("h", F.hash(*df.columns)),
    "a struct of all columns": lambda df: df.select("*", F.to_json(F.struct("*")).alias("j")),
    "a constant": lambda df: df.withColumn("_sw_query", F.lit(0)),
    "another case": lambda df: df.withColumn("_SW_QUERY", F.lit(0)),
    "names for all": lambda df: df.toDF("ts", "user", "amount", "tags"),
    "a constant in one part of a union": lambda df: df.unionByName(
        df.withColumn("_sw_query", F.lit(0))
    ),
    "all names in capitals but the time": lambda df: df.select(
        "ts", *(F.col(name).alias(name.upper()) for name in df.columns[1:])
    ),
    "the number of columns": lambda df: df.withColumn("many", F.lit(len(df.columns))),
    "unpivot of all others": lambda df: df.select(
        "ts", *(F.col(name).cast("string") for name in df.columns[1:])
    ).unpivot("ts", None, "name", "value"),
    "python over whole rows": lambda df: df.withColumn(
        "u", F.udf(lambda row: str(row), "string")(F.struct("*"))
    ),
    "pandas": lambda df: df.mapInPandas(same, df.schema),
    "arrow": lambda df: df.mapInArrow(same, df.schema),
}


@pytest.mark.parametrize("case", WHOLE_FRAMES)
def test_what_may_touch_the_query_number_is_not_fused(spark: SparkSession, case: str) -> None:
    pipeline = check(spark, WHOLE_FRAMES[case])
    assert not pipeline.fusable
    ours = [name for name in pipeline.columns.names if name.lower().startswith("_sw_")]
    assert ours == []
    if case not in {"pandas", "arrow"} and "constant" not in case and case != "another case":
        assert pipeline.passage.shown == ()


def test_a_watermark_in_a_transform_is_warned_of(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    assert check(spark, lambda df: df.withWatermark("ts", "1 minute")).fusable
    (said,) = caplog.messages
    assert re.search(r"withWatermark.*no effect.*watermark=", said)


def test_keys_that_a_part_of_a_union_changes_are_not_the_source_s(spark: SparkSession) -> None:
    assert check(spark, lambda df: df.where("amount > 1"), by="user").keys_from_source
    changed = check(spark, lambda df: df.union(df.withColumn("user", F.lit("x"))), by="user")
    assert not changed.keys_from_source


def test_two_descriptions_that_give_views_one_name_do_not_get_one_another_s_rows(
    spark: SparkSession,
) -> None:
    """A view's name is the whole session's: so such transforms are never called side by side."""
    meeting = threading.Barrier(2)

    def named(df: DataFrame) -> DataFrame:
        df.createOrReplaceTempView("events")
        with suppress(threading.BrokenBarrierError):
            meeting.wait(0.2)
        return df.sparkSession.sql("SELECT * FROM events")

    meeting.abort()
    output = (
        sw.App("views")
        .source("events")
        .transform(named)
        .window(sw.tumbling("1 s"))
        .apply(lambda df: df)
        .to(sw.memory())
    )
    readers = (scripted(SCHEMA, event_time="ts").open(spark),)
    template = Template(0, output, CheckedPipeline(spark, output, readers), readers)
    meeting.reset()

    def read(number: int) -> set[int]:
        rows = spark.range(number, number + 1).selectExpr(
            "timestamp_millis(0) AS ts",
            "'a' AS user",
            "1D AS amount",
            "array('t') AS tags",
            "CAST(id AS INT) AS _sw_query",
        )
        return {row["_sw_query"] for row in _stream(template, [rows]).collect()}

    with ThreadPoolExecutor(2) as together:
        assert list(together.map(read, (1, 2))) == [{1}, {2}]


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


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda df: df.toPandas(), r"apply .*returned a DataFrame of pandas.*applyInPandas"),
        (lambda df: df.collect(), r"apply .*returned list"),
        (lambda df: None, r"apply .*returned NoneType"),
        (lambda df: df.withColumn("_sw_slice", F.lit(1)), r"returns a column '_sw_slice'.*rename"),
        (lambda df: df.select("user", F.lit(1).alias("User")), "returns columns 'user' and 'User'"),
        (
            lambda df: df.select(F.expr("interval '1' month").alias("age")),
            r"returns a column 'age' of intervals \(interval month\).*CAST",
        ),
        (lambda df: df.select(F.expr("array(time'10:00:00')").alias("at")), r"'at' of arrays"),
    ],
)
def test_an_apply_that_returns_what_no_sink_can_take_is_refused(
    spark: SparkSession, function: Any, says: str
) -> None:
    stream = sw.App("shop").source("events").window(sw.tumbling("1 s"))
    output = stream.apply(function).to(sw.memory())
    with pytest.raises(DescriptionError, match=says):
        CheckedPipeline(spark, output, [scripted(SCHEMA, event_time="ts").open(spark)])


def test_rows_that_would_not_come_back_from_state_are_refused(spark: SparkSession) -> None:
    def rows(transform: Callable[[DataFrame], DataFrame]) -> CheckedPipeline:
        stream = sw.App("shop").source("events").transform(transform)
        output = stream.window(sw.tumbling("1 s")).apply(lambda df: df.select("user"))
        reader = scripted(SCHEMA, event_time="ts").open(spark)
        return CheckedPipeline(spark, output.to(sw.memory()), [reader])

    with pytest.raises(DescriptionError, match=r"apply\(...\) gets have a column 'User' twice"):
        rows(lambda df: df.select("*", F.lit(1).alias("User")))
    with pytest.raises(DescriptionError, match=r"a column 'at' of times of day \(time\(6\)\)"):
        rows(lambda df: df.withColumn("at", F.expr("time'10:00:00'")))
    assert rows(lambda df: df.withColumn("age", F.expr("interval '1' day"))).fusable


@pytest.mark.parametrize("kind", ["char(5)", "varchar(5)", "time", "struct<a: char(3)>"])
def test_a_schema_with_types_that_no_step_can_read_is_refused(
    spark: SparkSession, kind: str
) -> None:
    with pytest.raises(DescriptionError, match=r"schema has 'x' as .* cannot be read: declare it"):
        scripted(f"ts timestamp, x {kind}", event_time="ts").open(spark)


def test_names_that_slackwater_keeps_are_refused_in_sources(spark: SparkSession) -> None:
    with pytest.raises(DescriptionError, match="'_SW_x', a reserved name"):
        scripted("ts timestamp, _SW_x int", event_time="ts").open(spark)
    with pytest.raises(DescriptionError, match="names without _sw_"):
        sw.generator(columns={"_sw_mine": "n"})
    with pytest.raises(DescriptionError, match="names without _sw_"):
        sw.generator(helpers={"_sw_mine": "n"})


def test_a_further_stage_keeps_names_of_its_state_apart(spark: SparkSession) -> None:
    stream = sw.App("shop").source("events").transform(lambda df: df.withColumn("n__n", F.lit(1)))
    first = stream.window(sw.tumbling("1 s"), by="n__n").aggregate(total=sw.sum("amount"))
    further = first.window(sw.tumbling("2 s"), by="n__n").aggregate(n=sw.count())
    with pytest.raises(DescriptionError, match=r"stage 2.*'n__n', which the key 'n__n' has too"):
        CheckedPipeline(
            spark, further.to(sw.memory()), [scripted(SCHEMA, event_time="ts").open(spark)]
        )
