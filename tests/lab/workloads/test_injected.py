from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import slackwater as sw
from slackwater.progress.distributions import NAMED_DELAYS
from slackwater.spark.latebound import fixed_specification
from slackwater.spark.sources.base import SYSTEM_COLUMNS, Range
from slackwater.spark.sources.generator import Generator
from slackwater_lab.inject.rates import Phase, RateProfile
from slackwater_lab.workloads.injected import InjectedWorkload, make_records
from slackwater_lab.workloads.knn import SPREAD, KnnPoints
from slackwater_lab.workloads.lrb_reports import LrbReports, lrb
from slackwater_lab.workloads.nyt_trips import NytTrips, nyt
from slackwater_lab.workloads.ysb_events import YsbEvents

START_MS = 1_700_000_000_000
RECORDS = 20_000
RATE = 1_500.0
EVERY = [YsbEvents(), YsbEvents(skew=0.9), LrbReports(cars=700), NytTrips(), KnnPoints()]


def injected(workload: InjectedWorkload, first: int = 0, until: int = RECORDS) -> pa.Table:
    rates = RateProfile((Phase(1e6, RATE, RATE),))
    arrivals_us = START_MS * 1_000 + rates.arrivals_us(first, until)
    return make_records(workload, NAMED_DELAYS["exp"], 7, first, arrivals_us).table


@pytest.mark.parametrize("workload", EVERY, ids=repr)
def test_any_stretch_of_records_is_made_by_itself(workload: InjectedWorkload) -> None:
    whole = injected(workload)
    assert injected(workload, 4_321, 9_999).equals(whole.slice(4_321, 9_999 - 4_321))
    assert workload.key in whole.column_names


@pytest.mark.spark
@pytest.mark.parametrize(
    ("workload", "source"),
    [
        (YsbEvents(), sw.ysb),
        (YsbEvents(skew=0.9), sw.ysb),
        (LrbReports(cars=700), lrb),
        (NytTrips(), nyt),
    ],
    ids=repr,
)
def test_records_are_those_of_the_source_of_that_name(
    spark: SparkSession, workload: InjectedWorkload, source: object
) -> None:
    settings = {name: getattr(workload, name) for name in workload.settings}
    described: Generator = source(  # type: ignore[operator]
        rate=RATE, delay="exp", seed=7, start_ms=START_MS, **settings
    )
    reader = described.open(spark)
    entry = json.dumps([reader.entry(0, Range(0, 0, RECORDS, RECORDS))])
    entries = fixed_specification(spark, [[entry]]).selectExpr(
        f"explode(from_json(s0, 'array<{reader.entry_type}>')) AS r"
    )
    rows = reader.expand(entries).drop(*SYSTEM_COLUMNS).toArrow()
    found = injected(workload)
    assert found.column_names == rows.column_names
    for name in found.column_names:
        assert (
            found[name].combine_chunks().equals(rows[name].cast(found[name].type).combine_chunks())
        )


def test_points_lie_around_their_clusters_centre() -> None:
    table = injected(KnnPoints(clusters=4))
    labels = table["label"].to_numpy()
    assert set(labels) == {0, 1, 2, 3}
    for axis in ("x", "y"):
        values = table[axis].to_numpy()
        for label in range(4):
            assert np.std(values[labels == label]) == pytest.approx(SPREAD, rel=0.05)
