from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.cli.conftest import Invoke

import slackwater as sw
from slackwater.lateness.cleanup import Cover
from slackwater.lateness.observed import Seen, bin_of
from slackwater.lateness.state import Amendment, LatenessChange, LatenessWish
from slackwater.lateness.triggers import EveryEvents
from slackwater.progress.watermarks import Watermarks
from slackwater.runtime.keyed_state import SHOWN
from slackwater.runtime.ledger import Ledger
from slackwater.runtime.state import Counters, KeyedChange, QueryChange
from slackwater.sampling.audits import Audits
from slackwater.sampling.monitor import Monitor
from slackwater.spark.keyed_rows import FIRST, LAST
from slackwater.spark.sources.base import Range
from slackwater.testing import ManualClock, scripted

START_MS = 1_704_067_200_000  # 2024-01-01
WINDOWS = {"size_ms": 5_000, "slide_ms": 2_000, "offset_ms": 0, "spread": True}


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Path]:
    """Give the directory of a runtime that has planned a step and stopped another query."""
    ledger = Ledger(tmp_path, durable=False)
    first = ledger.introduce("clicks", {"windows": WINDOWS})
    second = ledger.introduce("[views]", {"windows": WINDOWS})
    ledger.plan({first.number: [(0, Range(partition=3, first=7, until=10, events=3))]})
    ledger.quarantine(second.number, "ValueError: no such [column]")
    yield tmp_path
    ledger.close()


def test_status_shows_the_sessions_that_are_held(invoke: Invoke, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, durable=False)
    sessions = {"kind": "SessionWindows", "gap_ms": 30_000, "size_ms": 30_000, "slide_ms": 30_000}
    query = ledger.introduce("visits", {"windows": sessions, "keys": {"user": "string"}})
    rows = pa.table({"user": ["ann"], FIRST: [0], LAST: [5_000_000], SHOWN: [False]})
    step, _ = ledger.plan({query.number: []})
    keyed = KeyedChange(1, (), rows)
    change = QueryChange(
        query.number, {}, Watermarks({}, 6_000), {}, None, (), {}, {}, Counters(), keyed=keyed
    )
    ledger.commit(step, [change], [])
    report = json.loads(invoke("status", tmp_path, "--json").stdout)
    visits = by_name(report)["visits"]
    assert (visits["windows"], visits["state_rows"]) == ("sessions 30 s", 1)
    held = {"start_ms": 0, "end_ms": 35_000, "panes": 0, "state_rows": 1}
    assert visits["open_windows"] == [held]
    assert "sessions 30 s" in invoke("status", tmp_path).stdout
    ledger.close()


def test_status_says_what_was_asked_of_a_sampled_query_and_what_is_kept(
    invoke: Invoke, tmp_path: Path
) -> None:
    audits = Audits(audited=20, held=19, caution=1.15, doubted=True)
    learned = Monitor(windows=9, audits=audits, sampled_share=0.125).to_json()
    ledger = Ledger(tmp_path, durable=False)
    for name, asked in (("views", [0.05, 0.95, None]), ("groups", [0.1, 0.9, 0.01])):
        query = ledger.introduce(name, {"windows": WINDOWS})
        step, _ = ledger.plan({query.number: []})
        change = QueryChange(
            query.number,
            {},
            Watermarks({}, 6_000),
            {},
            None,
            (),
            {},
            {},
            Counters(),
            sampling=learned | {"asked": asked},
        )
        ledger.commit(step, [change], [])
    views = by_name(json.loads(invoke("status", tmp_path, "--json").stdout))["views"]["bounds"]
    assert (views["error"], views["confidence"], views["groups"]) == (0.05, 0.95, None)
    assert (views["sampled_share"], views["coverage"]) == (0.125, 0.95)
    page = [" ".join(line.split()) for line in invoke("status", tmp_path).stdout.splitlines()]
    assert "views 5.0% at 95.0%, the total 12.5% 20 95.0% 1.15" in page
    assert "groups 10.0% at 90.0%, groups of 1.00% or more, one rate 12.5% 20 95.0% 1.15" in page
    (doubt,) = [line for line in page if line.startswith("doubted: views")]
    assert "19 of 20" in doubt
    assert "met = false" in doubt
    ledger.close()


def test_status_says_why_windows_are_kept(invoke: Invoke, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, durable=False)
    windows = {"size_ms": 10_000, "slide_ms": 10_000, "offset_ms": 0, "spread": False}
    query = ledger.introduce("q", {"windows": windows})
    ledger.remember_wish(query.number, LatenessWish(Cover(0.99, 0.95, 60_000), EveryEvents(9)))
    rows = pa.table({"n__n": [1]})
    late = LatenessChange(
        Seen(90, {bin_of(4_000): 10}, 8),
        since_ms=0,
        bounds=((20_000, 5_000),),
        amendments={10_000: Amendment(20_000, 7, 7)},
    )
    step, _ = ledger.plan({query.number: []})
    added = {10_000: rows, 20_000: rows, 30_000: rows}
    change = QueryChange(
        query.number,
        {},
        Watermarks({}, 34_000),
        {10_000: 1, 20_000: 1},
        None,
        (),
        added,
        {},
        Counters(),
        lateness=late,
    )
    ledger.commit(step, [change], [])
    report = json.loads(invoke("status", tmp_path, "--json").stdout)
    kept = by_name(report)["q"]["kept_windows"]
    assert [each["start_ms"] for each in kept] == [10_000, 20_000]
    first, second = kept
    assert first["kept_until_ms"] == 80_000
    assert first["why"] == "late events, 60 s (to cover 99 % of events with 95 %, to begin with)"
    assert (first["late_events"], first["waiting"]) == (7, 7)
    assert first["next_execution_ms"] <= 80_000
    assert second["kept_until_ms"] == 35_000
    assert "learned" in second["why"]
    text = invoke("status", tmp_path).stdout
    assert "kept windows of" in text
    assert "10.00 % of events were late" in text
    ledger.close()


def by_name(report: dict[str, Any]) -> dict[str, Any]:
    return {query["name"]: query for query in report["queries"]}


@pytest.mark.spark
def test_status_counts_everything_that_a_run_left_in_its_journal(
    invoke: Invoke, journal: Path
) -> None:
    result = invoke("status", journal, "--json")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    query = by_name(report)["counts"]
    assert report["process"] is None
    assert query["offsets"] == [{"input": 0, "partition": 0, "next": 43}]
    assert query["watermark_ms"] == START_MS + 37_000
    assert query["pending"] == []
    assert query["counters"]["records"] == 43
    assert query["counters"]["rejected"] == 1
    assert query["counters"]["too_late_rows"] == 1
    letters = {
        (filed["query"], filed["reason"]): filed["count"] for filed in report["dead_letters"]
    }
    assert letters == {("counts", "malformed"): 1, ("counts", "too late"): 1}
    assert report["steps_with_letters_to_file"] == 0


@pytest.mark.spark
def test_status_lists_windows_that_wait_to_close_and_that_late_events_may_amend(
    invoke: Invoke, journal: Path
) -> None:
    report = json.loads(invoke("status", journal, "--json").stdout)
    windows = by_name(report)["counts"]["open_windows"]
    found = {window["start_ms"] - START_MS: window["panes"] for window in windows}
    assert found == {20_000: 2, 30_000: 0}
    assert all(window["state_rows"] > 0 for window in windows)


@pytest.mark.spark
def test_status_prints_a_readable_page(invoke: Invoke, journal: Path) -> None:
    page = invoke("status", journal).stdout
    for piece in (
        "not in use",
        "10 s",
        "2024-01-01 00:00:37.000",
        "2024-01-01 00:00:20.000",
        "dead letters: counts: 1 malformed",
    ):
        assert piece in page


def test_status_of_a_journal_in_use_leaves_its_lock_alone(invoke: Invoke, live: Path) -> None:
    result = invoke("status", live)
    assert result.exit_code == 0
    assert "in use by process" in result.stdout
    assert "quarantined: [views]: ValueError: no such [column]" in result.stdout
    assert "steps of 1 queries, running now" in result.stdout


def test_status_tells_what_a_planned_step_reads(invoke: Invoke, live: Path) -> None:
    queries = by_name(json.loads(invoke("status", live, "--json").stdout))
    ranges = [{"input": 0, "partition": 3, "first": 7, "until": 10, "records": 3}]
    assert queries["clicks"]["pending"] == ranges
    assert queries["[views]"]["quarantined"] == "ValueError: no such [column]"
    assert queries["clicks"]["watermark_ms"] is None
    assert queries["clicks"]["offset_ms"] != queries["[views]"]["offset_ms"]


def test_status_takes_the_inner_directory_too(invoke: Invoke, live: Path) -> None:
    outer, inner = (invoke("status", at, "--json").stdout for at in (live, live / "journal"))
    assert by_name(json.loads(outer)) == by_name(json.loads(inner))


def test_status_changes_nothing(invoke: Invoke, live: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in live.rglob("*")}
    invoke("status", live)
    assert {path: path.stat().st_mtime_ns for path in live.rglob("*")} == before


@pytest.mark.parametrize("name", [".", "missing", "file"])
def test_status_of_what_is_no_journal_says_so_in_one_line(
    invoke: Invoke, tmp_path: Path, name: str
) -> None:
    (tmp_path / "file").touch()
    result = invoke("status", tmp_path / name)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert "holds no journal" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.spark
@pytest.mark.parametrize("lateness", ["1 hour", sw.cover(0.99, start="1 hour")])
def test_late_events_are_counted_by_their_windows_whatever_was_wished_of_them(
    spark: SparkSession, invoke: Invoke, tmp_path: Path, lateness: Any
) -> None:
    events = scripted("ts timestamp, user string", event_time="ts", watermark=sw.bounded("0 s"))
    events.add(ts="2024-01-01 00:00:01", user="a").add(ts="2024-01-01 00:00:20", user="a")
    for minute in range(1, 4):  # each in a step of its own, and so a pane
        for user in "ab":
            events.add(ts="2024-01-01 00:00:05", user=user, arrives=f"2024-01-01 00:0{minute}:00")
    events.end("2024-01-02 00:00:00")
    app = sw.App("t")
    windows = app.source("events").window(sw.tumbling("10 seconds"), by="user")
    windows.aggregate(n=sw.count()).to(sw.memory(), lateness=lateness)
    clock = ManualClock(events.first_arrival_ms)
    with sw.Runtime(spark, journal=tmp_path, clock=clock) as rt:
        rt.deploy(app, "q", events=events)
        rt.run(seconds=600)
    (query,) = json.loads(invoke("status", tmp_path, "--json").stdout)["queries"]
    (first,) = [it for it in query["kept_windows"] if it["start_ms"] == 1_704_067_200_000]
    (pane,) = [it for it in query["open_windows"] if it["start_ms"] == 1_704_067_200_000]
    assert (first["late_events"], first["waiting"], pane["panes"]) == (6, 0, 4)
