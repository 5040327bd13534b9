from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from slackwater_lab.bench.stock import (
    batch_end_ms,
    batches,
    better,
    emitted,
    moment_ms,
    start,
)
from slackwater_lab.workloads import ysb
from slackwater_lab.workloads.ticks import TickStream
from slackwater_lab.workloads.ysb import Ysb

START_MS = 1_700_000_000_000


def batch(watermark: str, *, timestamp: str = "2024-01-01T00:00:10.000Z", took: int = 300) -> Any:
    return {
        "timestamp": timestamp,
        "durationMs": {"addBatch": took - 50, "triggerExecution": took},
        "eventTime": {"watermark": watermark},
    }


def test_a_window_is_out_when_the_first_batch_whose_watermark_reaches_its_end_is_committed() -> (
    None
):
    end_ms = int(moment_ms("2024-01-01T00:00:09.000Z"))
    reports = [
        batch("2024-01-01T00:00:08.999Z"),
        batch("2024-01-01T00:00:09.000Z", timestamp="2024-01-01T00:00:11.000Z", took=250),
        batch("2024-01-01T00:00:12.000Z", timestamp="2024-01-01T00:00:12.000Z"),
    ]
    assert emitted(reports, [end_ms]) == {end_ms: moment_ms("2024-01-01T00:00:11.250Z")}
    assert emitted(reports[:1], [end_ms]) == {}


def test_triggers_without_a_batch_are_no_batches() -> None:
    idle = batch("2024-01-01T00:00:09.000Z") | {"durationMs": {"triggerExecution": 4}}
    unborn = batch("") | {"eventTime": {}}
    assert batches([idle, unborn]) == []


def test_a_batch_ends_when_its_trigger_does() -> None:
    assert batch_end_ms(batch("")) == moment_ms("2024-01-01T00:00:10.300Z")


def test_the_better_trigger_is_the_faster_one_that_fired_at_all() -> None:
    slow, fast, dead = {"mean_ms": 9.0}, {"mean_ms": 5.0}, {"mean_ms": None}
    assert better([slow, fast, dead]) is fast
    assert better([dead, slow]) is slow


@pytest.mark.spark
def test_each_batch_emits_just_the_windows_that_its_watermark_has_passed(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = ysb.events(rate=200, delay="uniform", seed=1, query=1, start_ms=START_MS)
    stream = TickStream(spark, source, query=1)
    seen: dict[int, dict[int, int]] = defaultdict(dict)

    def note(rows: DataFrame, batch_id: int) -> None:
        sums = rows.groupBy("window.end").sum("count").collect()
        seen[batch_id] = {int(end.timestamp() * 1_000): views for end, views in sums}

    [grid] = Ysb().grids("spread", 1)
    frame = Ysb().streaming_frame(
        {"events": stream.frame()}, stream.lag_ms, grids=[grid], variant=0
    )
    query = start(frame.writeStream.foreachBatch(note), "0 seconds", tmp_path / "checkpoint")
    stream.begin(START_MS)
    try:
        for second in (1, 4, 5, 12):
            stream.feed(START_MS + second * 1_000)
            query.processAllAvailable()
        reports = query.recentProgress
    finally:
        query.stop()
    ends = [grid.next_end(START_MS + back * 3_000) for back in range(-1, 6)]
    expected: dict[int, set[int]] = defaultdict(set)
    for end_ms, out_ms in emitted(reports, ends).items():
        [batch_id] = {r["batchId"] for r in batches(reports) if batch_end_ms(r) == out_ms}
        expected[batch_id].add(end_ms)
    emitting = {batch_id: set(windows) for batch_id, windows in seen.items() if windows}
    assert emitting == {batch_id: windows for batch_id, windows in expected.items() if windows}
    assert sum(len(windows) for windows in emitting.values()) >= 3
    assert stream.records_until(batches(reports)[-1]["sources"][0]["endOffset"]) == 2_401


@pytest.mark.spark
def test_structured_streaming_sees_the_events_that_slackwater_sees(spark: SparkSession) -> None:
    source = ysb.events(rate=500, delay="zipf", seed=3, query=0, start_ms=START_MS)
    reader = source.open(spark)
    [piece] = reader.plan({}, START_MS + 2_000, 10**9)
    entries = spark.createDataFrame([(reader.entry(0, piece),)], f"r {reader.entry_type}")
    ours = reader.expand(entries).sort("_sw_offset")
    stream = TickStream(spark, source, query=0)
    stream.begin(START_MS)
    query = stream.frame().writeStream.format("memory").queryName("bench_ticks").start()
    try:
        for passed_ms in (400, 700, 2_000):
            stream.feed(START_MS + passed_ms)
        query.processAllAvailable()
        theirs = spark.table("bench_ticks").sort("_sw_offset").collect()
    finally:
        query.stop()
        spark.catalog.dropTempView("bench_ticks")
    assert theirs == ours.collect()
