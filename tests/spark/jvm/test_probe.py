"""Whether plans can be run again with other input is tried before anything relies on it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import slackwater as sw
from slackwater.spark.batches import PlannedBatches
from slackwater.spark.jvm import probe
from slackwater.spark.latebound import SpecificationCells
from slackwater.testing import ManualClock, scripted

pytestmark = pytest.mark.spark


@pytest.fixture
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the session be tried anew."""
    monkeypatch.setattr(probe, "_found", {})


@pytest.mark.usefixtures("untried")
def test_plans_can_be_run_again_on_this_spark(spark: SparkSession) -> None:
    assert probe.why_not_prepared(spark) is None


@pytest.mark.usefixtures("untried")
def test_a_row_that_is_not_serialised_anew_is_noticed_and_steps_are_rebuilt(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bind = SpecificationCells.bind
    bound: set[int] = set()

    def only_twice(cells: SpecificationCells, specifications: Sequence[str]) -> None:
        if id(cells) not in bound or specifications == ["[]"]:
            bind(cells, specifications)
        if specifications != ["[]"]:
            bound.add(id(cells))

    monkeypatch.setattr(SpecificationCells, "bind", only_twice)
    with caplog.at_level(logging.WARNING, logger="slackwater"):
        assert counted(spark) == [2, 2, 2]
        assert counted(spark) == [2, 2, 2]
    said = [each.message for each in caplog.records if "cannot be prepared" in each.message]
    assert len(said) == 1
    assert "gave the results of other input" in said[0]


@pytest.mark.usefixtures("untried")
def test_insides_that_have_changed_are_no_failure(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(batches: PlannedBatches) -> pa.Table:
        raise AttributeError("collectAsync")

    monkeypatch.setattr(PlannedBatches, "fetch", gone)
    assert "AttributeError: collectAsync" in (probe.why_not_prepared(spark) or "")


def counted(spark: SparkSession) -> list[int]:
    """Count scripted events in windows of ten seconds, a window a step."""
    events = scripted("ts timestamp", event_time="ts", watermark=sw.bounded("1 s"))
    for second in (1, 2, 11, 12, 21, 22):
        events.add(ts=f"2024-01-01 00:00:{second:02d}")
    events.end("2024-01-01 00:01:00")
    app, out = sw.App("t"), sw.memory()
    app.source("events").window(sw.tumbling("10 seconds")).aggregate(n=sw.count()).to(out)
    clock = ManualClock(events.first_arrival_ms)
    with sw.Runtime(spark, clock=clock) as rt:
        rt.deploy(app, "counts", events=events)
        rt.run()
    return [row["n"] for row in sorted(out.rows(), key=lambda row: row["window_start"])]
