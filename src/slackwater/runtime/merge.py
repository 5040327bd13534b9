"""Merge and finish small windows' partials in the driver, many windows of many queries at once.

Rows with equal keys become one row, by numpy and Arrow kernels over whole columns; only sketches
are merged one by one, and only where a group has more than one. Results equal Spark's own: NaN is
larger than any number, integers stay exact, sums that Spark would refuse raise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasketches import hll_sketch, hll_union, kll_doubles_sketch, tgt_hll_type
from numpy.typing import NDArray

from slackwater.app.aggregates import (
    Aggregate,
    ApproxDistinct,
    ApproxQuantile,
    Mean,
    MergeKind,
    Overflow,
    Partial,
    StdDev,
    Variance,
)
from slackwater.app.types import decimal_digits
from slackwater.errors import SlackwaterError

_INT64_MAX = 2**63 - 1
_RADIX_LIMIT = 2**62
_QUANTILES = pa.list_(pa.field("element", pa.float64(), nullable=False))  # as Spark names it
_SKIP_NULLS = pc.ScalarAggregateOptions(skip_nulls=True, min_count=1)


class AggregateOverflowError(SlackwaterError, OverflowError):
    """Report a result too large for its type: aggregate a wider type, such as CAST(x AS DOUBLE)."""


@dataclass(frozen=True)
class _Groups:
    """Number the group of each row, in order of first appearance."""

    ids: NDArray[np.int64]
    count: int

    @property
    def first_rows(self) -> NDArray[np.int64]:
        """Find the first row of each group."""
        first = np.empty(self.count, dtype=np.int64)
        # Written backwards, so that the earliest row is the one that stays.
        first[self.ids[::-1]] = np.arange(len(self.ids) - 1, -1, -1)
        return first

    def total(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add values up by group, in row order."""
        return np.bincount(self.ids, values, self.count).astype(np.float64, copy=False)


def merge(
    table: pa.Table,
    keys: Sequence[str],
    aggregates: Mapping[str, Aggregate],
    *,
    sums: Sequence[str] = (),
) -> pa.Table:
    """Merge all partial rows with equal keys; nothing is copied where there are none.

    The result has the keys, then `sums` (further columns to add up, such as a count of rows), then
    the partials, with the types they came with: it can be merged again with later partials.
    """
    partials = [
        *(Partial(column, "", MergeKind.SUM) for column in sums),
        *(p for name, aggregate in aggregates.items() for p in aggregate.partials(name)),
    ]
    table = table.select([*keys, *(p.column for p in partials)])
    groups = _group(table, keys)
    if groups.count == table.num_rows:
        return table
    table = table.combine_chunks()
    merged = _reduce(table, [p for p in partials if p.merge in _REDUCTIONS], groups)
    moments = [p.column for p in partials if p.merge is MergeKind.MOMENTS]
    for i in range(0, len(moments), 3):
        columns = moments[i : i + 3]
        merged |= zip(columns, _merge_moments(table.select(columns), groups), strict=True)
    for p in partials:
        if p.merge in _SKETCH_MERGERS:
            merged[p.column] = _merge_sketches(table[p.column], groups, _SKETCH_MERGERS[p.merge])
    heads = table.select(keys).take(groups.first_rows) if keys else table.select([])
    arrays = [*heads.columns, *(merged[p.column] for p in partials)]
    return pa.Table.from_arrays(arrays, schema=table.schema)


def group_numbers(table: pa.Table, keys: Sequence[str]) -> NDArray[np.int64]:
    """Return the number of each row's group of equal keys."""
    return _group(table, keys).ids


def finish(table: pa.Table, keys: Sequence[str], aggregates: Mapping[str, Aggregate]) -> pa.Table:
    """Make results from merged partials: the keys, then one column for each aggregate."""
    results = [_finish(aggregate, name, table) for name, aggregate in aggregates.items()]
    columns = [*(table[key] for key in keys), *results]
    fields = [
        *(table.schema.field(key) for key in keys),
        *(pa.field(name, column.type) for name, column in zip(aggregates, results, strict=True)),
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def group_ids(table: pa.Table, keys: Sequence[str]) -> tuple[NDArray[np.int64], pa.Table]:
    """Find the group of each row, in order of first appearance, and the keys of each group."""
    groups = _group(table, keys)
    heads = table.select(keys).take(groups.first_rows) if keys else table.select([])
    return groups.ids, heads


def _group(table: pa.Table, keys: Sequence[str]) -> _Groups:
    rows = table.num_rows
    codes, radix = np.zeros(rows, dtype=np.int64), 1
    for key in keys:
        key_codes, size = _encode(table[key])
        if radix * size > _RADIX_LIMIT:
            codes, radix = _encode(pa.array(codes))
        codes, radix = codes * size + key_codes, radix * size
    if len(keys) > 1:
        codes, radix = _encode(pa.array(codes))
    return _Groups(codes, radix if keys else min(rows, 1))


def _encode(values: pa.Array | pa.ChunkedArray) -> tuple[NDArray[np.int64], int]:
    """Give each different value (null is one) a number, in order of first appearance."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    encoded = pc.dictionary_encode(values, null_encoding="encode")
    return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)


_REDUCTIONS = {MergeKind.SUM: "sum", MergeKind.MIN: "min", MergeKind.MAX: "max"}


def _reduce(table: pa.Table, partials: Sequence[Partial], groups: _Groups) -> dict[str, pa.Array]:
    """Run one Arrow grouping for all sums and extremes."""
    if not partials:
        return {}
    inputs: dict[str, pa.Array] = {"": pa.array(groups.ids)}
    calls = []
    for p in partials:
        values = table[p.column].combine_chunks()
        for part, column in _encode_for(p, values).items():
            inputs[p.column + part] = column
            calls.append((p.column + part, _REDUCTIONS[p.merge], _SKIP_NULLS))
    # Without threads, groups come out in order of first appearance, which is their number.
    reduced = pa.table(inputs).group_by("", use_threads=False).aggregate(calls).combine_chunks()
    merged = {}
    for p in partials:
        name, kind = p.column, _REDUCTIONS[p.merge]
        parts = {
            part: reduced[f"{name}{part}_{kind}"].combine_chunks()
            for part in ("", _HIGH, _LOW)
            if name + part in inputs
        }
        merged[name] = _decode(p, parts, table.schema.field(name).type)
        if p.counted_by is not None:
            lost = _lost(table[name], table[p.counted_by], groups)
            merged[name] = pc.if_else(lost, None, merged[name])
    return merged


_HIGH, _LOW = "\0high", "\0low"


def _lost(sums: pa.ChunkedArray, counts: pa.ChunkedArray, groups: _Groups) -> pa.Array:
    """Tell which groups hold a sum that has overflowed: null, though something was added."""
    lost = pc.and_(pc.is_null(sums), pc.greater(counts, 0)).to_numpy().astype(np.float64)
    return pa.array(groups.total(lost) > 0)


def _encode_for(partial: Partial, values: pa.Array) -> dict[str, pa.Array]:
    """Turn values into columns on which Arrow's plain kernels do what Spark does."""
    if partial.merge is not MergeKind.SUM:
        return {"": _to_ordered(values) if pa.types.is_floating(values.type) else values}
    if pa.types.is_decimal(values.type):
        # Arrow's sum of decimal128 wraps around silently.
        return {"": values.cast(pa.decimal256(76, values.type.scale))}
    # Arrow's sum of integers wraps around, as Spark's does without ANSI mode.
    wraps = partial.overflow is Overflow.WRAPS
    if pa.types.is_integer(values.type) and not wraps and _may_overflow(values):
        return {
            _HIGH: pc.shift_right(values, 32),
            _LOW: pc.bit_wise_and(values, pa.scalar(0xFFFF_FFFF, values.type)),
        }
    return {"": values}


def _decode(partial: Partial, parts: Mapping[str, pa.Array], to: pa.DataType) -> pa.Array:
    if _HIGH in parts:
        return _join_halves(partial.column, parts[_HIGH], parts[_LOW])
    values = parts[""]
    if partial.merge is not MergeKind.SUM:
        return _from_ordered(values, to) if pa.types.is_floating(to) else values
    if not pa.types.is_decimal(to):
        return values
    return _narrow(partial.column, values, to, nulls=partial.overflow is Overflow.NULLS)


def _may_overflow(values: pa.Array) -> bool:
    bounds = pc.min_max(values).as_py()
    largest = max(abs(bounds["min"] or 0), abs(bounds["max"] or 0))
    return bool(largest * len(values) > _INT64_MAX)


def _join_halves(column: str, high: pa.Array, low: pa.Array) -> pa.Array:
    """Join sums of the upper and lower 32 bits; neither can overflow, the whole may."""
    low_sums = low.fill_null(0).to_numpy()
    high_sums = high.fill_null(0).to_numpy() + (low_sums >> 32)
    if len(high_sums) and (high_sums.max() >= 2**31 or high_sums.min() < -(2**31)):
        raise _overflow(column, "bigint")
    whole = (high_sums << 32) | (low_sums & 0xFFFF_FFFF)
    return pa.array(whole, mask=high.is_null().to_numpy(zero_copy_only=False))


def _narrow(column: str, values: pa.Array, to: pa.DataType, *, nulls: bool = False) -> pa.Array:
    """Give decimals their type; what it cannot hold raises, or is null."""
    if nulls:
        wide = pa.decimal256(76, values.type.scale)
        limit = pa.scalar(Decimal(10) ** (to.precision - to.scale), wide)
        values = pc.if_else(pc.less(pc.abs(values), limit), values, None)
    try:
        return values.cast(to)
    except pa.ArrowInvalid as error:
        raise _overflow(column, f"decimal({to.precision},{to.scale})") from error


def _overflow(column: str, type_name: str) -> AggregateOverflowError:
    name = column.rpartition("__")[0]
    return AggregateOverflowError(
        f"the aggregate {name!r} does not fit into {type_name}; "
        "aggregate a wider type, such as CAST(... AS DOUBLE)"
    )


def _to_ordered(values: pa.Array) -> pa.Array:
    """Map floats to integers of the same order, NaN above infinity: Arrow's extremes skip NaN."""
    floats = values.fill_null(0.0).to_numpy().copy()
    floats[np.isnan(floats)] = np.nan  # one NaN for all, the positive one
    bits = floats.view(np.int32 if floats.itemsize == 4 else np.int64)
    return pa.array(_flip(bits), mask=values.is_null().to_numpy(zero_copy_only=False))


def _from_ordered(ordered: pa.Array, to: pa.DataType) -> pa.Array:
    floats = _flip(ordered.fill_null(0).to_numpy()).view(to.to_pandas_dtype())
    return pa.array(
        floats, mask=ordered.is_null().to_numpy(zero_copy_only=False), from_pandas=False
    )


def _flip(bits: NDArray[np.signedinteger]) -> NDArray[np.signedinteger]:
    """Flip all but the sign of negative numbers, whose bits grow the wrong way. Undoes itself."""
    return bits ^ ((bits >> (bits.itemsize * 8 - 1)) & np.iinfo(bits.dtype).max)


def _merge_moments(columns: pa.Table, groups: _Groups) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Merge counts, means and squared deviations, around each group's own mean."""
    n, means, m2 = (pc.fill_null(c, 0).to_numpy().astype(np.float64) for c in columns.columns)
    counts = groups.total(n)
    share = np.divide(n, counts[groups.ids], out=np.zeros_like(n), where=n > 0)
    with np.errstate(over="ignore", invalid="ignore"):
        merged_means = groups.total(share * means)
        away = np.where(n > 0, means - merged_means[groups.ids], 0.0)
        merged_m2 = groups.total(m2 + n * away * away)
    empty = counts == 0
    return (
        pa.array(counts.astype(np.int64)),
        pa.array(merged_means, mask=empty, from_pandas=False),
        pa.array(merged_m2, mask=empty, from_pandas=False),
    )


def _merge_sketches(
    column: pa.ChunkedArray, groups: _Groups, merge_all: Callable[[list[bytes]], bytes]
) -> pa.Array:
    found: list[list[bytes]] = [[] for _ in range(groups.count)]
    for group, sketch in zip(groups.ids.tolist(), column.to_pylist(), strict=True):
        if sketch is not None:
            found[group].append(sketch)
    merged = [merge_all(s) if len(s) > 1 else next(iter(s), None) for s in found]
    return pa.array(merged, type=column.type)


def _merge_hll(sketches: list[bytes]) -> bytes:
    opened = [hll_sketch.deserialize(sketch) for sketch in sketches]
    union = hll_union(opened[0].lg_config_k)
    for sketch in opened:
        union.update(sketch)
    return bytes(union.get_result(tgt_hll_type.HLL_8).serialize_compact())


def _merge_kll(sketches: list[bytes]) -> bytes:
    merged = kll_doubles_sketch.deserialize(sketches[0])
    for sketch in sketches[1:]:
        merged.merge(kll_doubles_sketch.deserialize(sketch))
    return bytes(merged.serialize())


_SKETCH_MERGERS = {MergeKind.HLL: _merge_hll, MergeKind.KLL: _merge_kll}


def _finish(aggregate: Aggregate, name: str, table: pa.Table) -> pa.Array | pa.ChunkedArray:
    columns = [table[p.column] for p in aggregate.partials(name)]
    match aggregate:
        case Mean():
            return _divide(aggregate, f"{name}__sum", *columns)
        case Variance():
            enough = pc.if_else(pc.greater(columns[0], 1), columns[0], None)
            degrees = pc.subtract(enough, 1).cast(pa.float64())
            found = pc.divide(columns[2], degrees)
            return pc.sqrt(found) if isinstance(aggregate, StdDev) else found
        case ApproxDistinct():
            return pa.array(map(_estimate_distinct, columns[0].to_pylist()), type=pa.int64())
        case ApproxQuantile():
            to = _QUANTILES if isinstance(aggregate.p, tuple) else pa.float64()
            found = (_read_quantiles(sketch, aggregate.p) for sketch in columns[0].to_pylist())
            return pa.array(found, type=to)
        case _:
            return columns[0]


def _divide(mean: Mean, column: str, total: pa.ChunkedArray, n: pa.ChunkedArray) -> pa.ChunkedArray:
    digits = decimal_digits(mean.decimal_type or "")
    if digits is None:
        return pc.divide(total, n.cast(pa.float64()))
    # Division cuts digits off; with at least one more than is kept, rounding half up is then exact.
    wide = total.cast(pa.decimal256(total.type.precision, total.type.scale))
    quotient = pc.divide(wide, n.cast(pa.decimal256(20, 0)))
    rounded = pc.round(quotient, digits[1], "half_towards_infinity")
    return _narrow(column, rounded, pa.decimal128(*digits), nulls=not mean.ansi)


def _estimate_distinct(sketch: bytes | None) -> int:
    if sketch is None:
        return 0
    opened = hll_sketch.deserialize(sketch)
    union = hll_union(opened.lg_config_k)
    # Twice, on purpose: see ApproxDistinct.
    union.update(opened)
    union.update(opened)
    return int(np.floor(union.get_estimate() + 0.5))


def _read_quantiles(
    sketch: bytes | None, p: float | tuple[float, ...]
) -> float | list[float] | None:
    opened = None if sketch is None else kll_doubles_sketch.deserialize(sketch)
    if opened is None or opened.is_empty():
        return None
    if isinstance(p, tuple):
        return [opened.get_quantile(rank, True) for rank in p]
    return float(opened.get_quantile(p, True))
