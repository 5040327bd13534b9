"""Late events from their source to the last pane, or to the dead letters, as users wish."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import slackwater as sw
from slackwater.progress.distributions import LateDelay, LogNormalDelay
from slackwater.runtime.journal import Journal
from slackwater.runtime.ledger import read_content
from slackwater.spark.sinks.pane_tables import last_panes
from slackwater.testing import ManualClock

pytestmark = pytest.mark.spark

WINDOWS = 90
PER_WINDOW = 200


def test_windows_are_kept_as_long_as_is_learned_and_amended_when_stale(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Let a third of the events be late by windows, and ask for 95 of 100 to be counted."""
    sink, clock = sw.memory(), ManualClock("2024-01-01")
    app = sw.App("late")
    app.source("events").window(sw.tumbling("1 s")).aggregate(n=sw.count()).to(
        sink, lateness=sw.cover(0.95, start="22 s"), staleness=0.05
    )
    events = sw.generator(
        rate=PER_WINDOW,
        delay=LateDelay(0.33, LogNormalDelay(1_000, 1.0)),
        seconds=WINDOWS,
        start_ms=int(clock.now_ms()),
    )
    with sw.Runtime(
        spark, journal=tmp_path, durable=False, dead_letters="count", clock=clock
    ) as runtime:
        runtime.deploy(app, "q", events=events)
        runtime.run()
        [report] = runtime.queries()
    assert report.quarantined is None
    assert report.state_rows == 0
    panes = sink.table()
    last = last_panes(panes).to_pylist()
    # Every event is in its window's last pane or among those that came too late.
    assert sum(row["n"] for row in last) + report.too_late_rows == report.records
    assert report.records == WINDOWS * PER_WINDOW
    # Among windows that closed when the bound was known, 95 of 100 events were in time for it.
    state = read_content(Journal.read_only(tmp_path / "journal")).queries["q"].lateness
    assert state.bounds
    learned_ms = state.bounds[-1][1]
    assert 1_500 < learned_ms < 6_000  # the quantile of the distribution is 3.0 windows
    assert 0.005 < report.too_late_rows / report.records < 0.06
    # Fewer panes than steps that brought late events; the last pane of a window shows them all.
    timings = Counter((row["window_start"], row["timing"]) for row in panes.to_pylist())
    amended = sum(count for (_, timing), count in timings.items() if timing != "on_time")
    assert 1 < amended / WINDOWS < 12
    assert any(timing == "final" for _, timing in timings)
