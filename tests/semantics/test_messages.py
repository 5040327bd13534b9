"""Typical mistakes, each with what its message must name: the place, the value, and the remedy.

The first table is of mistakes that are refused where they are made, or on deployment at the latest;
the second of functions that fail over rows. Each message is one line, and PySpark's own log of the
error is not printed beside it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import StringType

import slackwater as sw
from slackwater.errors import SlackwaterError
from slackwater.testing import ManualClock, Script, scripted

HERE = os.path.abspath(__file__)
START = "2024-01-01 10:00:00"
SCHEMA = "ts timestamp, user string, v bigint, st struct<a: int>"

Mistake = Callable[["Bench"], object]


def line_of(function: Callable[..., Any], after: int = 0) -> str:
    return f"{HERE}, line {function.__code__.co_firstlineno + after}"


class Bench:
    """Hold what mistakes are made with."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark = spark
        self.directory = directory
        self.file = directory / "plain.txt"
        self.file.write_text("x")

    def script(self) -> Script:
        events = scripted(SCHEMA, event_time="ts")
        events.add(ts="2024-01-01 10:00:01", user="ann", v=1)
        return events.add(ts="2024-01-01 10:00:13", user="bob", v=0).end()

    def app(self, make: Callable[[Any], Any], sink: Any = None) -> sw.App:
        app = sw.App("shop")
        make(app.source("events")).to(sw.memory() if sink is None else sink)
        return app

    def deploy(self, app: sw.App, source: Any = None, *, run: bool = False) -> str | None:
        with sw.Runtime(self.spark, clock=ManualClock(START), slots=1) as rt:
            rt.deploy(app, "q", events=self.script() if source is None else source)
            if run:
                # What the run makes of a quarantined query is not what is looked at here.
                stopped: list[str] = []

                def look() -> bool:
                    stopped.extend(r.quarantined for r in rt.queries() if r.quarantined)
                    return bool(stopped)

                try:
                    rt.run(until=look)
                except SlackwaterError:
                    look()
                return stopped[0] if stopped else None
        return None

    def counting(self, source: Any = None, transform: Any = None, sink: Any = None) -> object:
        def make(stream: Any) -> Any:
            stream = stream if transform is None else stream.transform(transform)
            return stream.window(sw.tumbling("10 s"), by="user").aggregate(n=sw.count())

        return self.deploy(self.app(make, sink), source)

    def aggregating(self, **aggregates: Any) -> object:
        def make(stream: Any) -> Any:
            return stream.window(sw.tumbling("10 s")).aggregate(**aggregates)

        return self.deploy(self.app(make))

    def applying(self, function: Any) -> object:
        def make(stream: Any) -> Any:
            return stream.window(sw.tumbling("10 s")).apply(function)

        return self.deploy(self.app(make))

    def files(self, name: str, **settings: Any) -> object:
        place = str(self.directory / name)
        given = {"schema": SCHEMA, "event_time": "ts", **settings}
        return self.counting(sw.files(place, **given))

    def runtime(self, **settings: Any) -> None:
        sw.Runtime(self.spark, **settings).close()


def misspelt(df: DataFrame) -> DataFrame:
    return df.where("nope > 1")


def without_return(df: DataFrame) -> None:
    df.where("v > 1")


def looks_up(df: DataFrame) -> DataFrame:
    columns = {"a": "v"}
    return df.select(columns["b"])


def both(df: DataFrame) -> DataFrame:
    return df.where(F.col("v") > 1 and F.col("v") < 3)


def as_pandas(df: DataFrame) -> Any:
    return df.toPandas()


REFUSED: dict[str, tuple[Mistake, list[str]]] = {
    # what users' functions do when they are tried on deployment
    "a transform with a wrong column": (
        lambda b: b.counting(transform=misspelt),
        ["app 'shop'", "transform misspelt", line_of(misspelt, 1), "`nope`", "ts, user, v"],
    ),
    "a transform that raises": (
        lambda b: b.counting(transform=looks_up),
        ["transform looks_up", "KeyError: 'b'", line_of(looks_up, 2)],
    ),
    "a transform that returns nothing": (
        lambda b: b.counting(transform=without_return),
        [line_of(without_return), "NoneType", "return"],
    ),
    "a transform with Python's and": (
        lambda b: b.counting(transform=both),
        [line_of(both, 1), "use '&' for 'and'"],
    ),
    "a transform of no argument": (
        lambda b: b.counting(transform=lambda: 5),
        ["transform <lambda>", "takes 0 positional arguments"],
    ),
    "a transform with groupBy": (
        lambda b: b.counting(transform=lambda df: df.groupBy("user").count()),
        ["an aggregation", "window"],
    ),
    "apply that returns pandas": (
        lambda b: b.applying(as_pandas),
        ["as_pandas", "pandas", "toPandas()"],
    ),
    "apply that returns nothing": (
        lambda b: b.applying(without_return),
        ["without_return", "None", "return"],
    ),
    "apply that raises": (
        lambda b: b.applying(looks_up),
        ["apply looks_up", "KeyError: 'b'", line_of(looks_up, 2)],
    ),
    # descriptions
    "a source that is a number": (lambda b: sw.App("a").source(5), ["source(name=5)", "name"]),  # type: ignore[arg-type]
    "an app that is a number": (lambda b: sw.App(5), ["App(name=5)", "text"]),  # type: ignore[arg-type]
    "keys that are a number": (
        lambda b: sw.App("a").source("e").window(sw.tumbling("1 s"), by=5),  # type: ignore[arg-type]
        ["by=5", "column"],
    ),
    "a union with text": (
        lambda b: sw.App("a").source("e").union("x"),  # type: ignore[arg-type]
        ["union('x')", "stream"],
    ),
    "an aggregate that is not called": (
        lambda b: b.aggregating(n=sw.count),
        ["aggregate(n=count)", "n=count(...)"],
    ),
    "half an expression": (
        lambda b: b.aggregating(n=sw.sum("v +")),
        ["aggregate(n=...)", "'v +'", "PARSE_SYNTAX_ERROR"],
    ),
    "an aggregate of an aggregate": (
        lambda b: b.aggregating(n=sw.sum("sum(v)")),
        ["aggregate(n=...)", "'sum(v)'", "aggregate function"],
    ),
    "a sum of structs": (
        lambda b: b.aggregating(n=sw.sum("st")),
        ["sum('st')", "struct<a:int>", "st.a"],
    ),
    "derive that returns too much": (
        lambda b: b.deploy(
            b.app(
                lambda s: (
                    s.window(sw.tumbling("1 s"))
                    .aggregate(n=sw.count())
                    .derive(twice=lambda table: [1, 2])
                )
            )
        ),
        ["derive(twice=", "as many values as there are rows"],
    ),
    # sources
    "an input directory that is missing": (
        lambda b: b.files("nowhere"),
        ["nowhere'", "does not exist", "create"],
    ),
    "an input that is a file": (
        lambda b: b.files("plain.txt"),
        ["plain.txt'", "is a file", "give"],
    ),
    "an input that is a pattern": (lambda b: b.files("*.json"), ["*.json'", "pattern='*.json'"]),
    "an input without any file yet": (lambda b: b.files("."), ["format=", "plain.txt"]),
    "a watermark that is text": (
        lambda b: b.files(".", format="json", watermark="5 s"),
        ["output 'output', events", "watermark='5 s'", "bounded("],
    ),
    "a watermark that is not called": (
        lambda b: b.files(".", format="json", watermark=sw.k_slack),
        ["watermark=", "k_slack()"],
    ),
    "an announcement of no column": (
        lambda b: b.files(".", format="json", watermark=sw.punctuated("mark")),
        ["punctuated('mark')", "`mark`", "ts, user, v"],
    ),
    "an announcement that is no moment": (
        lambda b: b.files(".", format="json", watermark=sw.punctuated("user")),
        ["punctuated('user')", "string", "timestamp"],
    ),
    "a rate that is text": (lambda b: sw.generator(rate="fast"), ["rate='fast'", "number"]),  # type: ignore[arg-type]
    "a misspelt input": (
        lambda b: _runtime(b, lambda rt: rt.deploy(b.app(counted), "q", event=b.script())),
        ["deploy('shop', 'q')", "event=", "did you mean events="],
    ),
    # sinks
    "a sink path that is a file": (
        lambda b: b.counting(sink=sw.parquet(b.file)),
        ["plain.txt", "is a file", "director"],
    ),
    "a sink path that is a number": (lambda b: sw.parquet(5), ["parquet(path)=5", "text"]),  # type: ignore[arg-type]
    # the runtime
    "a misspelt policy": (lambda b: b.runtime(policy="klnik"), ["policy='klnik'", "klink, "]),
    "a policy that is not called": (
        lambda b: b.runtime(policy=sw.klink),
        ["policy=", "sw.klink()"],
    ),
    "a journal that is a file": (lambda b: b.runtime(journal=b.file), ["journal=", "is a file"]),
    "slots that are text": (lambda b: b.runtime(slots="2"), ["slots='2'", "1 or more"]),
    "a runtime without Spark": (lambda b: sw.Runtime(None), ["spark=None", "slackwater.session()"]),  # type: ignore[arg-type]
    "a deployment of a stream": (
        lambda b: _runtime(b, lambda rt: rt.deploy(sw.App("a").source("e"), "q")),  # type: ignore[arg-type]
        ["deploy(", "App"],
    ),
    "a deployment named by a number": (
        lambda b: _runtime(b, lambda rt: rt.deploy(b.app(counted), 5, events=b.script())),  # type: ignore[arg-type]
        ["deploy('shop', 5)", "name"],
    ),
    "a run for a text": (
        lambda b: _runtime(b, lambda rt: rt.run(seconds="5")),  # type: ignore[arg-type]
        ["run(seconds='5')", "number"],
    ),
    "a run until a number": (
        lambda b: _runtime(b, lambda rt: rt.run(until=5)),  # type: ignore[arg-type]
        ["run(until=5)", "function"],
    ),
    "an observer that is none": (
        lambda b: _runtime(b, lambda rt: rt.observe(5)),  # type: ignore[arg-type]
        ["observe(5)", "step_committed"],
    ),
    "a refresh by name": (
        lambda b: _runtime(b, lambda rt: rt.refresh("shop")),  # type: ignore[arg-type]
        ["refresh('shop')", "App"],
    ),
    "a runtime that is closed": (lambda b: _closed(b).run(seconds=1), ["closed", "another"]),
}


def counted(stream: Any) -> Any:
    return stream.window(sw.tumbling("10 s")).aggregate(n=sw.count())


def _runtime(bench: Bench, use: Callable[[sw.Runtime], object]) -> None:
    with sw.Runtime(bench.spark, clock=ManualClock(START)) as rt:
        use(rt)


def _closed(bench: Bench) -> sw.Runtime:
    runtime = sw.Runtime(bench.spark, clock=ManualClock(START))
    runtime.close()
    return runtime


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> Bench:
    return Bench(spark, tmp_path)


@pytest.mark.spark
@pytest.mark.parametrize("mistake", REFUSED)
def test_a_mistake_is_refused_with_its_place_and_remedy(
    bench: Bench, mistake: str, capfd: pytest.CaptureFixture[str]
) -> None:
    make, names = REFUSED[mistake]
    with pytest.raises(SlackwaterError) as refused:
        make(bench)
    said = str(refused.value)
    assert [name for name in names if name not in said] == [], said
    assert "\n" not in said
    assert '"level"' not in capfd.readouterr().err


def helper(values: dict[str, str]) -> str:
    return values["b"]


def looks(value: str) -> str:
    return helper({"a": value})


@pandas_udf(StringType())  # type: ignore[call-overload, untyped-decorator]
def in_pandas(values: pd.Series) -> pd.Series:
    raise RuntimeError("pandas says no")


def by_batch(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        raise LookupError("no such batch")
        yield batch


def grouped(df: DataFrame) -> DataFrame:
    def fails(rows: pd.DataFrame) -> pd.DataFrame:
        raise ZeroDivisionError("in a group")

    return df.groupBy("user").applyInPandas(fails, "user string")


def posts(panes: Any) -> None:
    raise ConnectionError("the database is down")


def transformed(bench: Bench, transform: Any) -> str | None:
    def make(stream: Any) -> Any:
        windows = stream.transform(transform).window(sw.tumbling("10 s"), by="user")
        return windows.aggregate(n=sw.count())

    return bench.deploy(bench.app(make), run=True)


READING = "while records were read and transformed"
EMITTING = "while the window of q from 2024-01-01 10:00:00 to 2024-01-01 10:00:10 UTC was emitted"
udf = F.udf(looks, StringType(), useArrow=False)

FAILING: dict[str, tuple[Callable[[Bench], str | None], list[str]]] = {
    "a UDF": (
        lambda b: transformed(b, lambda df: df.withColumn("user", udf("user"))),
        ["KeyError: 'b', in helper", line_of(helper, 1), READING],
    ),
    "a UDF of a rebuilt step": (
        lambda b: transformed(b, lambda df: df.withColumn("user", udf("user")).where("rand() < 2")),
        ["KeyError: 'b', in helper", line_of(helper, 1), READING],
    ),
    "a pandas UDF": (
        lambda b: transformed(b, lambda df: df.withColumn("user", in_pandas("user"))),
        ["RuntimeError: pandas says no, in in_pandas", HERE, READING],
    ),
    "mapInArrow": (
        lambda b: transformed(b, lambda df: df.mapInArrow(by_batch, df.schema)),
        ["LookupError: no such batch, in by_batch", line_of(by_batch, 2), READING],
    ),
    "a division by zero": (
        lambda b: transformed(b, lambda df: df.withColumn("v", F.expr("10 div v")).where("v > 0")),
        ["DIVIDE_BY_ZERO", "try_divide", "(in '10 div v')", READING],
    ),
    "a function of apply": (
        lambda b: b.deploy(b.app(lambda s: s.window(sw.tumbling("10 s")).apply(grouped)), run=True),
        ["ZeroDivisionError: in a group, in fails", line_of(grouped, 2), EMITTING],
    ),
    "a callback": (
        lambda b: b.deploy(b.app(counted, sw.callback(posts)), run=True),
        ["callback posts", "ConnectionError: the database is down", line_of(posts, 1), "resume"],
    ),
}


@pytest.mark.spark
@pytest.mark.parametrize("what", FAILING)
def test_a_function_that_fails_over_rows_is_named_with_its_line(
    bench: Bench, what: str, capfd: pytest.CaptureFixture[str]
) -> None:
    make, names = FAILING[what]
    said = make(bench)
    assert said is not None
    assert [name for name in names if name not in said] == [], said
    assert "\n" not in said
    assert '"level"' not in capfd.readouterr().err


@pytest.mark.spark
def test_what_users_themselves_do_with_spark_is_logged_as_ever(
    spark: SparkSession,
) -> None:
    said: list[logging.LogRecord] = []
    listener = logging.Handler()
    listener.emit = said.append  # type: ignore[method-assign, assignment]
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    logger.addHandler(listener)
    try:
        with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
            spark.range(1).selectExpr("1 div id AS v").collect()
    finally:
        logger.removeHandler(listener)
    assert [record.levelname for record in said] == ["ERROR"]
