from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from slackwater.progress.grid import WindowGrid
from slackwater.spark.sinks.parquet import read_panes
from slackwater.spark.sources.generator import generator
from slackwater.testing import ManualClock
from slackwater_lab.bench.inputs import inputs_of, start_after_ms, workload_of
from slackwater_lab.bench.options import WORKLOADS, BenchOptions
from slackwater_lab.bench.ours import run_ours
from slackwater_lab.bench.stock import triggers
from slackwater_lab.workloads.due import Span
from slackwater_lab.workloads.lrb_reports import SEGMENTS
from slackwater_lab.workloads.workload import Feed, due_in

START_MS = 1_700_000_000_000


@pytest.mark.parametrize("name", WORKLOADS)
def test_no_two_inputs_of_a_run_have_the_same_events(name: str) -> None:
    inputs = inputs_of(BenchOptions(workload=name, queries=5), START_MS)
    seeds = [source.seed for sources in inputs for source in sources.values()]
    assert len(set(seeds)) == len(seeds)
    others = inputs_of(BenchOptions(workload=name, queries=5, seed=8), START_MS)
    assert not {s.seed for sources in others for s in sources.values()} & set(seeds)


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_rate_is_that_of_all_inputs_together(name: str) -> None:
    [sources] = inputs_of(BenchOptions(workload=name, queries=1, rate=600), START_MS)
    assert sum(source.rate for source in sources.values()) == pytest.approx(600)


@pytest.mark.parametrize("name", WORKLOADS)
def test_structured_streaming_is_triggered_at_once_or_with_each_result(name: str) -> None:
    seconds = {
        "ysb": "3 seconds",
        "lrb": "3 seconds",
        "nyt": "1 seconds",
        "average": "20 seconds",
        "bigrams": "30 seconds",
        "stock_market": "30 seconds",
        "lrb_minute": "60 seconds",
    }
    assert triggers(BenchOptions(workload=name)) == ("0 seconds", seconds[name])


def test_inputs_start_together_or_at_random_within_the_warm_up() -> None:
    together = BenchOptions(queries=50)
    assert {start_after_ms(together, query) for query in range(50)} == {0}
    for warmup, within_ms in ((60.0, 20_000), (20.0, 10_000)):
        random = replace(together, start="random", warmup=warmup)
        moments = [start_after_ms(random, query) for query in range(50)]
        assert len(set(moments)) == 50
        assert 0 <= min(moments) < within_ms * 0.1
        assert within_ms * 0.9 < max(moments) < within_ms
        starts = [next(iter(s.values())).start_ms for s in inputs_of(random, START_MS)]
        assert starts == [START_MS + moment for moment in moments]


@pytest.mark.spark
def test_a_window_is_due_when_the_slowest_of_its_inputs_has_passed_it(spark: SparkSession) -> None:
    sources = [
        generator(start_ms=START_MS, watermark_period="1 s", watermark_lag=lag)
        for lag in ("2 s", "5 s", "3 s")
    ]
    span = Span(START_MS + 20_000, START_MS + 32_000)
    grid = WindowGrid(3_000, 3_000, START_MS % 3_000)
    due = dict(due_in(spark, [grid], sources, span))
    assert due == dict(due_in(spark, [grid], [sources[1]], span))
    assert {due_ms - end_ms for end_ms, due_ms in due.items()} == {5_000}
    assert len(due) == 4


@pytest.mark.spark
def test_of_further_windows_those_are_due_that_results_fall_into(spark: SparkSession) -> None:
    #  5 s every 3 s   ends   ...  11      14      17
    #  1 s tumbling    ends     10 11 12 13 14 15 16 17: one in three has a result
    source = generator(start_ms=START_MS, watermark_period="1 s", watermark_lag="0 s")
    base = START_MS // 3_000 * 3_000
    first, last = WindowGrid(5_000, 3_000, 0), WindowGrid(1_000, 1_000, 0)
    due = dict(due_in(spark, [first, last], [source], Span(base + 10_000, base + 18_500)))
    assert sorted(end_ms - base for end_ms in due) == [11_000, 14_000, 17_000]
    # Half a second on, a result is in the window that ends half a second later.
    late = WindowGrid(1_000, 1_000, 500)
    due = dict(due_in(spark, [first, late], [source], Span(base + 10_000, base + 18_500)))
    assert sorted(end_ms - base for end_ms in due) == [11_500, 14_500, 17_500]


def measured(spark: SparkSession, directory: Path, **settings: Any) -> dict[str, Any]:
    """Run two variants whose windows close at the same instants; they can share no step."""
    options = BenchOptions(queries=2, distinct=2, phase="aligned", **settings)
    result, _ = run_ours(spark, options, "deadline", directory, clock=ManualClock("2024-01-01"))
    assert result["windows_fired"] == result["windows_due"] > 0
    assert 0 <= result["propagation_mean_ms"] <= 20
    assert result["queries_per_step"] == 1
    return result


@pytest.mark.spark
def test_every_window_of_taxi_trips_that_is_due_fires(spark: SparkSession, tmp_path: Path) -> None:
    result = measured(
        spark, tmp_path, workload="nyt", rate=600, seconds=4, delay="zipf", start="random"
    )
    assert result["windows_due"] == pytest.approx(2 * 4, abs=2)
    panes = read_panes(tmp_path / "out")
    assert set(panes["borough"].to_pylist()) == {"Manhattan", "Queens", "Brooklyn", "Bronx"}
    manhattan = panes.filter(pc.equal(panes["borough"], "Manhattan"))
    # The means of the distributions are 2.9 miles (4.7 km) and 12.7 dollars, before the filters.
    assert 3.5 < pc.mean(manhattan["kilometres"]).as_py() < 5.5
    assert 11 < pc.mean(manhattan["fare"]).as_py() < 14


@pytest.mark.spark
def test_every_window_of_linear_road_that_is_due_fires(spark: SparkSession, tmp_path: Path) -> None:
    measured(spark, tmp_path, workload="lrb", rate=30_000, seconds=6, delay="uniform")
    panes = read_panes(tmp_path / "out")
    # 300,000 cars on 30 expressways: 125 in each of the ten segments of a jam, who pay.
    assert set(panes["expressway"].to_pylist()) == set(range(30))
    assert set(panes["direction"].to_pylist()) == {0, 1}
    assert max(panes["segments"].to_pylist()) == SEGMENTS
    assert 10 * 2_000 < pc.mean(panes["tolls"]).as_py() < 10 * 2 * 75**2 * 2


@pytest.mark.spark
@pytest.mark.parametrize("name", [name for name in WORKLOADS if name != "stock_market"])
def test_every_workload_but_one_can_be_written_for_structured_streaming(
    spark: SparkSession, name: str
) -> None:
    workload = workload_of(BenchOptions(workload=name))
    sources = workload.sources(Feed(300, "none", 1, 0, START_MS))
    frames = {
        key: spark.readStream.format("rate").load().selectExpr(*_columns(spark, source))
        for key, source in sources.items()
    }
    grids = workload.grids("spread", 3)
    frame = workload.streaming_frame(frames, 100, grids=grids, variant=1)
    assert frame.isStreaming
    assert "window" in frame.columns


def _columns(spark: SparkSession, source: Any) -> list[str]:
    """Give a stream that never runs the columns of a source."""
    return [
        f"CAST(NULL AS {field.dataType.simpleString()}) AS {field.name}"
        for field in source.open(spark).schema.fields
        if field.name != "event_time"
    ] + ["timestamp AS event_time"]
