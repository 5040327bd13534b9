"""Aggregates as descriptions: what they refuse, what they say, the SQL they stand for."""

from __future__ import annotations

from typing import Any

import pytest

from slackwater.app import aggregates as sw
from slackwater.app.aggregates import Aggregate, MergeKind
from slackwater.app.types import check_key
from slackwater.errors import DescriptionError

ALL: tuple[Aggregate, ...] = (
    sw.count(),
    sw.count("x"),
    sw.sum("x"),
    sw.mean("x"),
    sw.min("x"),
    sw.max("x"),
    sw.variance("x"),
    sw.stddev("x"),
    sw.approx_distinct("x"),
    sw.approx_quantile("x", 0.5),
)
ARITHMETIC = [a for a in ALL if a.function in ("sum", "mean", "variance", "stddev")]
ARITHMETIC.append(sw.approx_quantile("x", [0.1, 0.9]))


def test_sum_over_text_is_refused_with_the_remedy() -> None:
    with pytest.raises(DescriptionError) as refused:
        sw.sum("name").over("string", "aggregate(total=...)")
    assert str(refused.value) == (
        "sum('name') in aggregate(total=...) is over text (string); cast it to a number first, "
        "such as sum('CAST(name AS DOUBLE)')"
    )


@pytest.mark.parametrize("aggregate", ARITHMETIC, ids=lambda aggregate: aggregate.function)
def test_arithmetic_takes_numbers_only(aggregate: Aggregate) -> None:
    for type_name, remedy in {
        **dict.fromkeys(("string", "varchar(9)", "boolean", "void"), "cast it to a number first"),
        "date": "unix_date",
        "timestamp": "unix_micros",
        "timestamp_ntz": "compute a number",
        "binary": "compute a number",
        "interval day to second": "compute a number",
        "array<int>": "make one number of each array",
        "map<string,int>": "one of its values",
        "struct<a:int>": r"one of its fields.*x\.a'",
        "variant": "variant_get",
    }.items():
        with pytest.raises(DescriptionError, match=remedy) as refused:
            aggregate.over(type_name, "aggregate(a=...)")
        assert type_name in str(refused.value)
        assert f"{aggregate.function}('x'" in str(refused.value)


def test_a_column_whose_name_is_no_expression_is_bound_by_its_name() -> None:
    bound = sw.sum("unit `price`").over("double", "aggregate(a=...)", named=True)
    assert bound.batch_sql == "sum(`unit ``price```)"
    assert bound.label == "sum('unit `price`')"


@pytest.mark.parametrize("aggregate", ALL, ids=lambda aggregate: aggregate.label)
@pytest.mark.parametrize(
    "type_name",
    ["tinyint", "smallint", "int", "bigint", "float", "double", "decimal(10,2)", "decimal(38,18)"],
)
def test_every_aggregate_takes_every_number(aggregate: Aggregate, type_name: str) -> None:
    bound = aggregate.over(type_name, "aggregate(a=...)")
    assert bound.type_name == type_name
    assert bound.column == aggregate.column


@pytest.mark.parametrize("aggregate", [sw.min("x"), sw.max("x"), sw.approx_distinct("x")])
def test_extremes_and_distinct_take_plain_types_and_refuse_nested_or_collated(
    aggregate: Aggregate,
) -> None:
    for plain in ("string", "boolean", "date", "timestamp", "timestamp_ntz", "binary"):
        aggregate.over(plain, "aggregate(a=...)")
    for other in ("array<int>", "struct<a:int>", "map<int,int>", "string collate UTF8_LCASE"):
        with pytest.raises(DescriptionError, match="plain column"):
            aggregate.over(other, "aggregate(a=...)")


def test_count_takes_any_type() -> None:
    for type_name in ("string", "array<int>", "map<int,int>", "variant"):
        assert sw.count("x").over(type_name, "aggregate(n=...)").type_name == type_name


def test_keys_whose_equality_only_spark_knows_are_refused() -> None:
    check_key("k", "string", "window(by=...)")
    with pytest.raises(DescriptionError, match=r"window: by='k'.*CAST\(`k` AS STRING COLLATE"):
        check_key("k", "string collate UTF8_LCASE", "window")
    with pytest.raises(DescriptionError, match=r"arrays \(array<int>\).*to_json"):
        check_key("k", "array<int>", "window")
    for kind in ("time(6)", "interval day to second", "variant", "map<int,int>", "geometry(4326)"):
        with pytest.raises(DescriptionError, match="cannot be a key"):
            check_key("k", kind, "window")


@pytest.mark.parametrize("column", ["", "  ", None, 3])
def test_an_empty_column_is_refused(column: Any) -> None:
    with pytest.raises(DescriptionError, match="column="):
        sw.sum(column)


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan"), True, "0.5", (0.5, 2.0), ()])
def test_ranks_outside_zero_to_one_are_refused(p: Any) -> None:
    with pytest.raises(DescriptionError, match="approx_quantile"):
        sw.approx_quantile("x", p)


@pytest.mark.parametrize("size", [3, 12.0, True, 100_000])
def test_sketch_sizes_out_of_range_are_refused(size: Any) -> None:
    with pytest.raises(DescriptionError, match="lg_k="):
        sw.approx_distinct("x", lg_k=size)
    with pytest.raises(DescriptionError, match="k="):
        sw.approx_quantile("x", 0.5, k=size)


@pytest.mark.parametrize("aggregate", ALL, ids=lambda aggregate: aggregate.label)
def test_partial_columns_start_with_the_result_name_and_merge_into_themselves(
    aggregate: Aggregate,
) -> None:
    partials = aggregate.partials("r")
    assert all(p.column.startswith("r__") for p in partials)
    assert len({p.column for p in partials}) == len(partials)
    merged = aggregate.merge_sql("r")
    assert [sql.rpartition(" AS ")[2] for sql in merged] == [f"`{p.column}`" for p in partials]


def test_decimal_sums_and_means_keep_sparks_types() -> None:
    total = sw.sum("x").over("decimal(10,2)", "here")
    assert total.partials("r")[0].keeps_type == "decimal(20,2)"
    assert sw.mean("x").over("decimal(30,20)", "here").decimal_type == "decimal(34,24)"
    assert sw.mean("x").over("decimal(38,4)", "here").decimal_type == "decimal(38,8)"
    assert sw.mean("x").over("double", "here").decimal_type is None


def test_moments_belong_together() -> None:
    assert [p.merge for p in sw.stddev("x").partials("r")] == [MergeKind.MOMENTS] * 3


def test_names_are_quoted_in_sql() -> None:
    assert sw.sum("x").finish_sql("total `odd`") == "`total ``odd``__sum`"
