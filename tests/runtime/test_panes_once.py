"""Panes reach a sink once and together, and what a sink could not take is refused in time.

Everything is real but the steps, which plain Python computes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType
from tests.faults.arrow_steps import without_spark

import slackwater as sw
from slackwater.app.stream import App
from slackwater.errors import JournalError, SinkError
from slackwater.runtime.emitting import PaneEmitter
from slackwater.runtime.ledger import Ledger
from slackwater.runtime.placing import Limits
from slackwater.runtime.runtime import Runtime
from slackwater.spark.sinks.base import Sink
from slackwater.spark.sinks.parquet import parquet, read_panes
from slackwater.testing import ManualClock, Script, scripted

START_MS = 1_704_067_200_000
SCHEMA = StructType(
    [
        StructField("ts", TimestampType()),
        StructField("k", StringType()),
        StructField("v", LongType()),
    ]
)
WINDOWS = [(second, 3) for second in (0, 2, 4)]  # each of two records, 1 and 2


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> Any:
    return without_spark(monkeypatch)


def records() -> Script:
    script = scripted(SCHEMA, event_time="ts")
    for second in range(6):
        script.add(ts=f"2024-01-01 00:00:{second:02d}", k="a", v=1 + second % 2)
    return script.end()


def totals(sink: Sink, **more: Any) -> App:
    app = App("totals")
    stream = app.source("events").window(sw.tumbling("2 s"), by="k")
    stream.aggregate(total=sw.sum("v"), **more).to(sink)
    return app


def seen(directory: Path) -> dict[str, list[tuple[int, int]]]:
    """Return second and total of each row, by query."""
    found: dict[str, list[tuple[int, int]]] = {}
    for row in read_panes(directory).to_pylist():
        found.setdefault(row["query"], []).append((row["window_start"].second, row["total"]))
    return {query: sorted(rows) for query, rows in found.items()}


def run(no_spark: Any, journal: Path, sink: Sink, *queries: str, **options: Any) -> None:
    app = totals(sink)
    with Runtime(no_spark, journal=journal, clock=ManualClock(START_MS), **options) as runtime:
        for query in queries:
            runtime.deploy(app, query, events=records())
        runtime.run()
        assert [each.quarantined for each in runtime.queries()] == [None] * len(queries)


@pytest.mark.parametrize("away", ["away", "away#exact"])  # which ends as our own names do
def test_a_step_written_but_not_committed_is_seen_once_however_late_its_query_returns(
    no_spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, away: str
) -> None:
    sink, journal = parquet(tmp_path / "out", roll_writes=1), tmp_path / "journal"

    commit = Ledger.commit

    def fail(*arguments: Any) -> Any:
        if seen(tmp_path / "out"):
            raise JournalError("the disk is gone")
        return commit(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "commit", fail)
        with pytest.raises(JournalError, match="the disk is gone"):
            run(no_spark, journal, sink, away, "beside")
    assert set(seen(tmp_path / "out")) == {away, "beside"}
    for number in range(3):  # alone, without the query that is away
        run(no_spark, journal, sink, *(f"other-{number}-{each}" for each in range(2)))
    run(no_spark, journal, sink, away)
    run(no_spark, journal, sink, "beside", away)
    found = seen(tmp_path / "out")
    assert len(found) == 8
    assert set(map(tuple, found.values())) == {tuple(WINDOWS)}


def test_a_step_that_fails_halfway_shows_nothing(
    no_spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of three panes fails twice: in the step as it is, and when it is retried."""
    out, compute = tmp_path / "out", PaneEmitter._small_panes
    calls: list[int] = []
    between: list[object] = []

    def fail_twice(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) in (2, 4):
            between.append(seen(out))
            raise RuntimeError("no memory")
        return compute(*arguments)

    monkeypatch.setattr(PaneEmitter, "_small_panes", fail_twice)
    monkeypatch.setattr(PaneEmitter, "_groups", lambda _, windows: ([each] for each in windows))
    run(no_spark, tmp_path / "journal", parquet(out), "a", "b", "c")
    assert between == [{}, {}]
    assert seen(out) == dict.fromkeys("abc", WINDOWS)


def test_a_runtime_keeps_its_files_to_itself(no_spark: Any, tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        for shared in (False, True):
            journal = tmp_path / f"shared-{shared}"
            limits = Limits(journal_bytes=1)  # state goes to files
            script = records().add(ts="2024-01-01 00:00:09", k="a", v=1)
            script.add(ts=None, k="a", v=1)  # a dead letter
            app = totals(sw.memory())
            with Runtime(
                no_spark, journal=journal, clock=ManualClock(START_MS), limits=limits, shared=shared
            ) as runtime:
                runtime.deploy(app, "q", events=script)
                runtime.run()
            found = {path: path.stat().st_mode & 0o777 for path in journal.rglob("*")}
            found[journal] = journal.stat().st_mode & 0o777
            assert {path.suffix for path in found} >= {".log", ".parquet"}
            wanted = (0o755, 0o644) if shared else (0o700, 0o600)
            assert found == {path: wanted[path.is_file()] for path in found}
    finally:
        os.umask(old)


def test_what_a_sink_could_not_take_is_refused_at_deployment(no_spark: Any, tmp_path: Path) -> None:
    out, journal = parquet(tmp_path / "out"), tmp_path / "journal"
    (tmp_path / "file").touch()
    with Runtime(no_spark, journal=journal, clock=ManualClock(START_MS)) as runtime:
        with pytest.raises(SinkError, match=r"parquet\(path\)=.*file is a file: name a directory"):
            runtime.deploy(totals(parquet(tmp_path / "file")), "q", events=records())
        two = App("two")
        stream = two.source("events").window(sw.tumbling("2 s"), by="k")
        stream.aggregate(total=sw.sum("v")).to(out, name="one")
        stream.aggregate(totals=sw.sum("v")).to(out, name="other")
        with pytest.raises(
            SinkError,
            match=r"two.*other.*: no column 'total', a new column 'totals': write outputs",
        ):
            runtime.deploy(two, "two", events=records())
        # Nothing of what was refused is left: other columns may be written there now.
        runtime.deploy(totals(out, n=sw.count()), "q", events=records())
        memory = sw.memory()
        runtime.deploy(totals(memory), "in memory", events=records())
        with pytest.raises(SinkError, match="a new column 'n'"):
            runtime.deploy(totals(memory, n=sw.count()), "more", events=records())
        runtime.run()
        assert len(runtime.queries()) == 2
    with (
        Runtime(no_spark, journal=journal, clock=ManualClock(START_MS)) as runtime,
        pytest.raises(SinkError, match=r"other columns than those in .*/out: no column 'n'"),
    ):
        runtime.deploy(totals(out), "q", reset=True, events=records())
    assert seen(tmp_path / "out") == {"q": WINDOWS}
