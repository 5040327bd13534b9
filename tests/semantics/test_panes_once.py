"""The panes of windows that Spark computes reach a sink together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import slackwater as sw
from slackwater.app.stream import App
from slackwater.runtime.emitting import PaneEmitter
from slackwater.runtime.placing import Limits
from slackwater.runtime.runtime import Runtime
from slackwater.spark.sinks.base import Sink
from slackwater.spark.sinks.parquet import parquet, read_panes
from slackwater.testing import ManualClock, Script, scripted

pytestmark = pytest.mark.spark

START_MS = 1_704_067_200_000
SCHEMA = "ts timestamp, k string, v bigint"
WINDOWS = [(second, 3) for second in (0, 2, 4)]  # each of two records, 1 and 2


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


def run(spark: SparkSession, journal: Path, sink: Sink, *queries: str, **options: Any) -> None:
    app = totals(sink)
    with Runtime(spark, journal=journal, clock=ManualClock(START_MS), **options) as runtime:
        for query in queries:
            runtime.deploy(app, query, events=records())
        runtime.run()
        assert [each.quarantined for each in runtime.queries()] == [None] * len(queries)


def test_a_step_of_large_windows_that_fails_halfway_shows_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of three panes fails twice: in the step as it is, and when it is retried."""
    out, compute = tmp_path / "out", PaneEmitter._frame
    calls: list[int] = []
    between: list[object] = []

    def fail_twice(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) in (2, 4):
            between.append(seen(out))
            raise RuntimeError("no memory")
        return compute(*arguments)

    monkeypatch.setattr(PaneEmitter, "_frame", fail_twice)
    run(spark, tmp_path / "journal", parquet(out), "a", "b", "c", limits=Limits(window_rows=0))
    assert between == [{}, {}]
    assert seen(out) == dict.fromkeys("abc", WINDOWS)
    modes = {path.stat().st_mode & 0o777 for path in out.iterdir()}
    assert modes == {0o600}
