"""Every record is used once or explained once: nothing is counted twice, nothing disappears."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import slackwater as sw
from slackwater.app.stream import App
from slackwater.runtime.runtime import Runtime
from slackwater.scheduling.policies import policy_named
from slackwater.scheduling.snapshot import Decision, FleetSnapshot
from slackwater.spark.sinks.memory import MemorySink
from slackwater.testing import ManualClock, Script, run_app, scripted

pytestmark = pytest.mark.spark

START_MS = 1_704_067_200_000
SCHEMA = "ts timestamp, bit bigint"


@dataclass(frozen=True)
class InSmallSteps:
    """Choose as a policy does, and read at most so many records a step."""

    policy: str
    most: int
    name: str = "in small steps"

    def decide(self, fleet: FleetSnapshot) -> Decision:
        found = policy_named(self.policy).decide(fleet)
        return Decision(tuple(replace(step, max_events=self.most) for step in found.steps))


def script() -> tuple[Script, dict[int, str], dict[tuple[int, int], int]]:
    """Write records of every fate; return what should become of each, and each one's place."""
    records = scripted(
        SCHEMA, event_time="ts", watermark=sw.bounded("1 s"), partitions=2, max_ahead="5 s"
    )
    fates: dict[int, str] = {}
    places: dict[tuple[int, int], int] = {}

    def add(fate: str, at_s: float, time_s: float | None, partition: int) -> None:
        number = len(fates)
        fates[number] = fate
        places[partition, len(records.lanes[partition].records)] = number
        when_ms = START_MS + int(at_s * 1_000)
        if fate == "malformed":
            line = ('{"ts": "2024-01-01 00:00:00", "bit": "x', '["no object"]', '{"ts": 17}')
            records.add_line(line[number % 3], arrives=when_ms, partition=partition)
            return
        values: dict[str, Any] = {"bit": 1 << number}
        if time_s is not None:
            values["ts"] = _text(time_s)
        records.add(arrives=when_ms, partition=partition, **values)

    for second in range(12):
        add("used", second, second, 0)
        add("used", second, second, 1)
        add("malformed", second, None, second % 2)
        if second % 4 == 1:
            add("no event time", second, None, 0)
            add("ahead of time", second, second + 6, 1)
            add("used", second, second - 1, 0)  # within the bound
        if second > 8:
            add("too late", second, 0.5, 0)
            add("used", second, second - 3, 1)  # within the lateness
    return records.end(), fates, places


def _text(time_s: float) -> str:
    minute, second = divmod(time_s, 60)
    return f"2024-01-01 00:{int(minute):02d}:{second:06.3f}"


@pytest.mark.parametrize(
    ("policy", "most", "slots"),
    [("deadline", 1_000, 1), ("default", 12, 2), ("fcfs", 4, 1), ("round_robin", 20, 2)],
)
def test_each_record_is_in_one_window_or_among_the_dead_letters_with_its_reason(
    spark: SparkSession, tmp_path: Path, policy: str, most: int, slots: int
) -> None:
    app, sink = App("accounting"), sw.memory()
    bits = app.source("events").window(sw.tumbling("2 s"))
    bits.aggregate(n=sw.count(), bits=sw.sum("bit")).to(sink, lateness="3 s")
    records, fates, places = script()
    with Runtime(
        spark,
        journal=tmp_path,
        durable=False,
        slots=slots,
        policy=InSmallSteps(policy, most),
        clock=ManualClock(START_MS),
    ) as runtime:
        runtime.deploy(app, "q0", events=records)
        runtime.deploy(app, "q1", events=records)
        runtime.run()
        reports = runtime.queries()
        letters = runtime.dead_letters.read().to_pylist()

    for report in reports:
        used = _used(sink, report.name)
        mine = [letter for letter in letters if letter["query"] == report.name]
        explained = {places[x["partition"], x["offset"]]: x["reason"] for x in mine}
        assert len(mine) == len(explained)
        assert {**dict.fromkeys(used, "used"), **explained} == fates
        assert not used & explained.keys()
        assert report.records == len(fates)
        counts = Counter(explained.values())
        assert report.too_late_rows == counts.pop("too late", 0)
        assert report.rejected == counts.total()


def _used(sink: MemorySink, query: str) -> set[int]:
    """Read from sums of powers of two which records are in a last pane, and that each is once."""
    used: set[int] = set()
    for row in sink.last_panes().to_pylist():
        if row["query"] == query:
            found = {number for number in range(63) if row["bits"] >> number & 1}
            assert row["n"] == len(found)
            assert not used & found
            used |= found
    return used


def test_a_row_that_loses_its_event_time_in_a_transform_is_a_dead_letter(
    spark: SparkSession, tmp_path: Path
) -> None:
    def sometimes_timeless(df: DataFrame) -> DataFrame:
        return df.withColumn("ts", F.expr("IF(bit = 2, NULL, ts)"))

    app, sink = App("timeless"), sw.memory()
    stream = app.source("events").transform(sometimes_timeless)
    stream.window(sw.sliding("1 s", "2 s")).aggregate(bits=sw.sum("bit")).to(sink)
    records = scripted(SCHEMA, event_time="ts")
    for number in range(4):
        records.add(ts=_text(number), bit=1 << number)
    report = run_app(spark, app, events=records, runtime={"journal": tmp_path})[0]
    assert report.quarantined is None
    assert (report.records, report.rejected) == (4, 1)
    assert [row["bits"] for row in sink.rows()] == [1, 4]  # the fourth is in the gap
    with Runtime(spark, journal=tmp_path) as runtime:
        letter = runtime.dead_letters.read().to_pylist()[0]
    assert (letter["offset"], letter["reason"]) == (1, "no event time")


def test_too_late_rows_of_a_union_are_filed_where_only_one_side_selects_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    app, sink = App("union"), sw.memory()
    narrow = app.source("one").transform(lambda df: df.select("_sw_query", "bit", "ts"))
    stream = narrow.union(app.source("two"))
    stream.window(sw.tumbling("1 s")).aggregate(bits=sw.sum("bit")).to(sink)
    scripts = []
    for bit in (1, 2):
        records = scripted(SCHEMA, event_time="ts").add(ts=_text(0), bit=bit)
        records.add(ts=_text(5), bit=bit)
        scripts.append(records.add(ts=_text(0.5), bit=bit, arrives="2024-01-01 00:00:06"))
    settings = {"journal": tmp_path}
    report = run_app(spark, app, one=scripts[0], two=scripts[1], runtime=settings)[0]
    assert report.too_late_rows == 2
    with Runtime(spark, journal=tmp_path) as runtime:
        letters = runtime.dead_letters.read().to_pylist()
    # The side that selects its columns away can no longer say where a record came from.
    places = {(letter["partition"], letter["offset"], letter["reason"]) for letter in letters}
    assert places == {(None, None, "too late"), (0, 2, "too late")}


@pytest.mark.parametrize("kind", ["results", "rows"])
def test_too_late_and_timeless_rows_of_a_join_are_filed_with_their_place_and_content(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    app, sink, second = App("join"), sw.memory(), sw.tumbling("1 s")
    left = app.source("one").transform(
        lambda df: df.selectExpr("*", "bit AS a").drop("bit").where("a IS NOT NULL")
    )
    right = app.source("two").transform(
        lambda df: df.selectExpr("IF(bit = 4, NULL, ts) AS ts", "* EXCEPT (ts)")
    )
    left, right = (s.transform(lambda df: df.withColumn("k", F.lit(1))) for s in (left, right))
    if kind == "results":
        sides = left.window(second, by="k").aggregate(bits=sw.sum("a"))
        joined = sides.join(right.window(second, by="k").aggregate(others=sw.sum("bit")), on="k")
    else:
        rows = left.window(second).join(right.window(second), on="k")
        joined = rows.aggregate(bits=sw.sum("a"), others=sw.sum("bit"))
    joined.to(sink)
    scripts = []
    for bit in (1, 2):
        records = scripted(SCHEMA, event_time="ts").add(ts=_text(0), bit=bit)
        records.add(ts=_text(5), bit=2 * bit)
        scripts.append(records.add(ts=_text(0.5), bit=64 * bit, arrives="2024-01-01 00:00:06"))
    settings = {"journal": tmp_path}
    report = run_app(spark, app, one=scripts[0], two=scripts[1], runtime=settings)[0]
    assert report.quarantined is None
    assert (report.too_late_rows, report.rejected) == (2, 1)
    assert [(row["bits"], row["others"]) for row in sink.rows()] == [(1, 2)]
    with Runtime(spark, journal=tmp_path) as runtime:
        letters = runtime.dead_letters.read().to_pylist()
    assert sorted((x["offset"], x["reason"]) for x in letters) == [
        (1, "no event time"),
        (2, "too late"),
        (2, "too late"),
    ]
    content = [x["record"] for x in letters if x["reason"] == "too late"]
    assert all(any(number in record for record in content) for number in ("64", "128"))


def test_a_record_far_in_the_future_does_not_move_time(spark: SparkSession) -> None:
    app, sink = App("future"), sw.memory()
    app.source("events").window(sw.tumbling("1 s")).aggregate(n=sw.count()).to(sink)
    records = scripted(SCHEMA, event_time="ts", max_ahead="1 s")
    records.add(ts=_text(0), bit=1)
    records.add(ts="2031-01-01 00:00:00", bit=2, arrives="2024-01-01 00:00:00")
    records.add(ts=_text(0.2), bit=4, arrives="2024-01-01 00:00:01")
    report = run_app(spark, app, events=records)[0]
    assert (report.rejected, report.too_late_rows) == (1, 0)
    assert [(row["n"], row["pane"]) for row in sink.rows()] == [(2, 0)]


def test_a_watermark_announced_far_in_the_future_does_not_move_time(
    spark: SparkSession, tmp_path: Path
) -> None:
    app, sink = App("announced"), sw.memory()
    app.source("events").window(sw.tumbling("1 s")).aggregate(n=sw.count()).to(sink)
    announced = sw.punctuated("CASE WHEN bit = 2 THEN ts + INTERVAL 1 YEAR ELSE ts END")
    records = scripted(SCHEMA, event_time="ts", watermark=announced)
    for number in range(4):
        records.add(ts=_text(number / 4), bit=1 << number)
    report = run_app(spark, app, events=records, runtime={"journal": tmp_path})[0]
    assert (report.rejected, report.too_late_rows) == (1, 0)
    assert [(row["n"], row["pane"]) for row in sink.rows()] == [(3, 0)]
    with Runtime(spark, journal=tmp_path) as runtime:
        assert runtime.dead_letters.counts() == {("test", "ahead of time"): 1}


def test_dead_letters_of_a_query_that_is_not_deployed_wait_for_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(batch: str, rows: pa.Table) -> None:
        raise OSError("no space left on device")

    app, sink = App("waiting"), sw.memory()
    app.source("events").window(sw.tumbling("1 s")).aggregate(n=sw.count()).to(sink)
    records = scripted(SCHEMA, event_time="ts").add(ts=_text(0), bit=1).add_line("{broken").end()
    settings: dict[str, Any] = {"journal": tmp_path, "clock": ManualClock(START_MS)}
    with Runtime(spark, **settings) as runtime:
        monkeypatch.setattr(runtime.dead_letters, "write", full)
        runtime.deploy(app, "absent", events=records)
        runtime.run()
        assert runtime.dead_letters.counts() == {}
    with Runtime(spark, **settings) as runtime:
        runtime.deploy(app, "present", events=records)
        runtime.run()
        assert runtime.dead_letters.counts() == {("present", "malformed"): 1}
        runtime.deploy(app, "absent", events=records)
        runtime.run()
        assert runtime.dead_letters.counts() == {
            ("present", "malformed"): 1,
            ("absent", "malformed"): 1,
        }
