from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from slackwater.spark.sinks.parquet import read_panes
from slackwater.testing import ManualClock
from slackwater_lab.bench.figures import FURTHER_FIELDS, RESULT_FIELDS
from slackwater_lab.bench.options import BenchOptions
from slackwater_lab.bench.ours import run_ours


@pytest.mark.spark
def test_where_time_stands_still_for_steps_every_window_that_is_due_fires(
    spark: SparkSession, tmp_path: Path
) -> None:
    options = BenchOptions(queries=3, rate=50, seconds=7, distinct=2, delay="uniform", seed=11)
    clock = ManualClock("2024-01-01")
    began_ms = clock.now_ms()
    told: list[tuple[str, float]] = []
    result, span = run_ours(
        spark,
        options,
        "deadline",
        tmp_path,
        clock=clock,
        progress=lambda text, share: told.append((text, share)),
    )
    assert tuple(result) == RESULT_FIELDS + FURTHER_FIELDS
    assert result["windows_fired"] == result["windows_due"] > 0
    assert span.length_ms == 7_000
    assert span.first_ms >= began_ms + 10_000
    # A manual clock moves only between steps, so a result is out the moment its watermark is in.
    assert 0 <= result["propagation_mean_ms"] <= 20
    assert result["mean_ms"] >= 500
    assert result["events"] == pytest.approx(3 * 50 * 7, abs=3 * 50 * 3)
    assert result["overhead_share"] > 0
    assert {text for text, _ in told} == {"warming up", "measuring"}
    assert read_panes(tmp_path / "out").num_rows > 0


@pytest.mark.spark
def test_aligned_windows_of_one_template_share_their_steps(
    spark: SparkSession, tmp_path: Path
) -> None:
    options = BenchOptions(
        queries=4, rate=20, seconds=6, phase="aligned", sink="memory", durable=False, slots=1
    )
    result, _ = run_ours(spark, options, "deadline", tmp_path, clock=ManualClock("2024-01-01"))
    assert result["windows_fired"] == result["windows_due"] == 8
    assert result["queries_per_step"] == 4
    assert not (tmp_path / "out").exists()
