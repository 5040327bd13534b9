"""Rows as partials of one: merged and finished, they are what Spark would make of the rows."""

from __future__ import annotations

import math
from decimal import Decimal
from statistics import fmean, stdev, variance
from typing import Any

import pyarrow as pa
import pytest

import slackwater as sw
from slackwater.app.aggregates import Aggregate
from slackwater.runtime.merge import finish, merge
from slackwater.runtime.partials import row_partials

NAN, INF = float("nan"), float("inf")


def computed(table: pa.Table, keys: list[str], **aggregates: Aggregate) -> pa.Table:
    merged = merge(row_partials(table, keys, aggregates), keys, aggregates)
    return finish(merged, keys, aggregates)


def test_numbers_become_what_they_are_in_one_group() -> None:
    values = [3, None, -4, 10]
    table = pa.table({"x": pa.array(values, pa.int32())})
    there = [value for value in values if value is not None]
    found = computed(
        table,
        [],
        rows=sw.count(),
        n=sw.count("x"),
        total=sw.sum("x"),
        mean=sw.mean("x"),
        least=sw.min("x"),
        most=sw.max("x"),
        spread=sw.variance("x"),
        deviation=sw.stddev("x"),
    )
    assert found.schema.field("total").type == pa.int64()
    assert found.schema.field("least").type == pa.int32()
    row = found.to_pylist()[0]
    assert (row["rows"], row["n"], row["total"]) == (4, 3, 9)
    assert (row["mean"], row["least"], row["most"]) == (fmean(there), -4, 10)
    assert row["spread"] == pytest.approx(variance(there))
    assert row["deviation"] == pytest.approx(stdev(there))


def test_decimals_stay_decimals_with_the_digits_spark_gives_them() -> None:
    cents = pa.array([Decimal("1.25"), Decimal("2.50"), None], pa.decimal128(12, 2))
    total, mean = sw.sum("x").over("decimal(12,2)", ""), sw.mean("x").over("decimal(12,2)", "")
    found = computed(pa.table({"x": cents}), [], total=total, mean=mean)
    assert found.schema.field("total").type == pa.decimal128(22, 2)
    assert found.schema.field("mean").type == pa.decimal128(16, 6)
    assert found.to_pylist() == [{"total": Decimal("3.75"), "mean": Decimal("1.875000")}]


@pytest.mark.parametrize("odd", [NAN, INF])
def test_the_variance_of_what_is_no_number_is_none_either(odd: float) -> None:
    found = computed(pa.table({"x": [1.0, odd]}), [], spread=sw.variance("x"), most=sw.max("x"))
    row = found.to_pylist()[0]
    assert math.isnan(row["spread"])
    assert str(row["most"]) == str(odd)


def test_nothing_to_aggregate_is_null_and_counts_nothing() -> None:
    table = pa.table({"x": pa.array([None], pa.float64())})
    found: list[dict[str, Any]] = computed(
        table, [], n=sw.count("x"), total=sw.sum("x"), mean=sw.mean("x"), spread=sw.variance("x")
    ).to_pylist()
    assert found == [{"n": 0, "total": None, "mean": None, "spread": None}]


def test_keys_group_as_in_spark_zeros_and_nan_and_null_together() -> None:
    keys = [0.0, -0.0, NAN, -NAN, None, None]
    found = computed(pa.table({"k": keys}), ["k"], n=sw.count()).to_pylist()
    assert [(str(row["k"]), row["n"]) for row in found] == [("0.0", 2), ("nan", 2), ("None", 2)]
