from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from slackwater.errors import DescriptionError
from slackwater.spark.sources.base import Range
from slackwater.spark.sources.generator import Generator
from slackwater_lab.workloads.nyt_trips import (
    BOROUGHS,
    DISTANCE_MILES,
    FARE_DOLLARS,
    TRIP_SECONDS,
    nyt,
)
from slackwater_lab.workloads.tlc_trips import ZONES, sample_trips

START_MS = 1_700_000_000_000


def trips(spark: SparkSession, source: Generator, size: int) -> DataFrame:
    reader = source.open(spark)
    spec = json.dumps([reader.entry(0, Range(0, 0, size, size))])
    frame = spark.createDataFrame([(spec,)], "spec string").coalesce(1)
    return reader.expand(
        frame.selectExpr(f"explode(from_json(spec, 'array<{reader.entry_type}>')) AS r")
    )


@pytest.fixture(scope="module")
def drawn(spark: SparkSession) -> pa.Table:
    return trips(spark, nyt(start_ms=START_MS, seed=3), 200_000).toArrow()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("column", "parameters"),
    [
        ("trip_distance", DISTANCE_MILES),
        ("fare_amount", FARE_DOLLARS),
        ("trip_seconds", TRIP_SECONDS),
    ],
)
def test_trips_have_the_quantiles_of_their_distributions(
    drawn: pa.Table, column: str, parameters: tuple[float, float]
) -> None:
    # Below 1 in 512 the table is one straight line.
    shares = [0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999]
    mean, deviation = parameters
    found = np.log(np.quantile(drawn[column].to_numpy(), shares))
    expected = np.array([mean + deviation * NormalDist().inv_cdf(share) for share in shares])
    # The sampling error of a quantile, in units of its own distribution's density.
    density = np.array([NormalDist().pdf(NormalDist().inv_cdf(share)) for share in shares])
    error = deviation * np.sqrt(np.array(shares) * (1 - np.array(shares)) / 200_000) / density
    assert np.all(np.abs(found - expected) < 4 * error + 0.001)


@pytest.mark.spark
def test_fields_are_drawn_independently_and_with_their_shares(drawn: pa.Table) -> None:
    numbers = [
        np.log(drawn[name].to_numpy()) for name in ("trip_distance", "fare_amount", "trip_seconds")
    ]
    assert np.abs(np.corrcoef(numbers) - np.eye(3)).max() < 0.01
    counts = {it["values"]: it["counts"] for it in drawn["borough"].value_counts().to_pylist()}
    for name, share in BOROUGHS.items():
        assert counts[name] / len(drawn) == pytest.approx(share, abs=0.004)
    by_card = drawn.filter(pa.compute.equal(drawn["payment_type"], 1))
    tips = by_card["tip_amount"].to_numpy() / by_card["fare_amount"].to_numpy()
    assert 0.1 <= tips.min() < tips.max() <= 0.3
    assert len(by_card) / len(drawn) == pytest.approx(0.69, abs=0.01)


def write_month(
    directory: Path, name: str, *, prefix: str = "tpep", zones: bool = True, **columns: Any
) -> None:
    """Write a month of trips in the layout of the TLC: the first takes 1 minute, the next 2, ..."""
    begin = datetime(2024, 1, 1, 8)
    count = 10
    ends = [begin + timedelta(minutes=place + 1) for place in range(count)]
    table: dict[str, Any] = {
        "VendorID": pa.array([1] * count, pa.int32()),
        f"{prefix}_pickup_datetime": pa.array([begin] * count, pa.timestamp("us")),
        f"{prefix}_dropoff_datetime": pa.array(ends, pa.timestamp("us")),
        "passenger_count": pa.array([1.0, None] * (count // 2), pa.float64()),
        "trip_distance": [float(place + 1) for place in range(count)],
        "PULocationID" if zones else "borough": pa.array([132, 161] * (count // 2), pa.int32())
        if zones
        else ["King's County", "Manhattan"] * (count // 2),
        "payment_type": pa.array([1] * count, pa.int64()),
        "fare_amount": [10.0 * (place + 1) for place in range(count)],
        "tip_amount": [1.0] * count,
        **columns,
    }
    pq.write_table(
        pa.table({key: value for key, value in table.items() if value is not None}),
        directory / name,
        row_group_size=4,
    )
    (directory / ZONES).write_text(
        '"LocationID","Borough","Zone","service_zone"\n132,"Queens","JFK Airport","Airports"\n'
        '161,"Manhattan","Midtown Center","Yellow Zone"\n'
    )


@pytest.mark.spark
def test_real_trips_come_again_whole_at_the_rate_asked(spark: SparkSession, tmp_path: Path) -> None:
    write_month(tmp_path, "yellow_tripdata_2024-01.parquet")
    write_month(tmp_path, "green_tripdata_2024-01.parquet", prefix="lpep", zones=False)
    source = nyt(data=tmp_path, rate=100, start_ms=START_MS)
    found = trips(spark, source, 2_000).toArrow()
    rows = {
        (row["trip_distance"], row["fare_amount"], row["trip_seconds"], row["borough"])
        for row in found.to_pylist()
    }
    assert rows == {
        (float(n), 10.0 * n, 60.0 * n, borough)
        for n in range(1, 11)
        for borough in (("Queens", "King's County") if n % 2 else ("Manhattan",))
    }
    times = found["event_time"].cast(pa.timestamp("us")).cast(pa.int64()).to_numpy() // 1_000
    assert (times.min(), times.max()) == (START_MS, START_MS + 19_990)
    drawn_types = nyt(start_ms=START_MS).open(spark).schema
    real_types = source.open(spark).schema
    assert [f.dataType for f in real_types] == [f.dataType for f in drawn_types]
    assert real_types.names == drawn_types.names


def test_a_sample_is_taken_at_equal_distances_over_all_files(tmp_path: Path) -> None:
    for month in range(1, 4):
        write_month(tmp_path, f"yellow_tripdata_2024-0{month}.parquet")
    assert list(sample_trips(tmp_path, most=4).miles) == [1.0, 10.0, 10.0, 10.0]
    whole = sample_trips(tmp_path)
    assert len(whole) == 30
    assert set(whole.passengers) == {1}


def test_trips_without_a_distance_are_left_out(tmp_path: Path) -> None:
    write_month(tmp_path, "a.parquet", trip_distance=pa.array([None] * 9 + [4.0], pa.float64()))
    assert list(sample_trips(tmp_path).miles) == [4.0]


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(DescriptionError, match=r"holds no Parquet file"):
        nyt(data=tmp_path)
    write_month(tmp_path, "a.parquet", fare_amount=None)
    with pytest.raises(DescriptionError, match=r"a\.parquet has no column fare_amount"):
        nyt(data=tmp_path)
    write_month(tmp_path, "a.parquet", tpep_pickup_datetime=None)
    with pytest.raises(DescriptionError, match=r"no column tpep_pickup_datetime or lpep_pickup"):
        nyt(data=tmp_path)
    write_month(tmp_path, "a.parquet")
    (tmp_path / ZONES).unlink()
    with pytest.raises(DescriptionError, match=r"taxi_zone_lookup\.csv is missing"):
        nyt(data=tmp_path)


@pytest.mark.parametrize("taken", ["keys", "columns", "helpers"])
def test_what_a_trip_is_cannot_be_changed(taken: str) -> None:
    with pytest.raises(DescriptionError, match=taken):
        nyt(rate=10.0, data=None, **{taken: None})
