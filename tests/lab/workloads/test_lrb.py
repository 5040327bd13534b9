from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import slackwater as sw
from slackwater.testing import ManualClock
from slackwater_lab.bench.stock import batch_end_ms, batches, emitted, start
from slackwater_lab.workloads.lrb import SECONDS, Lrb, toll, tolls_app
from slackwater_lab.workloads.ticks import TickStream
from slackwater_lab.workloads.workload import Feed

START_MS = 1_700_000_000_000
FEED = Feed(rate=3_000, delay="none", seed=5, query=1, start_ms=START_MS)


@pytest.mark.parametrize(
    ("mph", "reports", "stopped", "pays"),
    [
        (39.0, 9, None, 2 * 4**2),
        (39.0, 9, 1, 2 * 4**2),
        (39.0, 9, 2, 0),  # an accident
        (40.0, 9, None, 0),  # fast enough
        (39.0, 8, None, 0),  # 48 cars
        (20.0, 20, None, 2 * 70**2),
        (20.0, None, None, 0),
    ],
)
def test_a_toll_is_due_in_crowded_slow_segments_without_an_accident(
    mph: float, reports: int | None, stopped: int | None, pays: int
) -> None:
    segments = pa.table(
        {
            "mph": pa.array([mph], pa.float64()),
            "reports": pa.array([reports], pa.int64()),
            "stopped": pa.array([stopped], pa.int64()),
        }
    )
    assert toll(segments, SECONDS.cars_per_report).to_pylist() == [pays]


@pytest.mark.parametrize("phase", ["spread", "aligned"])
@pytest.mark.parametrize("query", [0, 1, 17])
def test_every_last_window_ends_with_one_of_the_first(phase: Any, query: int) -> None:
    first, last = (it.grid(query) for it in SECONDS.windows(phase))
    end_ms = first.next_end(START_MS)
    assert last.next_end(end_ms - 1) == end_ms
    assert last.slice_start(end_ms - 1) == end_ms - 1_000


def rows_of(table: Any) -> dict[tuple[int, int, int], tuple[int, int, float, int]]:
    return {
        (end_ms, row["expressway"], row["direction"]): (
            row["segments"],
            row["reports"],
            round(row["slowest"], 9),
            row["tolls"],
        )
        for end_ms, row in table
    }


@pytest.mark.slow
@pytest.mark.spark
def test_structured_streaming_finds_the_same_tolls_in_the_batch_that_is_credited(
    spark: SparkSession, tmp_path: Path
) -> None:
    sources = Lrb().sources(FEED)
    sink = sw.memory()
    with sw.Runtime(spark, clock=ManualClock(START_MS)) as runtime:
        runtime.deploy(tolls_app(sink, phase="aligned"), "lrb", reset=False, **sources)
        runtime.run(seconds=20)
    ours = rows_of((int(row["window_end"].timestamp() * 1_000), row) for row in sink.rows())

    streams = {name: TickStream(spark, source, 1) for name, source in sources.items()}
    frame = Lrb().streaming_frame(
        {name: stream.frame() for name, stream in streams.items()},
        max(stream.lag_ms for stream in streams.values()),
        grids=Lrb().grids("aligned", 1),
        variant=0,
    )
    found: dict[int, list[Any]] = defaultdict(list)

    def note(rows: DataFrame, batch_id: int) -> None:
        found[batch_id] = rows.collect()

    query = start(frame.writeStream.foreachBatch(note), "0 seconds", tmp_path / "checkpoint")
    try:
        for stream in streams.values():
            stream.begin(START_MS)
        for second in (9, 18):
            for stream in streams.values():
                stream.feed(START_MS + second * 1_000)
            query.processAllAvailable()
        reports = query.recentProgress
    finally:
        query.stop()
    ends = {
        batch_id: {int(row["window"].end.timestamp() * 1_000) for row in rows}
        for batch_id, rows in found.items()
        if rows
    }
    credited: dict[int, set[int]] = defaultdict(set)
    all_ends = sorted(end_ms for batch in ends.values() for end_ms in batch)
    for end_ms, out_ms in emitted(reports, all_ends).items():
        [batch_id] = {it["batchId"] for it in batches(reports) if batch_end_ms(it) == out_ms}
        credited[batch_id].add(end_ms)
    assert dict(credited) == ends
    theirs = rows_of(
        (int(row["window"].end.timestamp() * 1_000), row) for rows in found.values() for row in rows
    )
    both = ours.keys() & theirs.keys()
    assert len({end_ms for end_ms, _, _ in both}) >= 3
    assert {key: ours[key] for key in both} == {key: theirs[key] for key in both}
    assert any(tolls > 0 for _, _, _, tolls in ours.values())
