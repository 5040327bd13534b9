"""Partials made in pieces, merged and finished, equal one batch over all rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from datasketches import hll_sketch, kll_doubles_sketch, tgt_hll_type
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from slackwater.app import aggregates as sw
from slackwater.app.aggregates import Aggregate
from slackwater.app.names import quoted
from slackwater.runtime.merge import AggregateOverflowError, finish, merge

AGGREGATES: dict[str, Aggregate] = {
    "n": sw.count(),
    "n_i": sw.count("i"),
    "sum_i": sw.sum("i").over("bigint", "here"),
    "sum_d": sw.sum("d").over("decimal(10,2)", "here"),
    "mean_d": sw.mean("d").over("decimal(10,2)", "here"),
    "mean_x": sw.mean("x").over("double", "here"),
    "min_x": sw.min("x"),
    "max_x": sw.max("x"),
    "min_s": sw.min("s"),
    "max_s": sw.max("s"),
    "var_x": sw.variance("x"),
    "std_x": sw.stddev("x"),
    "distinct_i": sw.approx_distinct("i"),
    "median_x": sw.approx_quantile("x", 0.5),
    "ends_x": sw.approx_quantile("x", (0.0, 1.0)),
}
Row = dict[str, Any]
PARTIAL_TYPES = pa.schema(
    [
        ("k", pa.float64()),
        ("q", pa.int32()),
        *((f"{name}__n", pa.int64()) for name in ("n", "n_i", "mean_d", "mean_x")),
        ("sum_i__sum", pa.int64()),
        *((f"{name}__sum", pa.decimal128(20, 2)) for name in ("sum_d", "mean_d")),
        ("mean_x__sum", pa.float64()),
        ("min_x__min", pa.float64()),
        ("max_x__max", pa.float64()),
        ("min_s__min", pa.string()),
        ("max_s__max", pa.string()),
        *(
            (f"{name}__{part}", pa.int64() if part == "n" else pa.float64())
            for name in ("var_x", "std_x")
            for part in ("n", "mean", "m2")
        ),
        ("distinct_i__hll", pa.binary()),
        ("median_x__kll", pa.binary()),
        ("ends_x__kll", pa.binary()),
    ]
)


def _ordered(values: Iterable[float]) -> list[float]:
    return sorted(values, key=lambda x: (math.isnan(x), x))


def _partial(rows: Sequence[Row]) -> Row:
    """Play Spark: make one group's partials from its rows."""
    i, d, x, s = ([row[c] for row in rows if row[c] is not None] for c in ("i", "d", "x", "s"))
    mean = sum(x) / len(x) if x else None
    m2 = sum((value - mean) ** 2 for value in x) if mean is not None else None
    moments = {"n": len(x), "mean": mean, "m2": m2}
    hll, kll = hll_sketch(12, tgt_hll_type.HLL_8), kll_doubles_sketch(200)
    for value in i:
        hll.update(value)
    for value in x:
        if not math.isnan(value):
            kll.update(value)
    return {
        "n__n": len(rows),
        "n_i__n": len(i),
        "sum_i__sum": sum(i) if i else None,
        "sum_d__sum": sum(d) if d else None,
        "mean_d__sum": sum(d) if d else None,
        "mean_d__n": len(d),
        "mean_x__sum": sum(x) if x else None,
        "mean_x__n": len(x),
        "min_x__min": _ordered(x)[0] if x else None,
        "max_x__max": _ordered(x)[-1] if x else None,
        "min_s__min": min(s, default=None),
        "max_s__max": max(s, default=None),
        **{f"var_x__{part}": value for part, value in moments.items()},
        **{f"std_x__{part}": value for part, value in moments.items()},
        "distinct_i__hll": hll.serialize_updatable(),
        "median_x__kll": kll.serialize(),
        "ends_x__kll": kll.serialize(),
    }


def _batch(rows: Sequence[Row]) -> Row:
    """Say what one batch gives for a group."""
    i, d, x, s = ([row[c] for row in rows if row[c] is not None] for c in ("i", "d", "x", "s"))
    real = _ordered(value for value in x if not math.isnan(value))
    mean = math.fsum(x) / len(x) if x else None
    variance = None
    if mean is not None and len(x) > 1:
        variance = math.fsum((value - mean) ** 2 for value in x) / (len(x) - 1)
    return {
        "n": len(rows),
        "n_i": len(i),
        "sum_i": sum(i) if i else None,
        "sum_d": sum(d) if d else None,
        "mean_d": (sum(d) / len(d)).quantize(Decimal("1e-6"), ROUND_HALF_UP) if d else None,
        "mean_x": mean,
        "min_x": _ordered(x)[0] if x else None,
        "max_x": _ordered(x)[-1] if x else None,
        "min_s": min(s, default=None),
        "max_s": max(s, default=None),
        "var_x": variance,
        "std_x": None if variance is None else math.sqrt(variance),
        "distinct_i": len(set(i)),
        "median_x": real[math.ceil(len(real) / 2) - 1] if real else None,
        "ends_x": [real[0], real[-1]] if real else None,
    }


def _group(rows: Iterable[Row], keys: Sequence[str]) -> dict[tuple[Any, ...], list[Row]]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(_key(row, keys), []).append(row)
    return groups


def _key(row: Mapping[str, Any], keys: Sequence[str]) -> tuple[Any, ...]:
    return tuple("NaN" if row[k] != row[k] else row[k] for k in keys)


def _state(chunks: Iterable[Sequence[Row]], keys: Sequence[str]) -> pa.Table:
    """Make the state of a window: one partial row for each group of each chunk."""
    rows = [
        {**{k: group[0][k] for k in keys}, **_partial(group)}
        for chunk in chunks
        for group in _group(chunk, keys).values()
    ]
    fields = [
        field for field in PARTIAL_TYPES if field.name not in ("k", "q") or field.name in keys
    ]
    table = pa.Table.from_pylist(rows, schema=pa.schema(fields))
    return table.select([*keys, *(p.column for n, a in AGGREGATES.items() for p in a.partials(n))])


def _same(left: Any, right: Any, tolerance: float = 1e-9) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return math.isclose(left, right, rel_tol=tolerance, abs_tol=1e-9)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)


def _assert_same(found: Iterable[Row], expected: Iterable[Row], keys: Sequence[str]) -> None:
    rows, wanted = list(found), {_key(row, keys): row for row in expected}
    assert len(rows) == len(wanted)
    for row in rows:
        other = wanted[_key(row, keys)]
        differences = {
            # Spark's own variance around a mean of 1e9 is only right to six digits.
            c: (row[c], other[c])
            for c in row
            if not _same(row[c], other[c], 1e-5 if c.endswith("_near") else 1e-9)
        }
        assert {c for c in differences if c not in keys} == set(), differences


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.sampled_from([None, 0.0, 1.5, math.nan]),
            "q": st.integers(0, 2),
            "i": st.none() | st.integers(-(2**58), 2**58) | st.integers(0, 5),
            "d": st.none() | st.decimals(-99_999_999, 99_999_999, places=2),
            "x": st.none()
            | st.sampled_from([math.nan, math.inf, -0.0, 0.0])
            | st.floats(-1e6, 1e6, allow_subnormal=False),
            "s": st.none() | st.text("abé", max_size=3),
        }
    ),
    min_size=1,
    max_size=60,
)


@settings(deadline=None)
@given(rows=ROWS, cuts=st.lists(st.integers(0, 60)), keys=st.sampled_from([["k", "q"], ["q"], []]))
def test_however_rows_are_split_the_result_is_that_of_one_batch(
    rows: list[Row], cuts: list[int], keys: list[str]
) -> None:
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    chunks = [rows[a:b] for a, b in pairwise(edges)]
    result = finish(merge(_state(chunks, keys), keys, AGGREGATES), keys, AGGREGATES)
    assert result.column_names == [*keys, *AGGREGATES]
    expected = [
        {**{k: group[0][k] for k in keys}, **_batch(group)} for group in _group(rows, keys).values()
    ]
    _assert_same(result.to_pylist(), expected, keys)


@settings(deadline=None, max_examples=40)
@given(rows=ROWS, order=st.randoms(use_true_random=False))
def test_merging_is_associative_and_commutative(rows: list[Row], order: Any) -> None:
    chunks = [rows[i::5] for i in range(5) if rows[i::5]]
    at_once = merge(_state(chunks, ["k", "q"]), ["k", "q"], AGGREGATES)
    order.shuffle(chunks)
    piece = merge(_state(chunks[:1], ["k", "q"]), ["k", "q"], AGGREGATES)
    for chunk in chunks[1:]:
        both = pa.concat_tables([piece, _state([chunk], ["k", "q"])])
        piece = merge(both, ["k", "q"], AGGREGATES)
    assert piece.schema == at_once.schema
    left, right = (finish(t, ["k", "q"], AGGREGATES).to_pylist() for t in (piece, at_once))
    _assert_same(left, right, ["k", "q"])


@settings(deadline=None, max_examples=40)
@given(rows=ROWS)
def test_merging_what_is_merged_changes_nothing(rows: list[Row]) -> None:
    once = merge(_state([rows[::2], rows[1::2]], ["k"]), ["k"], AGGREGATES)
    twice = merge(once, ["k"], AGGREGATES)
    assert twice.schema == once.schema
    _assert_same(twice.to_pylist(), once.to_pylist(), ["k"])
    assert twice.num_rows == len(_group(rows, ["k"]))


def _sum_state(values: Sequence[int | Decimal | None], to: pa.DataType) -> pa.Table:
    return pa.table({"t__sum": pa.array(values, type=to)})


def test_integer_sums_stay_exact_beyond_doubles_and_up_to_the_last_bigint() -> None:
    state = _sum_state([2**63 - 1, -(2**63), 2**63 - 1, 1, None, -1], pa.int64())
    merged = merge(state, [], {"t": sw.sum("x")})
    assert merged["t__sum"].to_pylist() == [2**63 - 2]


@pytest.mark.parametrize("values", [[2**63 - 1, 1], [-(2**63), -1], [2**62] * 2])
def test_a_bigint_sum_that_overflows_raises_instead_of_wrapping(values: list[int]) -> None:
    with pytest.raises(AggregateOverflowError, match="'t' does not fit into bigint"):
        merge(_sum_state(values, pa.int64()), [], {"t": sw.sum("x")})


def test_a_decimal_sum_that_overflows_raises_instead_of_wrapping() -> None:
    state = _sum_state([Decimal("9" * 38)] * 2, pa.decimal128(38, 0))
    with pytest.raises(AggregateOverflowError, match=r"decimal\(38,0\)"):
        merge(state, [], {"t": sw.sum("x")})


def test_a_bigint_sum_wraps_where_spark_does() -> None:
    total = sw.sum("x").over("bigint", "here", ansi=False)
    state = _sum_state([2**63 - 1, 1], pa.int64())
    assert merge(state, [], {"t": total})["t__sum"].to_pylist() == [-(2**63)]


@pytest.mark.parametrize(
    ("sums", "counts", "merged"),
    [
        ([None, 1], [2, 1], None),  # the first overflowed when it was made
        ([None, 1], [0, 1], 1),  # there was nothing to add
        ([10**38 - 1, 1], [1, 1], None),
        ([-(10**38 - 1), -1], [1, 1], None),
        ([10**38 - 1, 0], [1, 1], 10**38 - 1),
        ([None, None], [0, 0], None),
    ],
)
def test_a_decimal_sum_that_overflowed_stays_null_where_spark_gives_null(
    sums: list[int | None], counts: list[int], merged: int | None
) -> None:
    kind = pa.decimal128(38, 0)
    for aggregate in (sw.sum("x"), sw.mean("x")):
        bound = {"s": aggregate.over("decimal(38,0)", "here", ansi=False)}
        state = pa.table(
            {"k": [1, 1], "s__sum": pa.array(sums, kind), "s__n": pa.array(counts, pa.int64())}
        )
        once = merge(state, ["k"], bound)
        assert once["s__sum"].to_pylist() == [merged]
        # What came to nothing is not forgotten by the next merge.
        more = pa.table({"k": [1], "s__sum": pa.array([5], kind), "s__n": pa.array([1])})
        twice = merge(pa.concat_tables([once, more.cast(once.schema)]), ["k"], bound)
        lost = merged is None and sum(counts) > 0
        expected = None if lost or merged == 10**38 - 1 else (merged or 0) + 5
        assert twice["s__sum"].to_pylist() == [expected]


def test_a_small_variance_around_a_large_mean_keeps_its_digits() -> None:
    values = 1e9 + np.random.default_rng(7).normal(0, 1e-3, 10_000)
    parts = np.array_split(values, 97)
    state = pa.table(
        {
            "v__n": [len(p) for p in parts],
            "v__mean": [p.mean() for p in parts],
            "v__m2": [((p - p.mean()) ** 2).sum() for p in parts],
        }
    )
    aggregates = {"v": sw.variance("x")}
    found = finish(merge(state, [], aggregates), [], aggregates)["v"][0].as_py()
    # Doubles near 1e9 lie 1e-7 apart, so means of noise of 1e-3 are known to four digits.
    assert found == pytest.approx(values.var(ddof=1), rel=1e-4)


def test_further_columns_can_be_added_up() -> None:
    table = pa.table({"k": ["a", "b", "a"], "rows": [1, 2, 3], "n__n": [1, 1, 1]})
    merged = merge(table, ["k"], {"n": sw.count()}, sums=["rows"])
    assert merged.to_pydict() == {"k": ["a", "b"], "rows": [4, 2], "n__n": [2, 1]}


def test_an_empty_state_merges_and_finishes_as_empty() -> None:
    for keys in ([], ["k", "q"]):
        state = _state([], keys)
        assert finish(merge(state, keys, AGGREGATES), keys, AGGREGATES).num_rows == 0


def test_many_keys_do_not_overflow_group_numbers() -> None:
    rows = 3_000
    keys = [f"k{i}" for i in range(8)]
    columns = {key: pa.array(np.arange(rows) // 2) for key in keys}
    merged = merge(pa.table({**columns, "n__n": np.ones(rows, np.int64)}), keys, {"n": sw.count()})
    assert merged["n__n"].to_pylist() == [2] * (rows // 2)


SPARK_AGGREGATES: dict[str, tuple[Aggregate, str]] = {
    "n": (sw.count(), ""),
    **{f"n_{c}": (sw.count(c), c) for c in ("x", "s", "t")},
    **{f"sum_{c}": (sw.sum(c), c) for c in ("i", "small", "x", "f", "d", "wide")},
    **{f"mean_{c}": (sw.mean(c), c) for c in ("i", "small", "x", "f", "d", "near")},
    **{
        f"min_{c}": (sw.min(c), c)
        for c in ("i", "x", "f", "d", "wide", "s", "b", "t", "day", "raw")
    },
    **{
        f"max_{c}": (sw.max(c), c)
        for c in ("i", "x", "f", "d", "wide", "s", "b", "t", "day", "raw")
    },
    **{f"var_{c}": (sw.variance(c), c) for c in ("i", "x", "d", "near")},
    **{f"std_{c}": (sw.stddev(c), c) for c in ("x", "near")},
    **{f"distinct_{c}": (sw.approx_distinct(c), c) for c in ("i", "x", "d", "s", "b", "t", "day")},
    "sum_odd": (sw.sum("CASE WHEN i % 2 = 1 THEN d END"), "d"),
    "median_x": (sw.approx_quantile("x", 0.5), "x"),
    "quartiles_d": (sw.approx_quantile("d", [0.25, 0.5, 0.75]), "d"),
}


def _rows(count: int) -> pa.Table:
    """Make rows with everything odd in them; the key 'empty' has no values, 'one' a single row."""
    random = np.random.default_rng(3)
    rows = []
    for index in range(count):
        odd = random.integers(0, 8)
        noise = float(random.normal())
        rows.append(
            {
                "key": [None, "a", "b", "nans"][index % 4],
                "chunk": int(random.integers(0, 6)),
                "i": int(random.integers(2**53, 2**56)) if odd else None,
                "small": int(random.integers(-100, 100)),
                "x": math.nan if index % 4 == 3 or index == 5 else [noise, -0.0, None][odd % 3],
                "f": [noise, math.nan, None, math.inf, -1.5, 2.5, 0.0, -0.0][odd],
                "d": Decimal(int(random.integers(-(10**9), 10**9))).scaleb(-2) if odd else None,
                "wide": Decimal(int(random.integers(0, 2**62))).scaleb(-18) * 10**9,
                "near": 1e9 + noise * 1e-2,
                "s": ["é", "z", "ab", "b", None, "Z", "zz", "a"][odd],
                "b": [True, False, None][odd % 3],
                "t": datetime(2024, 1, 1) + timedelta(microseconds=int(random.integers(10**12))),
                "day": date(2024, 1, 1) + timedelta(days=int(odd)),
                "raw": bytes([int(odd) * 36, 1]),
            }
        )
    nothing = dict.fromkeys(rows[0])
    rows += [{**nothing, "key": "empty", "chunk": chunk} for chunk in range(3)]
    rows += [{**rows[0], "key": "one", "x": 1.5, "d": Decimal("0.05")}]
    schema = pa.schema(
        {
            "key": pa.string(), "chunk": pa.int32(), "i": pa.int64(), "small": pa.int8(),
            "x": pa.float64(), "f": pa.float32(), "d": pa.decimal128(10, 2),
            "wide": pa.decimal128(38, 18), "near": pa.float64(), "s": pa.string(),
            "b": pa.bool_(), "t": pa.timestamp("us", tz="UTC"), "day": pa.date32(),
            "raw": pa.binary(),
        }
    )  # fmt: skip
    return pa.Table.from_pylist(rows, schema=schema)


def _three_ways(
    spark: SparkSession, frame: DataFrame, keys: list[str], aggregates: Mapping[str, Aggregate]
) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Aggregate as one batch; in chunks merged by the driver; in chunks merged by Spark."""
    batch = frame.groupBy(*keys).agg(
        *(F.expr(a.batch_sql).alias(name) for name, a in aggregates.items())
    )
    partials = [p for name, a in aggregates.items() for p in a.partials(name)]
    state = (
        frame.groupBy(*keys, "chunk")
        .agg(*(F.expr(p.sql).alias(p.column) for p in partials))
        .drop("chunk")
        .toArrow()
    )
    driver = finish(merge(state, keys, aggregates), keys, aggregates)
    merged = (
        spark.createDataFrame(state)
        .groupBy(*keys)
        .agg(*(F.expr(sql) for name, a in aggregates.items() for sql in a.merge_sql(name)))
        .selectExpr(*keys, *(f"{a.finish_sql(n)} AS {quoted(n)}" for n, a in aggregates.items()))
    )
    return batch.toArrow(), driver, merged.toArrow()


@pytest.mark.spark
@pytest.mark.parametrize("keys", [["key"], []], ids=["grouped", "global"])
def test_driver_and_spark_merging_equal_one_spark_batch(
    spark: SparkSession, keys: list[str]
) -> None:
    frame = spark.createDataFrame(_rows(160 if not keys else 600))
    types = dict(frame.dtypes)
    aggregates = {
        name: aggregate.over(types[column], "here") if column else aggregate
        for name, (aggregate, column) in SPARK_AGGREGATES.items()
    }
    batch, driver, merged = _three_ways(spark, frame, keys, aggregates)
    assert driver.schema.names == batch.schema.names
    assert driver.schema.types == batch.schema.types
    assert merged.schema.types == batch.schema.types
    _assert_same(driver.to_pylist(), batch.to_pylist(), keys)
    _assert_same(merged.to_pylist(), batch.to_pylist(), keys)


def _extremes(groups: int) -> pa.Table:
    """Make groups of values at the ends of their types.

    Within a group decimals and doubles have one sign: where signs mix, it depends on the order of
    addition whether a batch overflows on the way.
    """
    random = np.random.default_rng(11)
    rows: list[Row] = []
    for group in range(groups):
        sign = 1 if group % 2 else -1
        for _ in range(int(random.integers(1, 7))):
            odd = int(random.integers(0, 6))
            rows.append(
                {
                    "key": group,
                    "chunk": int(random.integers(0, 3)),
                    "i": [2**63 - 1, -(2**63), 1, -1, 0, None][odd],
                    "small": [127, -128, 0, None, 1, -1][odd],
                    "d": [10**38 - 1, 6 * 10**37, 4 * 10**37, 1, 0, None][odd],
                    "scaled": [10**38 - 1, 5 * 10**37, 1, 0, 0, None][odd],
                    "tight": [10**28 - 1, 1, 0, 0, None, 10**28 - 1][odd],
                    "x": [1e308, 1.7e308, math.inf, 5e-324, 0.0, None][odd],
                    "f": [3.4e38, 1e-45, math.inf, math.nan, None, 0.0][odd],
                }
            )
            for name in ("d", "scaled", "tight", "x"):
                if rows[-1][name] is not None:
                    rows[-1][name] *= sign
    for row in rows:
        for name, scale in (("d", 0), ("scaled", 38), ("tight", 0)):
            if row[name] is not None:
                row[name] = Decimal(row[name]).scaleb(-scale, Context(prec=40))
    schema = pa.schema(
        {
            "key": pa.int32(), "chunk": pa.int32(), "i": pa.int64(), "small": pa.int8(),
            "d": pa.decimal128(38, 0), "scaled": pa.decimal128(38, 38),
            "tight": pa.decimal128(28, 0), "x": pa.float64(), "f": pa.float32(),
        }
    )  # fmt: skip
    return pa.Table.from_pylist(rows, schema=schema)


@pytest.mark.spark
def test_at_the_ends_of_types_merging_equals_a_batch_without_ansi_mode(
    spark: SparkSession,
) -> None:
    rows = _extremes(400)
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        frame = spark.createDataFrame(rows)
        types = dict(frame.dtypes)
        aggregates = {
            f"{each.function}_{column}": each.over(types[column], "here", ansi=False)
            for column in ("i", "small", "d", "scaled", "tight", "x", "f")
            for each in (sw.sum(column), sw.mean(column), sw.min(column), sw.max(column))
            # Spark adds doubles for it: what is left of both ends depends on the order of addition.
            if (each.function, column) != ("mean", "i")
        }
        batch, driver, merged = _three_ways(spark, frame, ["key"], aggregates)
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert driver.schema.types == batch.schema.types
    assert batch["sum_d"].null_count > 50  # overflows were among them
    _assert_same(driver.to_pylist(), batch.to_pylist(), ["key"])
    _assert_same(merged.to_pylist(), batch.to_pylist(), ["key"])


@pytest.mark.spark
def test_sketches_of_many_values_agree_however_they_are_split(spark: SparkSession) -> None:
    count = 50_000
    frame = spark.range(0, count, 1, 3).selectExpr(
        "id", "CAST(id % 7 AS INT) AS chunk", "CAST(id * 7919 % 50000 AS DOUBLE) AS x"
    )
    aggregates = {
        "distinct": sw.approx_distinct("id").over("bigint", "here"),
        "distinct_x": sw.approx_distinct("x", lg_k=14).over("double", "here"),
        "quantiles": sw.approx_quantile("x", (0.01, 0.5, 0.99)),
    }
    tables = _three_ways(spark, frame, [], aggregates)
    batch, driver, merged = (table.to_pylist()[0] for table in tables)
    for name in ("distinct", "distinct_x"):
        assert driver[name] == batch[name] == merged[name]
        assert batch[name] == pytest.approx(count, rel=0.05)
    for row in (batch, driver, merged):
        ranks = [value / count for value in row["quantiles"]]
        # Four times the error that 99 % of sketches stay within.
        assert ranks == pytest.approx([0.01, 0.5, 0.99], abs=0.055)
