"""The workloads whose events come late: their payloads, and what they make of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from slackwater.errors import DescriptionError
from slackwater.progress.distributions import NAMED_DELAYS, LateDelay
from slackwater.spark.sinks.parquet import read_panes
from slackwater.testing import ManualClock
from slackwater_lab.bench.options import BenchOptions
from slackwater_lab.bench.ours import run_ours
from slackwater_lab.workloads.late_wishes import DELAYS, LATE_DELAYS, delay_of
from slackwater_lab.workloads.payloads import LEAST_BYTES, MOST_BYTES, payload_sql, text_sql
from slackwater_lab.workloads.stock_market import StockMarket, watched


def test_late_delays_are_in_windows() -> None:
    for name in LATE_DELAYS:
        short, long = delay_of(name, 3_000), delay_of(name, 60_000)
        assert isinstance(short, LateDelay)
        assert isinstance(long, LateDelay)
        assert long.lateness.quantile(0.9) > 15 * short.lateness.quantile(0.9)
    assert delay_of("exp", 3_000) == NAMED_DELAYS["exp"]
    assert len(set(DELAYS)) == len(DELAYS)


def test_unknown_delays_are_refused() -> None:
    with pytest.raises(DescriptionError, match="delay='late_never'"):
        BenchOptions(delay="late_never")


def test_what_structured_streaming_cannot_do_is_refused() -> None:
    with pytest.raises(DescriptionError, match="stock cannot run stock_market"):
        StockMarket().streaming_frame({}, 0, grids=[], variant=0)


@pytest.mark.spark
def test_payloads_have_the_sizes_that_they_promise(spark: SparkSession) -> None:
    rows = spark.range(3_000).selectExpr("xxhash64(id) AS h")
    for sql, most in ((payload_sql(), MOST_BYTES), (text_sql(), 1.1 * MOST_BYTES)):
        sizes = [row[0] for row in rows.selectExpr(f"length({sql})").collect()]
        assert LEAST_BYTES <= min(sizes) <= 1.3 * LEAST_BYTES
        assert 0.8 * most <= max(sizes) <= most


def trades(spark: SparkSession, rows: list[tuple[float, int, float, int]]) -> DataFrame:
    """Make trades from (second, symbol, price, volume)."""
    frame = spark.createDataFrame(rows, "at double, symbol bigint, price double, volume bigint")
    return frame.selectExpr(
        "timestamp_seconds(at) AS event_time", "symbol", "price", "volume", "bigint(at * 10) trade"
    )


@pytest.mark.spark
def test_the_market_is_watched(spark: SparkSession) -> None:
    steady = [(n / 2, 1, 10.0 + n % 2, 1) for n in range(40)]
    jump = [(20.5, 1, 30.0, 40)]
    swinging = [(n / 2, 2, 50.0 + n // 2 % 2 + n % 2 / 2, 1) for n in range(40)]
    found = {
        row["symbol"]: row for row in watched(trades(spark, steady + jump + swinging)).collect()
    }
    assert found[1]["trades"] == 41
    assert found[1]["alerts"] == 1
    assert found[2]["alerts"] == 0
    assert found[1]["weighted_price"] == pytest.approx((20 * 10 + 20 * 11 + 40 * 30) / 80)
    assert found[1]["highest_mean"] == pytest.approx((4 * 10 + 5 * 11 + 30) / 10)
    assert found[2]["with_market"] == pytest.approx(1.0)  # the other stands still meanwhile


def run(spark: SparkSession, directory: Path, **settings: Any) -> tuple[dict[str, Any], pa.Table]:
    """Measure a workload with late events over a few windows, on a manual clock."""
    options = BenchOptions(queries=1, phase="aligned", delay="late_lognormal", **settings)
    result, _ = run_ours(spark, options, "klink", directory, clock=ManualClock("2024-01-01"))
    return result, read_panes(directory / "out")


@pytest.mark.spark
def test_averages_are_amended_by_late_reports(spark: SparkSession, tmp_path: Path) -> None:
    result, panes = run(spark, tmp_path, workload="average", rate=30, seconds=100)
    assert result["windows_fired"] == result["windows_due"] > 0
    timings = set(panes["timing"].to_pylist())
    assert {"on_time", "late"} <= timings
    rows = panes.to_pylist()
    assert {row["sensor"] for row in rows} == set(range(100))
    assert all(LEAST_BYTES <= row["bytes"] <= MOST_BYTES for row in rows)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("name", ["bigrams", "stock_market", "lrb_minute"])
def test_other_late_workloads_fire_every_window(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    rate = 1_200 if name == "lrb_minute" else 20
    result, panes = run(spark, tmp_path, workload=name, rate=rate, seconds=120)
    assert result["windows_fired"] == result["windows_due"] > 0
    assert "late" in panes["timing"].to_pylist()
