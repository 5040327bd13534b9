"""Partials of finished rows, for a further stage: each row is all there is of itself.

The columns have the names and types that Spark's own partials have, so that they merge alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.app.aggregates import Aggregate, Count, Mean, Sum, Variance
from slackwater.app.types import MAX_DECIMAL_DIGITS


def row_partials(
    table: pa.Table, keys: Sequence[str], aggregates: Mapping[str, Aggregate]
) -> pa.Table:
    """Turn each row into the partials of a group of one."""
    columns = {key: _as_key(table[key]) for key in keys}
    for name, aggregate in aggregates.items():
        names = [partial.column for partial in aggregate.partials(name)]
        columns |= zip(names, _partials(aggregate, table), strict=True)
    return pa.table(columns)


def _partials(aggregate: Aggregate, table: pa.Table) -> tuple[pa.ChunkedArray, ...]:
    if aggregate.column is None:
        return (pa.array(np.ones(table.num_rows, dtype=np.int64)),)
    values = table[aggregate.column]
    there = pc.is_valid(values).cast(pa.int64())
    match aggregate:
        case Count():
            return (there,)
        case Sum():
            total = values.cast(_sum_type(values.type))
            return (total, there) if len(aggregate.partials("")) > 1 else (total,)
        case Mean():
            decimal = pa.types.is_decimal(values.type)
            return values.cast(_sum_type(values.type) if decimal else pa.float64()), there
        case Variance():
            doubles = values.cast(pa.float64())
            # A value deviates from itself by nothing; infinity and NaN, as in Spark, by NaN.
            return there, doubles, pc.subtract(doubles, doubles)
        case _:
            return (values,)


def _sum_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that Spark adds such values up in."""
    if pa.types.is_decimal(kind):
        return pa.decimal128(min(kind.precision + 10, MAX_DECIMAL_DIGITS), kind.scale)
    return pa.int64() if pa.types.is_integer(kind) else pa.float64()


def _as_key(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Make values equal that Spark groups together: both zeros, and every NaN."""
    if not pa.types.is_floating(column.type):
        return column
    floats = pc.add(column, pa.scalar(0.0, column.type))  # -0.0 + 0.0 is 0.0
    return pc.if_else(pc.is_nan(floats), pa.scalar(np.nan, column.type), floats)
