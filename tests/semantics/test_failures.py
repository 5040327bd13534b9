"""A failing query stops alone, says why, and goes on where it was once the cause is gone."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import slackwater as sw
from slackwater import disk
from slackwater.app.stream import App
from slackwater.errors import QuarantinedError, SinkError, SinkUnavailableError, SourceError
from slackwater.runtime.blocks import BlockStore
from slackwater.runtime.placing import Limits
from slackwater.runtime.reports import StepReport
from slackwater.runtime.runtime import Runtime
from slackwater.spark.sinks.base import Sink, SinkWriter
from slackwater.spark.sinks.pane_tables import IDENTITY
from slackwater.spark.sinks.parquet import read_panes
from slackwater.spark.sources.base import Range
from slackwater.spark.sources.inline import checked_schema
from slackwater.testing import ManualClock, Script, assert_same_panes
from slackwater.testing.script import ScriptReader

pytestmark = pytest.mark.spark

START_MS = 1_704_067_200_000
SCHEMA = "ts timestamp, k string, v bigint"
QUERIES = 20
GUILTY = 7
Answer = TypeVar("Answer")
RECORDS = 12


def records_of(number: int, *, poison: bool = False) -> list[tuple[str, str, int]]:
    found = [(f"2024-01-01 00:00:{i:02d}", "ab"[i % 2], i * 100 + number) for i in range(RECORDS)]
    if poison:
        found[5] = (found[5][0], "poison", found[5][2])
    return found


def script_of(records: list[tuple[str, str, int]], kind: type[Script] = Script) -> Script:
    script = kind(
        SCHEMA, event_time="ts", watermark=sw.bounded("0 s"), partitions=1, max_ahead_ms=60_000
    )
    for ts, k, v in records:
        script.add(ts=ts, k=k, v=v)
    return script.end()


def expected(
    queries: dict[str, list[tuple[str, str, int]]], columns: Sequence[str] = ("n", "v")
) -> pa.Table:
    """Count and sum by hand: by query, window of four seconds and key."""
    groups: dict[tuple[str, int, str], list[int]] = {}
    for query, records in queries.items():
        for ts, k, v in records:
            start_ms = START_MS + int(ts[-2:]) // 4 * 4_000
            groups.setdefault((query, start_ms, k), []).append(v)
    moment = pa.timestamp("us", tz="UTC")
    starts = [start_ms * 1_000 for _, start_ms, _ in groups]
    found = {
        "query": pa.array([query for query, _, _ in groups]),
        "window_start": pa.array(starts, moment),
        "window_end": pa.array([start + 4_000_000 for start in starts], moment),
        "k": pa.array([k for _, _, k in groups]),
        "n": pa.array([len(values) for values in groups.values()]),
        "v": pa.array([sum(values) for values in groups.values()]),
    }
    return pa.table(found).select(["query", "window_start", "window_end", "k", *columns])


def counting(sink: Sink, transform: Any = None) -> App:
    app = App("counting")
    stream = app.source("events")
    if transform is not None:
        stream = stream.transform(transform)
    result = stream.window(sw.tumbling("4 s"), by="k").aggregate(n=sw.count(), v=sw.sum("v"))
    result.to(sink)
    return app


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
    app = counting(sink, lambda df: df.withColumn("k", checked("k")))
    records = {f"q{n:02d}": records_of(n, poison=n == GUILTY) for n in range(QUERIES)}
    guilty = f"q{GUILTY:02d}"
    healthy = {name: rows for name, rows in records.items() if name != guilty}

    def deployed() -> Runtime:
        runtime = Runtime(spark, journal=tmp_path / "journal", clock=ManualClock(START_MS))
        for name, rows in records.items():
            runtime.deploy(app, name, events=script_of(rows))
        return runtime

    with deployed() as runtime:
        with pytest.raises(QuarantinedError, match=f"1 of 20 queries are quarantined: {guilty}: "):
            runtime.run()
        reports = {report.name: report for report in runtime.queries()}
        assert {name for name, report in reports.items() if report.quarantined} == {guilty}
        assert "this record is poison" in str(reports[guilty].quarantined)
        assert len({name for name in reports if reports[name].records == RECORDS}) == QUERIES - 1
    assert_same_panes(only(sink.table(), set(healthy)), expected(healthy))

    with deployed() as runtime:
        with pytest.raises(QuarantinedError, match=f"1 of 20 queries are quarantined: {guilty}: "):
            runtime.run()
        reports = {report.name: report for report in runtime.queries()}
        assert "this record is poison" in str(reports[guilty].quarantined)
        poisonous.unlink()
        runtime.resume(guilty)
        runtime.run()
        assert all(report.quarantined is None for report in runtime.queries())
    assert_same_panes(sink.table(), expected(records))


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
    app = counting(sw.callback(moody))
    records = {f"q{n}": records_of(n) for n in range(3)}
    with Runtime(spark, journal=tmp_path, clock=ManualClock(START_MS)) as runtime:
        for name, rows in records.items():
            runtime.deploy(app, name, events=script_of(rows))
        with pytest.raises(QuarantinedError, match="1 of 3 queries are quarantined: q1: "):
            runtime.run()
        stopped = {r.name: r.quarantined for r in runtime.queries() if r.quarantined}
        assert stopped.keys() == {"q1"}
        assert "the database is down" in str(stopped["q1"])
        assert {q for table in moody.taken for q in table["query"].to_pylist()} == {"q0", "q2"}
        moody.refused.clear()
        runtime.resume("q1")
        runtime.run()
    assert_each_pane_once(moody.taken)
    assert_same_panes(pa.concat_tables(moody.taken), expected(records))


class AwaySink(Sink):
    """Be out of reach for a number of writes, again and again."""

    def __init__(self, away: int) -> None:
        self.memory = sw.memory()
        self.away = away
        self.tries = 0

    def open(self) -> SinkWriter:
        sink, writer = self, self.memory.open()

        class Writer(SinkWriter):
            def write(self, panes: pa.Table, lane: int) -> None:
                sink.tries += 1
                if sink.tries % (sink.away + 1):
                    raise SinkUnavailableError("the other end is away")
                writer.write(panes, lane)

        return Writer()


def test_queries_wait_for_a_sink_out_of_reach_while_others_go_on(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    away, near = AwaySink(away=4), sw.memory()
    clock, records = ManualClock(START_MS), {f"q{n}": records_of(n) for n in range(2)}
    seen_waiting = set[str | None]()
    with Runtime(spark, journal=tmp_path, clock=clock, slots=1) as runtime:
        for (name, rows), sink in zip(records.items(), (away, near), strict=True):
            runtime.deploy(counting(sink), name, events=script_of(rows))

        def look() -> bool:
            seen_waiting.update(r.waits_for for r in runtime.queries() if r.name == "q0")
            return False

        runtime.run(until=look)
        assert all(r.quarantined is None and r.waits_for is None for r in runtime.queries())
    assert seen_waiting == {None, "the other end is away"}
    assert_same_panes(away.memory.table(), expected({"q0": records["q0"]}))
    assert_same_panes(near.table(), expected({"q1": records["q1"]}))
    told = [record.message for record in caplog.records if "q0" in record.message]
    writes = away.tries // (away.away + 1)
    assert len(told) == 2 * writes


def test_a_parquet_directory_that_breaks_stops_its_query_and_loses_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    broken, sound = tmp_path / "broken", sw.memory()
    app = App("two outputs")
    windows = app.source("events").window(sw.tumbling("4 s"), by="k")
    windows.aggregate(n=sw.count()).to(sw.parquet(broken), name="one")
    windows.aggregate(v=sw.sum("v")).to(sound, name="two")
    records = records_of(3)
    settings: dict[str, Any] = {"journal": tmp_path / "journal", "clock": ManualClock(START_MS)}
    with Runtime(spark, **settings) as runtime:
        runtime.deploy(app, "q", events=script_of(records))
        broken.rename(tmp_path / "elsewhere")
        broken.write_text("a file where the directory was")
        with pytest.raises(QuarantinedError, match="1 of 2 queries are quarantined: q/one: "):
            runtime.run()
        stopped = [report.name for report in runtime.queries() if report.quarantined]
        assert stopped == ["q/one"]
    assert_same_panes(sound.table(), expected({"q/two": records}, ["v"]))

    broken.unlink()
    (tmp_path / "elsewhere").rename(broken)
    with Runtime(spark, **settings) as runtime:
        runtime.deploy(app, "q", events=script_of(records))
        runtime.resume("q/one")
        runtime.run()
    assert_same_panes(read_panes(broken), expected({"q/one": records}, ["n"]))
    assert_same_panes(sound.table(), expected({"q/two": records}, ["v"]))


@pytest.mark.spark
def test_an_app_is_deployed_whole_or_not_at_all(spark: SparkSession, tmp_path: Path) -> None:
    first, second = sw.memory(), tmp_path / "second"
    app = App("two outputs")
    windows = app.source("events").window(sw.tumbling("4 s"), by="k")
    windows.aggregate(n=sw.count()).to(first, name="one")
    windows.aggregate(v=sw.sum("v")).to(sw.parquet(second), name="two")
    second.write_text("a file where the directory should be")
    records = records_of(3)
    with Runtime(spark, clock=ManualClock(START_MS)) as runtime:
        with pytest.raises(SinkError):
            runtime.deploy(app, "q", events=script_of(records))
        assert runtime.queries() == []
        second.unlink()
        assert runtime.deploy(app, "q", events=script_of(records)) == ["q/one", "q/two"]
        runtime.run()
    assert_same_panes(first.table(), expected({"q/one": records}, ["n"]))
    assert_same_panes(read_panes(second), expected({"q/two": records}, ["v"]))


class Breakable(Script):
    """A script whose reader can be made to fail at one of its methods."""

    broken: str | None = None

    def open(self, spark: SparkSession) -> ScriptReader:
        script = self

        class Reader(ScriptReader):
            def plan(self, *arguments: Any) -> list[Range]:
                return _unless_broken(script, "plan", super().plan(*arguments))

            def available_one(self, now_ms: float) -> int:
                return _unless_broken(script, "available_one", super().available_one(now_ms))

            def oldest_arrival_ms(self, *arguments: Any) -> float | None:
                oldest = super().oldest_arrival_ms(*arguments)
                return _unless_broken(script, "oldest_arrival_ms", oldest)

            def finished(self, *arguments: Any) -> bool:
                return _unless_broken(script, "finished", super().finished(*arguments))

        return Reader(self, checked_schema(self.schema, self.event_time))


def _unless_broken(script: Breakable, method: str, answer: Answer) -> Answer:
    if script.broken == method:
        raise SourceError("the disk is gone")
    return answer


@pytest.mark.parametrize("method", ["plan", "available_one", "oldest_arrival_ms", "finished"])
def test_a_source_that_breaks_stops_its_query_and_loses_nothing(
    spark: SparkSession, tmp_path: Path, method: str
) -> None:
    sink = sw.memory()
    app = counting(sink)
    records = {f"q{n}": records_of(n) for n in range(3)}
    scripts = {name: script_of(rows, Breakable) for name, rows in records.items()}
    bad = scripts["q1"]
    assert isinstance(bad, Breakable)
    with Runtime(spark, journal=tmp_path, clock=ManualClock(START_MS)) as runtime:
        for name, script in scripts.items():
            runtime.deploy(app, name, events=script)
        runtime.run(seconds=5)
        bad.broken = method
        with pytest.raises(QuarantinedError, match="1 of 3 queries are quarantined: q1: "):
            runtime.run()
        stopped = {r.name: r.quarantined for r in runtime.queries() if r.quarantined}
        assert stopped.keys() == {"q1"}
        assert "the disk is gone" in str(stopped["q1"])
        finished = {r.name for r in runtime.queries() if r.records == RECORDS}
        assert finished >= {"q0", "q2"}
        bad.broken = None
        runtime.resume("q1")
        runtime.run()
    assert_same_panes(sink.table(), expected(records))


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

    app = counting(sw.callback(stop_once))
    with Runtime(spark, clock=ManualClock(START_MS)) as runtime:
        runtime.deploy(app, "q", events=script_of(records_of(1)))
        runtime.run()
        assert not taken
        runtime.run()
        assert runtime.queries()[0].quarantined is None
    assert_each_pane_once(taken)
    assert_same_panes(pa.concat_tables(taken), expected({"q": records_of(1)}))


def test_to_resume_a_query_that_is_well_changes_nothing(spark: SparkSession) -> None:
    taken: list[pa.Table] = []

    def resume_amid_a_step(panes: pa.Table) -> None:
        runtime.resume("q")
        taken.append(panes)

    app = counting(sw.callback(resume_amid_a_step))
    with Runtime(spark, slots=2, clock=ManualClock(START_MS)) as runtime:
        runtime.deploy(app, "q", events=script_of(records_of(1)))
        runtime.run()
        report = runtime.queries()[0]
    assert report.records == RECORDS
    assert_each_pane_once(taken)
    assert_same_panes(pa.concat_tables(taken), expected({"q": records_of(1)}))


def test_nothing_that_fails_after_a_commit_makes_a_step_run_again(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A block that cannot be removed, an observer that raises: the results are the same."""
    remove, refused = disk.current.remove, []

    def sticky(path: str | os.PathLike[str]) -> None:
        if "slice=" in str(path):
            refused.append(path)
            raise OSError(16, "Device or resource busy", str(path))
        remove(path)

    class Nuisance:
        def step_committed(self, report: StepReport) -> None:
            raise ValueError(f"not pleased with step {report.step}")

    monkeypatch.setattr(disk.current, "remove", sticky)
    sink, records = sw.memory(), records_of(1)
    with Runtime(
        spark,
        journal=tmp_path / "journal",
        clock=ManualClock(START_MS),
        limits=Limits(journal_bytes=0),
    ) as runtime:
        runtime.observe(Nuisance())
        runtime.deploy(counting(sink), "q", events=script_of(records))
        runtime.run()
        (report,) = runtime.queries()
    assert refused
    assert report.records == RECORDS
    assert report.quarantined is None
    assert_same_panes(sink.table(), expected({"q": records}))
    assert "failed and is tried again" not in caplog.text
    assert "not pleased" in caplog.text


@pytest.mark.parametrize("reader", ["driver", "spark", "pages"])
def test_damaged_window_state_stops_its_query_until_the_file_is_put_back(
    spark: SparkSession, tmp_path: Path, reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads a block, the driver or Spark's executors: never are there other values."""
    limits = Limits(journal_bytes=0, window_rows=500_000 if reader == "driver" else 0)
    sink, records = sw.memory(), {name: records_of(n) for n, name in enumerate(("ill", "well"))}

    def deployed() -> Runtime:
        made = Runtime(
            spark, journal=tmp_path, clock=ManualClock(START_MS + 2_000), limits=limits, slots=1
        )
        for name, rows in records.items():
            made.deploy(counting(sink), name, events=script_of(rows))
        return made

    with deployed() as runtime:
        runtime.run(seconds=0.5)
    block = next((tmp_path / "blocks" / "query=0").rglob("*.parquet"))
    good = block.read_bytes()
    damaged, column = bytearray(good), pq.read_metadata(block).row_group(0).column(0)
    damaged[column.data_page_offset + column.total_compressed_size - 1] ^= 4
    block.write_bytes(damaged)
    if reader == "pages":  # as if it happened after the driver had looked: Spark has to see it
        monkeypatch.setattr(BlockStore, "check", lambda *_: None)
    with deployed() as runtime:
        with pytest.raises(QuarantinedError, match="1 of 2 queries are quarantined: ill: "):
            runtime.run()
        stopped = {r.name: r.quarantined for r in runtime.queries() if r.quarantined}
        assert stopped.keys() == {"ill"}
        assert block.name in str(stopped["ill"])
        if reader != "pages":
            assert "reset=True" in str(stopped["ill"])
        assert_same_panes(sink.table(), expected({"well": records["well"]}))
        block.write_bytes(good)
        runtime.resume("ill")
        runtime.run()
    assert_same_panes(sink.table(), expected(records))
