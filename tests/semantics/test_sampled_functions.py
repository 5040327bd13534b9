"""A function of a window's rows says itself how far off a sample makes its result."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession

import slackwater as sw
from slackwater.errors import DescriptionError
from slackwater.sampling.applied import NumberBounds, SampledWindow
from slackwater.spark.sources.generator import Generator
from slackwater.testing import ManualClock
from slackwater_lab.bench.sampled_apps import CENTRES, SAMPLED_APPS

START_MS = 1_700_000_000_000 // 3_000 * 3_000
RATE = 2_000
SECONDS = 36
VALUE = "1D + (shiftrightunsigned(xxhash64(h), 11) * 1.1102230246251565E-16D) * 2D"
SETTINGS: dict[str, Any] = {
    "rate": RATE,
    "delay": "exp",
    "gap": "gamma",
    "start_ms": START_MS,
    "seconds": SECONDS,
}


def run(spark: SparkSession, app: sw.App, journal: Path, source: Generator) -> list[Any]:
    clock = ManualClock(START_MS)
    with sw.Runtime(spark, journal=journal, clock=clock, slots=1) as runtime:
        runtime.deploy(app, "test", events=source)
        runtime.run()
        return runtime.queries()


def middle(rows: DataFrame) -> DataFrame:
    """Take the mean of values that are neither small nor large, and count them."""
    return rows.where("value BETWEEN 1.2 AND 2.8").selectExpr(
        "sum(value * _sw_weight) / sum(_sw_weight) AS middle", "sum(_sw_weight) AS kept"
    )


def middle_error(window: SampledWindow) -> NumberBounds:
    """State the bounds of a mean over some of the rows, and how many records it needs."""
    values = window.rows["value"].to_numpy()
    kept = (values >= 1.2) & (values <= 2.8)
    mean = window.result["middle"][0].as_py()
    moved = window.mean(np.where(kept, values - mean, 0.0))
    half = (moved.high - moved.low) / 2 / kept.mean()
    relative = float(np.std(values[kept])) / mean
    needed = (window.target.deviations * relative / window.target.relative) ** 2 / kept.mean()
    return window.stated(mean, mean - half, mean + half, needed=needed)


def misfit(window: SampledWindow) -> NumberBounds:
    """Say how far values are from the middle: a number about the result, not in it."""
    off = np.abs(window.rows["value"].to_numpy() - window.result["middle"][0].as_py())
    return window.mean(off)


@pytest.mark.spark
def test_early_results_of_a_function_hold_what_exact_ones_confirm(
    spark: SparkSession, tmp_path: Path
) -> None:
    app, sink = sw.App("bounded"), sw.memory()
    functions = {"middle": middle_error, "misfit": misfit}
    app.source("events").window(sw.tumbling("3 s")).apply(middle).to(
        sink, error=sw.within(0.04, functions=functions), lateness="1 minute"
    )
    source = sw.generator(columns={"value": VALUE}, **SETTINGS)
    early_report, exact_report = run(spark, app, tmp_path, source)
    assert (early_report.quarantined, exact_report.quarantined) == (None, None)
    rows = sink.rows()
    early = {row["window_start"]: row for row in rows if row["timing"] == "early"}
    exact = {row["window_start"]: row for row in sorted(rows, key=lambda row: row["pane"])}
    assert len(early) >= 7
    held = 0
    for start, row in early.items():
        truth = exact[start]
        assert truth["pane"] > 0
        assert (truth["met"], truth["confidence"], truth["sampled"]) == (True, 1.0, None)
        assert row["kept"] == pytest.approx(truth["kept"], rel=0.2)  # weighed up to the window
        for name in functions:
            assert truth[f"{name}_low"] == truth[name] == truth[f"{name}_high"]
            held += row[f"{name}_low"] <= truth[name] <= row[f"{name}_high"]
    # The first early window had begun before it was known how few events are enough.
    assert median(row["accuracy"] for row in early.values()) < 0.4
    assert held / len(early) / 2 >= 0.85
    assert sum(row["met"] for row in early.values()) >= 0.7 * len(early)
    # Both numbers of every early window but, at most, the last ones are audited.
    assert early_report.bounds is not None
    assert early_report.bounds.audited >= 2 * (len(early) - 2)
    assert early_report.bounds.coverage >= 0.85


@pytest.mark.spark
def test_k_means_finds_its_centres_from_a_sample(spark: SparkSession, tmp_path: Path) -> None:
    kmeans, sink = SAMPLED_APPS["kmeans"], sw.memory()
    app, _ = kmeans.app(spark, sink, sw.within(0.1, audit=1.0))
    (report,) = run(spark, app, tmp_path, kmeans.source(**SETTINGS))
    assert report.quarantined is None
    rows = [row for row in sink.rows() if row["timing"] == "early"]
    assert len(rows) >= 7 * len(CENTRES)
    found: dict[Any, list[tuple[float, float]]] = {row["window_start"]: [] for row in rows}
    for row in rows:
        found[row["window_start"]].append((row["x"], row["y"]))
        assert row["cost_low"] < row["cost"] < row["cost_high"]
        assert row["cost"] == pytest.approx(0.5, rel=0.15)  # twice three variances of 1/12
    assert median(row["accuracy"] for row in rows) < 0.4
    for centres in found.values():
        assert np.array(sorted(centres)) == pytest.approx(np.array(sorted(CENTRES)), abs=0.5)
    assert report.bounds is not None
    # Windows are read again once their source says that all has come; the last ones never count.
    assert report.bounds.audited >= 2
    assert report.bounds.held >= report.bounds.audited - 1


def refused(build: Any) -> str:
    with pytest.raises(DescriptionError) as caught:
        build()
    return str(caught.value)


def test_error_functions_stand_where_they_can_be_kept() -> None:
    windows = sw.App("a").source("s").window(sw.tumbling("3 s"))
    error = sw.within(0.05, functions={"cost": misfit})
    assert "functions=" in refused(lambda: windows.apply(middle).to(None, error=sw.within(0.05)))
    assert "leave functions= away" in refused(
        lambda: windows.aggregate(n=sw.count()).to(None, error=error)
    )
    assert "of=" in refused(lambda: sw.within(0.05, groups=0.1, functions={"cost": misfit}))
    assert "window.mean" in refused(lambda: sw.within(0.05, functions={"cost": 3}))  # type: ignore[dict-item]
    assert "rename" in refused(
        lambda: windows.apply(middle).to(None, error=sw.within(0.05, functions={"pane": misfit}))
    )


@pytest.mark.spark
@pytest.mark.parametrize(
    ("name", "column", "message"),
    [
        ("cost", "'much' AS cost", "of type string"),
        ("cost", "1D AS Cost", "very name"),
        ("cost", "1D AS cost_low", "rename it"),
        ("cost", "1D AS met", "rename it"),
    ],
)
def test_a_result_without_room_for_its_bounds_is_refused(
    spark: SparkSession, tmp_path: Path, name: str, column: str, message: str
) -> None:
    app = sw.App("bounded")
    app.source("events").window(sw.tumbling("3 s")).apply(lambda df: df.selectExpr(column)).to(
        sw.memory(), error=sw.within(0.05, functions={name: misfit})
    )
    with sw.Runtime(spark, journal=tmp_path, clock=ManualClock(START_MS)) as runtime:
        source = sw.generator(columns={"value": VALUE}, **SETTINGS)
        assert message in refused(lambda: runtime.deploy(app, "test", events=source))
