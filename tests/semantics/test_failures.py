"""A failing query stops alone, says why, and goes on where it was once the cause is gone."""

from __future__ import annotations

import os
from collections import Counter
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import slackwater as sw
from slackwater.app.stream import App, Output
from slackwater.runtime.runtime import Runtime
from slackwater.spark.sinks.base import Sink
from slackwater.spark.sinks.pane_tables import IDENTITY
from slackwater.spark.sinks.parquet import read_panes
from slackwater.testing import ManualClock, Script, assert_same_panes, batch_panes, scripted

pytestmark = pytest.mark.spark

START_MS = 1_704_067_200_000
SCHEMA = "ts timestamp, k string, v bigint"
QUERIES = 20
GUILTY = 7
RECORDS = 12


def records_of(number: int, *, poison: bool = False) -> list[tuple[str, str, int]]:
    found = [(f"2024-01-01 00:00:{i:02d}", "ab"[i % 2], i * 100 + number) for i in range(RECORDS)]
    if poison:
        found[5] = (found[5][0], "poison", found[5][2])
    return found


def script_of(records: list[tuple[str, str, int]]) -> Script:
    script = scripted(SCHEMA, event_time="ts")
    for ts, k, v in records:
        script.add(ts=ts, k=k, v=v)
    return script.end()


def expected(
    spark: SparkSession, output: Output, queries: dict[str, list[tuple[str, str, int]]]
) -> DataFrame:
    frames = []
    for query, records in queries.items():
        text = spark.createDataFrame(records, "ts string, k string, v bigint")
        rows = text.selectExpr("CAST(ts AS TIMESTAMP) AS ts", "k", "v")
        frames.append(batch_panes(output, {"events": rows}, event_time="ts", query=query))
    return reduce(DataFrame.union, frames)


def counting(sink: Sink, transform: Any = None) -> tuple[App, Output]:
    app = App("counting")
    stream = app.source("events")
    if transform is not None:
        stream = stream.transform(transform)
    result = stream.window(sw.tumbling("4 s"), by="k").aggregate(n=sw.count(), v=sw.sum("v"))
    return app, result.to(sink)


def only(table: pa.Table, queries: set[str]) -> pa.Table:
    return table.filter(pa.array([q in queries for q in table["query"].to_pylist()], pa.bool_()))


def assert_each_pane_once(tables: list[pa.Table]) -> None:
    seen = Counter(
        identity
        for table in tables
        for identity in {tuple(row[c] for c in IDENTITY) for row in table.to_pylist()}
    )
    assert not [identity for identity, times in seen.items() if times > 1]


def test_of_twenty_fused_queries_only_the_poisoned_one_stops(
    spark: SparkSession, tmp_path: Path
) -> None:
    poisonous = tmp_path / "poisonous"
    poisonous.touch()
    flag = str(poisonous)

    def refuse_poison(k: str) -> str:
        if k == "poison" and os.path.exists(flag):
            raise ValueError("this record is poison")
        return k

    checked, sink = F.udf(refuse_poison, "string", useArrow=False), sw.memory()
    app, output = counting(sink, lambda df: df.withColumn("k", checked("k")))
    records = {f"q{n:02d}": records_of(n, poison=n == GUILTY) for n in range(QUERIES)}
    guilty = f"q{GUILTY:02d}"
    healthy = {name: rows for name, rows in records.items() if name != guilty}

    def deployed() -> Runtime:
        runtime = Runtime(spark, journal=tmp_path / "journal", clock=ManualClock(START_MS))
        for name, rows in records.items():
            runtime.deploy(app, name, events=script_of(rows))
        return runtime

    with deployed() as runtime:
        runtime.run()
        reports = {report.name: report for report in runtime.queries()}
        assert {name for name, report in reports.items() if report.quarantined} == {guilty}
        assert "this record is poison" in str(reports[guilty].quarantined)
        assert len({name for name in reports if reports[name].records == RECORDS}) == QUERIES - 1
    assert_same_panes(only(sink.table(), set(healthy)), expected(spark, output, healthy))

    with deployed() as runtime:
        runtime.run()
        reports = {report.name: report for report in runtime.queries()}
        assert "this record is poison" in str(reports[guilty].quarantined)
        poisonous.unlink()
        runtime.resume(guilty)
        runtime.run()
        assert all(report.quarantined is None for report in runtime.queries())
    assert_same_panes(sink.table(), expected(spark, output, records))


class Moody:
    """Take panes, or refuse those of some queries."""

    def __init__(self) -> None:
        self.refused: set[str] = set()
        self.taken: list[pa.Table] = []

    def __call__(self, panes: pa.Table) -> None:
        if self.refused & set(panes["query"].to_pylist()):
            raise RuntimeError("the database is down")
        self.taken.append(panes)


def test_a_sink_that_refuses_a_query_stops_that_one_and_loses_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    moody = Moody()
    moody.refused = {"q1"}
    app, output = counting(sw.callback(moody))
    records = {f"q{n}": records_of(n) for n in range(3)}
    with Runtime(spark, journal=tmp_path, clock=ManualClock(START_MS)) as runtime:
        for name, rows in records.items():
            runtime.deploy(app, name, events=script_of(rows))
        runtime.run()
        stopped = {r.name: r.quarantined for r in runtime.queries() if r.quarantined}
        assert stopped.keys() == {"q1"}
        assert "the database is down" in str(stopped["q1"])
        assert {q for table in moody.taken for q in table["query"].to_pylist()} == {"q0", "q2"}
        moody.refused.clear()
        runtime.resume("q1")
        runtime.run()
    assert_each_pane_once(moody.taken)
    assert_same_panes(pa.concat_tables(moody.taken), expected(spark, output, records))


def test_a_parquet_directory_that_breaks_stops_its_query_and_loses_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    broken, sound = tmp_path / "broken", sw.memory()
    app = App("two outputs")
    windows = app.source("events").window(sw.tumbling("4 s"), by="k")
    one = windows.aggregate(n=sw.count()).to(sw.parquet(broken), name="one")
    two = windows.aggregate(v=sw.sum("v")).to(sound, name="two")
    records = records_of(3)
    settings: dict[str, Any] = {"journal": tmp_path / "journal", "clock": ManualClock(START_MS)}
    with Runtime(spark, **settings) as runtime:
        runtime.deploy(app, "q", events=script_of(records))
        broken.rename(tmp_path / "elsewhere")
        broken.write_text("a file where the directory was")
        runtime.run()
        stopped = [report.name for report in runtime.queries() if report.quarantined]
        assert stopped == ["q/one"]
    assert_same_panes(sound.table(), expected(spark, two, {"q/two": records}))

    broken.unlink()
    (tmp_path / "elsewhere").rename(broken)
    with Runtime(spark, **settings) as runtime:
        runtime.deploy(app, "q", events=script_of(records))
        runtime.resume("q/one")
        runtime.run()
    assert_same_panes(read_panes(broken), expected(spark, one, {"q/one": records}))
    assert_same_panes(sound.table(), expected(spark, two, {"q/two": records}))


def test_a_step_that_fails_while_the_runtime_stops_is_tried_again_by_the_next_run(
    spark: SparkSession,
) -> None:
    taken: list[pa.Table] = []
    stops = [True]

    def stop_once(panes: pa.Table) -> None:
        if stops:
            stops.pop()
            runtime.stop()
            raise RuntimeError("pulled the plug")
        taken.append(panes)

    app, output = counting(sw.callback(stop_once))
    with Runtime(spark, clock=ManualClock(START_MS)) as runtime:
        runtime.deploy(app, "q", events=script_of(records_of(1)))
        runtime.run()
        assert not taken
        runtime.run()
        assert runtime.queries()[0].quarantined is None
    assert_each_pane_once(taken)
    assert_same_panes(pa.concat_tables(taken), expected(spark, output, {"q": records_of(1)}))


def test_to_resume_a_query_that_is_well_changes_nothing(spark: SparkSession) -> None:
    taken: list[pa.Table] = []

    def resume_amid_a_step(panes: pa.Table) -> None:
        runtime.resume("q")
        taken.append(panes)

    app, output = counting(sw.callback(resume_amid_a_step))
    with Runtime(spark, slots=2, clock=ManualClock(START_MS)) as runtime:
        runtime.deploy(app, "q", events=script_of(records_of(1)))
        runtime.run()
        report = runtime.queries()[0]
    assert report.records == RECORDS
    assert_each_pane_once(taken)
    assert_same_panes(pa.concat_tables(taken), expected(spark, output, {"q": records_of(1)}))
