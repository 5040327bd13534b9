"""K-Slack waits for as long as the slowest record has taken so far, and remembers it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import slackwater as sw
from slackwater.runtime.reports import PaneReport, StepReport
from slackwater.testing import ManualClock, Script, scripted

START_MS = 1_704_067_200_000  # on an edge of windows


class Panes:
    def __init__(self) -> None:
        self.seen: list[PaneReport] = []

    def step_committed(self, report: StepReport) -> None:
        self.seen += report.panes


def script() -> Script:
    #   arrives    0    2.5   3.2    4.9   5.1      12
    #   event      0    0.5   3.2    2.9   5.1      12
    #   slack      0    2.0   2.0    2.0   2.0      2.0
    #   watermark  0   -1.5   1.2    1.2   3.1      10
    source = scripted("ts timestamp, v double", event_time="ts", watermark=sw.k_slack())
    for event_s, arrival_s in ((0, 0), (0.5, 2.5), (3.2, 3.2), (2.9, 4.9), (5.1, 5.1), (12, 12)):
        moment = f"2024-01-01T00:00:{event_s:06.3f}Z"
        source.add(ts=moment, v=1.0, arrives=START_MS + arrival_s * 1_000)
    return source.end()


@pytest.mark.spark
def test_a_window_waits_for_the_longest_delay_seen(spark: SparkSession, tmp_path: Path) -> None:
    app, sink, panes = sw.App("slack"), sw.memory(), Panes()
    app.source("events").window(sw.tumbling("3 s")).aggregate(n=sw.count()).to(sink)
    with sw.Runtime(spark, journal=tmp_path, clock=ManualClock(START_MS), slots=1) as runtime:
        runtime.deploy(app, "test", events=script())
        runtime.observe(panes)
        runtime.run()
        (report,) = runtime.queries()
    assert report.quarantined is None
    assert report.too_late_rows == 0
    first = panes.seen[0]
    assert first.window_end_ms == START_MS + 3_000
    assert first.committed_ms >= START_MS + 5_100
    rows = sorted(sink.rows(), key=lambda row: row["window_start"])
    assert [row["n"] for row in rows] == [3, 2, 1]
