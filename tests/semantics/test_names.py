"""Columns may have any name that Spark allows; what cannot work is refused on deployment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import slackwater as sw
from slackwater.app.names import quoted
from slackwater.app.results import Result
from slackwater.app.stream import App
from slackwater.runtime.placing import Limits
from slackwater.runtime.runtime import Runtime
from slackwater.spark.sinks.parquet import read_panes
from slackwater.testing import ManualClock, Script, scripted
from slackwater.testing.batches import batch_panes
from slackwater.testing.oracle import assert_same_panes

pytestmark = pytest.mark.spark

START_MS = 1_704_067_200_000
TIME, KEY, VALUE = "event `time`", "a`b", "unit.price (£)"
AWKWARD = (
    *("`", "``", "a.b", "a b", "it's", 'say "x"', "1st", "2024", "null", "true", "select", "order"),
    *(
        "ünï",
        "名前",
        "back\\slash",
        "new\nline",
        "tab\there",
        "a,b",
        "{x}",
        "%s",
        "$x",
        "*",
        "(",
        "#",
    ),
    *("n", "h", "key", "first", "rows", "r", "at", "each", "lines", "argument", "input", "delay"),
)


def script(names: Sequence[str], kind: str = "bigint") -> Script:
    """Write twelve seconds of records with these columns, and one that is far ahead of its time."""
    columns = ", ".join(f"{quoted(name)} {kind}" for name in names)
    found = scripted(f"{quoted(TIME)} timestamp, {columns}", event_time=TIME)
    for second in range(12):
        values: dict[str, Any] = {
            name: (second * place) % 5 for place, name in enumerate(names, start=1)
        }
        found.add(**(values | {TIME: f"2024-01-01 00:00:{second:02d}"}))
    found.add(arrives="2024-01-01 00:00:12", **(values | {TIME: "2030-01-01 00:00:00"}))
    return found.end()


def events(spark: SparkSession, names: Sequence[str]) -> DataFrame:
    time = f"timestamp'2024-01-01 00:00:00' + make_dt_interval(0, 0, 0, id) AS {quoted(TIME)}"
    values = (
        f"CAST(id * {place} % 5 AS BIGINT) AS {quoted(name)}"
        for place, name in enumerate(names, start=1)
    )
    return spark.range(12).selectExpr(time, *values)


def run(
    spark: SparkSession, app: App, input: Script, limits: Limits | None = None
) -> Sequence[dict[str, Any]]:
    """Run an app to the end; return its dead letters."""
    clock = ManualClock(START_MS)
    with Runtime(spark, clock=clock, limits=limits) as runtime:
        runtime.deploy(app, "it's `q`", events=input)
        runtime.run()
        assert {query.quarantined for query in runtime.queries()} == {None}
        letters: Sequence[dict[str, Any]] = runtime.dead_letters.read().to_pylist()
    return letters


def test_names_with_any_sign_go_all_the_way_and_results_equal_a_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    names = list(AWKWARD)
    app, path = App("names"), tmp_path / "out"
    stream = app.source("events").transform(lambda df: df.where(f"{quoted(names[0])} >= 0"))
    sums = {f"sum of {name}": sw.sum(name) for name in names}
    wide = stream.window(sw.sliding("4 s", "2 s"), by=[names[0], names[1]]).aggregate(**sums)
    output = wide.to(sw.parquet(path))
    letters = run(spark, app, script(names))
    assert_same_panes(
        read_panes(path), batch_panes(output, {"events": events(spark, names)},
                                      event_time=TIME, query="it's `q`")
    )  # fmt: skip
    assert [letter["reason"] for letter in letters] == ["ahead of time"]
    assert "say" in letters[0]["record"]


def sessions(app: App) -> Result:
    windows = sw.sessions("2 s")
    return app.source("events").window(windows, by=KEY).aggregate(**{VALUE + "!": sw.max(VALUE)})


def counted(app: App) -> Result:
    windows = sw.counted(2)
    return app.source("events").window(windows, by=KEY).aggregate(**{VALUE + "!": sw.sum(VALUE)})


def chained(app: App) -> Result:
    first = (
        app.source("events")
        .window(sw.tumbling("2 s"), by=KEY)
        .aggregate(**{"sum `of` x": sw.sum(VALUE)})
    )
    further = first.derive(**{"twice `that`": lambda t: pa.compute.multiply(t["sum `of` x"], 2)})
    second = further.window(sw.tumbling("4 s"), by=KEY)
    return second.aggregate(**{"in all`": sw.sum("twice `that`"), "n": sw.count()})


def joined(app: App) -> Result:
    sides = [app.source("events").window(sw.tumbling("4 s"), by=KEY) for _ in range(2)]
    one = sides[0].aggregate(**{"`one`": sw.sum(VALUE)})
    return one.join(sides[1].aggregate(**{"one": sw.count(), "2": sw.max(VALUE)}), on=KEY)


def joined_rows(app: App) -> Result:
    left = app.source("events").window(sw.tumbling("4 s"))
    right = app.source("events").transform(lambda df: df.withColumnRenamed(VALUE, VALUE + "`2"))
    both = left.join(right.window(sw.tumbling("4 s")), on=KEY, how="full")
    return both.aggregate(by=KEY, **{"`": sw.sum(VALUE), "``": sw.sum(VALUE + "`2")})


def applied(app: App) -> Result:
    windowed = app.source("events").window(sw.tumbling("4 s"))
    return windowed.apply(
        lambda df: df.groupBy(quoted(KEY)).agg(F.sum(quoted(VALUE)).alias("total `of` x"))
    )


def without_number(app: App) -> Result:
    stream = app.source("events").transform(
        lambda df: df.select(quoted(TIME), quoted(KEY), quoted(VALUE))
    )
    return stream.window(sw.tumbling("4 s"), by=KEY).aggregate(**{"x`": sw.mean(VALUE)})


@pytest.mark.parametrize(
    "describe", [sessions, counted, chained, joined, joined_rows, applied, without_number]
)
def test_every_kind_of_output_takes_names_with_any_sign(
    spark: SparkSession, tmp_path: Path, describe: Callable[[App], Result]
) -> None:
    inputs = {"events": events(spark, [KEY, VALUE])}
    # With these, state is written to files, and Spark reads it from there.
    files = Limits(journal_bytes=0, function_bytes=0, window_rows=1, window_bytes=1)
    for limits in (None, files) if describe in (joined, applied, without_number) else (None,):
        app, path = App("names"), tmp_path / f"{limits is None}"
        output = describe(app).to(sw.parquet(path))
        run(spark, app, script([KEY, VALUE]), limits)
        expected = batch_panes(output, inputs, event_time=TIME, query="it's `q`").toArrow()
        assert expected.num_rows
        assert_same_panes(read_panes(path), expected)


def test_samples_and_their_bounds_take_names_with_any_sign(spark: SparkSession) -> None:
    app, sink = App("names"), sw.memory()
    windowed = app.source("events").window(sw.tumbling("4 s"), by=KEY)
    result = windowed.aggregate(**{"`sum`": sw.sum(VALUE), "n": sw.count(VALUE)})
    result.to(sink, error=sw.within(0.1, groups=0.1), lateness="4 s")
    run(spark, app, script([KEY, VALUE]))
    exact = [row for row in sink.last_panes().to_pylist() if row["pane"]]
    assert sum(row["`sum`"] for row in exact) == sum(second * 2 % 5 for second in range(12))
    assert all(row["`sum`_low"] <= row["`sum`"] <= row["`sum`_high"] for row in exact)


def test_a_session_that_tells_case_apart_runs_the_same_outputs(spark: SparkSession) -> None:
    app, sink = App("names"), sw.memory()
    windowed = app.source("events").window(sw.tumbling("4 s"), by="Key")
    output = windowed.aggregate(Total=sw.sum("Value"), N=sw.count()).to(sink)
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        run(spark, app, script(["Key", "Value"]))
        expected = batch_panes(
            output, {"events": events(spark, ["Key", "Value"])}, event_time=TIME, query="it's `q`"
        )
        assert_same_panes(sink.table(), expected)
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_a_generator_takes_columns_with_any_name(spark: SparkSession) -> None:
    app, sink = App("names"), sw.memory()
    windowed = app.source("events").window(sw.tumbling("1 s"), by=KEY)
    windowed.aggregate(**{"sum`": sw.sum(VALUE)}).to(sink)
    source = sw.generator(
        rate=10,
        limit=20,
        columns={KEY: "`h``e`", VALUE: "next - `h``e`"},
        helpers={"h`e": "key % 2", "next": "`h``e` + 1"},
        event_time=TIME,
        start_ms=START_MS,
    )
    with Runtime(spark, clock=ManualClock(START_MS)) as runtime:
        runtime.deploy(app, "q", events=source)
        runtime.run()
    assert sum(row["sum`"] for row in sink.rows()) == 20
