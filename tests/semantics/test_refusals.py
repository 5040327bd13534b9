"""What a journal is refused for, and what the refusal says."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import slackwater as sw
from slackwater.app.results import Result
from slackwater.app.stream import App, Stream
from slackwater.errors import IncompatibleQueryError, JournalLockedError, JournalVersionError
from slackwater.runtime.runtime import Runtime
from slackwater.runtime.segments import VERSION
from slackwater.spark.sinks.pane_tables import last_panes
from slackwater.spark.sinks.parquet import read_panes
from slackwater.testing import ManualClock, Script, scripted

pytestmark = pytest.mark.spark

START_MS = 1_704_067_200_000
SCHEMA = "ts timestamp, k string, v bigint"

Description = Callable[[Stream], Result]


def plain(stream: Stream) -> Result:
    return stream.window(sw.tumbling("2 s"), by="k").aggregate(total=sw.sum("v"))


def run(
    spark: SparkSession,
    journal: Path,
    script: Script,
    description: Description = plain,
    *,
    reset: bool = False,
    lateness: str = "0 s",
) -> list[tuple[int, int, int]]:
    """Run to the end; return (second of the window, pane, total) of what was emitted."""
    app, sink = App("refusals"), sw.memory()
    description(app.source("events")).to(sink, lateness=lateness)
    with Runtime(spark, journal=journal, clock=ManualClock(START_MS)) as runtime:
        runtime.deploy(app, "q", reset=reset, events=script)
        runtime.run()
    rows = sink.rows()
    return sorted((row["window_start"].second, row["pane"], row["total"]) for row in rows)


def open_script(schema: str = SCHEMA) -> Script:
    """Write records that leave a window open, and do not end."""
    script = scripted(schema, event_time="ts")
    for second in range(4):
        script.add(ts=f"2024-01-01 00:00:{second:02d}", k="a", v=1 << second)
    return script


def test_a_journal_in_use_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with Runtime(spark, journal=tmp_path), pytest.raises(JournalLockedError):
        Runtime(spark, journal=tmp_path)
    Runtime(spark, journal=tmp_path).close()


def test_a_journal_of_a_newer_version_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    run(spark, tmp_path, open_script().end())
    segment = max((tmp_path / "journal").glob("segment-*.log"))
    content = bytearray(segment.read_bytes())
    content[4:6] = (VERSION + 1).to_bytes(2, "little")
    segment.write_bytes(content)
    with pytest.raises(JournalVersionError):
        Runtime(spark, journal=tmp_path)


CHANGES: dict[str, tuple[Description, str]] = {
    "windows": (
        lambda s: s.window(sw.sliding("2 s", "1 s"), by="k").aggregate(total=sw.sum("v")),
        "windows.slide_ms was 2000 and is now 1000",
    ),
    "keys": (
        lambda s: s.window(sw.tumbling("2 s")).aggregate(total=sw.sum("v")),
        "keys.k was string and is gone",
    ),
    "aggregates": (
        lambda s: s.window(sw.tumbling("2 s"), by="k").aggregate(total=sw.max("v")),
        "aggregates.total was sum('v') over bigint and is now max('v') over bigint",
    ),
    "a further aggregate": (
        lambda s: s.window(sw.tumbling("2 s"), by="k").aggregate(
            total=sw.sum("v"), rows=sw.count()
        ),
        "aggregates.rows is new",
    ),
    "a key's type": (
        lambda s: (
            s.transform(lambda df: df.selectExpr("_sw_query", "ts", "1 AS k", "v"))
            .window(sw.tumbling("2 s"), by="k")
            .aggregate(total=sw.sum("v"))
        ),
        "keys.k was string and is now int",
    ),
    "a further stage": (
        lambda s: plain(s).window(sw.tumbling("4 s")).aggregate(total=sw.sum("total")),
        "stages is new",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_description_is_refused_by_its_difference(
    spark: SparkSession, tmp_path: Path, change: str
) -> None:
    description, difference = CHANGES[change]
    script = open_script().end()
    run(spark, tmp_path, script)
    with pytest.raises(IncompatibleQueryError) as refusal:
        run(spark, tmp_path, script, description)
    assert difference in str(refusal.value)
    assert "reset=True" in str(refusal.value)


def chained(how: str, seconds: int) -> Description:
    """Describe a chain over a join of a stream with itself."""

    def describe(stream: Stream) -> Result:
        windows = stream.window(sw.tumbling("2 s"), by="k")
        joined = windows.aggregate(v=sw.sum("v")).join(
            windows.aggregate(n=sw.count()), on="k", how=how
        )
        return joined.window(sw.tumbling(f"{seconds} s")).aggregate(total=sw.sum("v"))

    return describe


@pytest.mark.parametrize(
    ("changed", "difference"),
    [
        (chained("left", 6), r"stages\[0\]\.windows\.size_ms was 4000 and is now 6000"),
        (chained("inner", 4), r"hows\[0\] was left and is now inner"),
        (plain, "legs was .* and is gone"),
    ],
)
def test_a_changed_chain_is_refused_by_its_difference(
    spark: SparkSession, tmp_path: Path, changed: Description, difference: str
) -> None:
    script = open_script().end()
    assert run(spark, tmp_path, script, chained("left", 4)) == [(0, 0, 15)]
    with pytest.raises(IncompatibleQueryError, match=difference):
        run(spark, tmp_path, script, changed)
    assert run(spark, tmp_path, script, chained("left", 4)) == []


def test_a_changed_schema_is_refused_by_its_difference(spark: SparkSession, tmp_path: Path) -> None:
    run(spark, tmp_path, open_script().end())
    with pytest.raises(IncompatibleQueryError, match=r"schema\.v was bigint and is now int"):
        run(spark, tmp_path, open_script("ts timestamp, k string, v int").end())


def test_a_reset_query_reads_everything_again(spark: SparkSession, tmp_path: Path) -> None:
    description, _ = CHANGES["windows"]
    script = open_script().end()
    assert run(spark, tmp_path, script) == [(0, 0, 3), (2, 0, 12)]
    assert run(spark, tmp_path, script) == []
    again = run(spark, tmp_path, script, description, reset=True)
    totals = {0: 3, 1: 6, 2: 12, 3: 8, 59: 1}
    assert again == [(second, 1_000_000, total) for second, total in totals.items()]
    assert run(spark, tmp_path, script, description) == []


KINDS: dict[str, Description] = {
    "tumbling": plain,
    "sessions": lambda stream: stream.window(sw.sessions("5 s"), by="k").aggregate(
        total=sw.sum("v")
    ),
}


@pytest.mark.parametrize(("kind", "lives"), [("tumbling", 3), ("sessions", 2)])
def test_what_a_reset_query_writes_stands_in_place_of_what_it_wrote_before(
    spark: SparkSession, tmp_path: Path, kind: str, lives: int
) -> None:
    script = open_script().end()
    for life, factor in enumerate((1, 10, 100)[:lives]):
        app, sink = App("lives"), sw.parquet(tmp_path / "results")
        scaled = app.source("events").transform(partial(_times, factor=factor))
        KINDS[kind](scaled).to(sink)
        with Runtime(spark, journal=tmp_path / "journal", clock=ManualClock(START_MS)) as runtime:
            runtime.deploy(app, "q", reset=life > 0, events=script)
            runtime.run()
        shown = last_panes(read_panes(tmp_path / "results"))
        assert sum(shown["total"].to_pylist()) == 15 * factor
        assert {pane // 1_000_000 for pane in shown["pane"].to_pylist()} == {life}


def _times(events: DataFrame, factor: int) -> DataFrame:
    return events.withColumn("v", events["v"] * factor)


def test_windows_that_are_over_stay_so_when_a_redeployment_raises_the_lateness(
    spark: SparkSession, tmp_path: Path
) -> None:
    script = open_script()
    app, sink = App("refusals"), sw.memory()
    plain(app.source("events")).to(sink)
    with Runtime(spark, journal=tmp_path, clock=ManualClock(START_MS)) as runtime:
        runtime.deploy(app, "q", events=script)
        runtime.run(seconds=5)
        assert runtime.queries()[0].panes == 1
    script.add(ts="2024-01-01 00:00:01", k="a", v=64, arrives="2024-01-01 00:00:06").end()
    assert run(spark, tmp_path, script, lateness="1 hour") == [(2, 0, 12)]
    with Runtime(spark, journal=tmp_path) as runtime:
        assert runtime.dead_letters.counts() == {("q", "too late"): 1}
