from __future__ import annotations

import json
from collections import defaultdict

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from slackwater.errors import DescriptionError
from slackwater.spark.sources.base import Range
from slackwater_lab.workloads.lrb_reports import FEET_PER_SEGMENT, SEGMENTS, lrb

START_MS = 1_700_000_000_000
CARS = 6_000
REPORTS = 60


def reports(spark: SparkSession, first: int, until: int, *, cars: int, seed: int = 1) -> DataFrame:
    reader = lrb(rate=cars / 30, start_ms=START_MS, seed=seed).open(spark)
    spec = json.dumps([reader.entry(0, Range(0, first, until, until - first))])
    frame = spark.createDataFrame([(spec,)], "spec string").coalesce(1)
    return reader.expand(
        frame.selectExpr(f"explode(from_json(spec, 'array<{reader.entry_type}>')) AS r")
    )


@pytest.fixture(scope="module")
def traffic(spark: SparkSession) -> pa.Table:
    """Half an hour of all cars, in the order in which they report."""
    return reports(spark, 0, CARS * REPORTS, cars=CARS).orderBy("_sw_offset").toArrow()


@pytest.mark.spark
def test_every_car_reports_each_thirty_seconds(traffic: pa.Table) -> None:
    times = traffic["event_time"].cast(pa.timestamp("us")).cast(pa.int64()).to_numpy()
    assert set(times[CARS:] - times[:-CARS]) == {30_000_000}


@pytest.mark.spark
def test_reports_lie_on_the_expressway_in_the_segment_of_their_position(traffic: pa.Table) -> None:
    position, segment = traffic["position"].to_numpy(), traffic["segment"].to_numpy()
    assert 0 <= position.min() <= position.max() < SEGMENTS * FEET_PER_SEGMENT
    assert (segment == position // FEET_PER_SEGMENT).all()
    assert set(traffic["direction"].to_pylist()) == {0, 1}
    assert set(traffic["lane"].to_pylist()) == {0, 1, 2, 3, 4}
    assert min(traffic["speed"].to_pylist()) >= 0
    assert max(traffic["speed"].to_pylist()) <= 100


@pytest.mark.spark
def test_a_car_is_where_its_speed_has_brought_it(traffic: pa.Table) -> None:
    vehicle, position = traffic["vehicle"].to_numpy(), traffic["position"].to_numpy()
    speed, direction = traffic["speed"].to_numpy(), traffic["direction"].to_numpy()
    segment = traffic["segment"].to_numpy()
    checked = 0
    for before in range(0, 40 * CARS, 977):
        after = before + CARS
        one_road = segment[before] // 10 == segment[after] // 10 or 20 < segment[before] < 80
        if vehicle[before] != vehicle[after] or not one_road or 0 in (speed[before], speed[after]):
            continue
        feet = (position[after] - position[before]) * (1 if direction[before] == 0 else -1)
        # A mile an hour is 44 feet in 30 s; reported speeds are off by up to 5, and whole numbers.
        assert feet == pytest.approx(44 * speed[before], abs=44 * 7)
        checked += 1
    assert checked > 100


@pytest.mark.spark
def test_traffic_is_dense_and_slow_at_the_end_of_the_way(traffic: pa.Table) -> None:
    speeds = defaultdict(list)
    forward = traffic.filter(pa.compute.equal(traffic["direction"], 0))
    for segment, speed in zip(
        forward["segment"].to_pylist(), forward["speed"].to_pylist(), strict=True
    ):
        speeds[segment >= 90].append(speed)
    assert sum(speeds[True]) / len(speeds[True]) == pytest.approx(20, abs=2)
    assert sum(speeds[False]) / len(speeds[False]) == pytest.approx(60, abs=2)
    density = (len(speeds[True]) / 10) / (len(speeds[False]) / 90)
    assert density == pytest.approx(3, rel=0.15)


@pytest.mark.spark
def test_accidents_are_two_cars_that_stand_at_one_place_for_four_reports_or_more(
    traffic: pa.Table,
) -> None:
    speed, position = traffic["speed"].to_numpy(), traffic["position"].to_numpy()
    stood: dict[int, list[int]] = defaultdict(list)
    for row in (speed == 0).nonzero()[0].tolist():
        stood[row % CARS].append(row)
    assert stood
    whole = 0
    for car, rows in stood.items():
        partner = car ^ 1
        assert [row // CARS for row in stood[partner]] == [row // CARS for row in rows]
        runs: list[list[int]] = []
        for row in rows:
            if runs and row == runs[-1][-1] + CARS:
                runs[-1].append(row)
            else:
                runs.append([row])
        for run in runs:
            assert len({position[row] for row in run}) == 1
            assert {position[row ^ 1] for row in run} == {position[run[0]]}
            if run[0] >= CARS and run[-1] < CARS * (REPORTS - 1):
                assert len(run) >= 4
                whole += 1
    assert whole > 0


@pytest.mark.spark
def test_streams_of_as_many_cars_tell_of_the_same_traffic(spark: SparkSession) -> None:
    places = ["vehicle", "expressway", "direction", "segment", "position", "lane"]
    one = reports(spark, 5_000, 8_000, cars=25_000, seed=1).select(places).toArrow()
    other = reports(spark, 5_000, 8_000, cars=25_000, seed=2).select(places).toArrow()
    assert one == other
    assert set(one["expressway"].to_pylist()) == {0, 1}


@pytest.mark.parametrize("taken", ["keys", "columns", "helpers", "parameters", "partitions"])
def test_what_the_benchmark_fixes_cannot_be_changed(taken: str) -> None:
    with pytest.raises(DescriptionError, match=taken):
        lrb(**{taken: 1})


def test_one_car_is_no_traffic() -> None:
    with pytest.raises(DescriptionError, match="cars=1 cannot be"):
        lrb(cars=1)


@pytest.mark.spark
def test_streams_of_any_rate_share_one_plan(spark: SparkSession) -> None:
    small, large = (lrb(rate=rate, start_ms=START_MS).open(spark) for rate in (100, 100_000))
    assert small.fusion_key == large.fusion_key
    assert small.entry(0, Range(0, 0, 9, 9)) != large.entry(0, Range(0, 0, 9, 9))
