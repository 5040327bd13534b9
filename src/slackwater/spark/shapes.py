"""The shape of each stage's result: keys, bound aggregates, derived columns, and their types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from slackwater.app.aggregates import Aggregate
from slackwater.app.checks import check_state_names
from slackwater.app.names import quoted
from slackwater.app.nodes import LegsNode
from slackwater.app.outputs import ColumnFunction, Output, Stage
from slackwater.app.types import check_key
from slackwater.app.windows import Windows
from slackwater.errors import DescriptionError
from slackwater.spark.failures import defined_at, explain

# What a function that derives a column sees of a pane: that which a batch would have too.
_PANE_FIELDS = (
    StructField("query", StringType()),
    StructField("window_start", TimestampType()),
    StructField("window_end", TimestampType()),
)


@dataclass(frozen=True, eq=False)
class ResultShape:
    """Say what one stage computes from the state of a window, bound to the types it has."""

    windows: Windows
    by: tuple[str, ...]
    aggregates: Mapping[str, Aggregate]
    join: LegsNode | None = None
    derived: Mapping[str, tuple[ColumnFunction, pa.DataType]] = field(default_factory=dict)
    result: StructType | None = None  # of a further stage: keys, values and derived columns

    @property
    def values(self) -> tuple[str, ...]:
        """Name the result's columns after the keys, before the derived ones."""
        return tuple(self.aggregates if self.join is None else self.join.written)

    def deriver(self) -> Callable[[pa.Table], pa.Table]:
        """Return the function that adds the derived columns to finished rows.

        It stands alone, so that Spark's Python workers can run it without this package.
        """
        given = (*(each.name for each in _PANE_FIELDS), *self.by, *self.values)
        derived = dict(self.derived)

        def derive(table: Any) -> Any:
            seen = list(given)
            for name, (function, kind) in derived.items():
                column = function(table.select(seen))
                if not hasattr(column, "cast") or len(column) != table.num_rows:
                    raise ValueError(
                        f"derive({name}=...) must return a pyarrow.Array with one value for each "
                        f"of {table.num_rows} rows, not {str(column)[:80]}"
                    )
                table = table.append_column(name, column.cast(kind))
                seen.append(name)
            return table

        return derive


def checked_shapes(
    spark: SparkSession, output: Output, rows: DataFrame, aggregates: Mapping[str, Aggregate]
) -> tuple[ResultShape, ...]:
    """Bind every stage to the types that the one before gives; refuse what cannot work.

    `rows` is an empty frame with the columns of a window's rows, `aggregates` are bound to it.
    """
    first = ResultShape(output.windows, output.by, aggregates, output.join)
    if not output.derived and not output.stages:
        return (first,)
    result = _computed(rows, first) if output.function is None else output.function(rows)
    derived = _bound_functions(result.schema, output.derived, output.place)
    shapes = [replace(first, derived=derived)]
    schema = _extended(result.schema, derived)
    for number, stage in enumerate(output.stages, start=2):
        place = f"{output.place}, stage {number}"
        bound = _bound_aggregates(schema, stage, place, ansi=is_ansi(spark))
        shape = ResultShape(stage.windows, stage.by, bound)
        result = _computed(spark.createDataFrame([], schema), shape)
        derived = _bound_functions(result.schema, stage.derived, place)
        schema = _extended(result.schema, derived)
        shapes.append(replace(shape, derived=derived, result=schema))
    return tuple(shapes)


def result_schema(
    output: Output,
    rows: DataFrame,
    shapes: Sequence[ResultShape],
    of_function: StructType | None,
) -> pa.Schema:
    """Return keys, values and derived columns of the last stage, or what a function gives."""
    last = shapes[-1]
    schema = last.result or of_function or _computed(rows, last).schema
    try:
        found = to_arrow_schema(schema, timezone="UTC", prefers_large_types=False)
    except PySparkException as error:
        raise DescriptionError(
            f"{output.place}: the result {schema.simpleString()} has a type that cannot leave "
            f"Spark ({error}): cast that column"
        ) from error
    if last.result is None:
        for name, (_, kind) in last.derived.items():
            found = found.append(pa.field(name, kind))
    return found


def is_ansi(spark: SparkSession) -> bool:
    """Tell whether sums that overflow raise in this session."""
    return str(spark.conf.get("spark.sql.ansi.enabled", "true")).lower() == "true"


def _computed(rows: DataFrame, shape: ResultShape) -> DataFrame:
    """Compute a result as a batch would, to learn its types."""
    values = [F.expr(each.batch_sql).alias(name) for name, each in shape.aggregates.items()]
    keys = [quoted(key) for key in shape.by]
    return rows.groupBy(*keys).agg(*values).select(*keys, *map(quoted, shape.values))


def _bound_aggregates(
    schema: StructType, stage: Stage, place: str, *, ansi: bool = True
) -> dict[str, Aggregate]:
    """Bind a further stage's aggregates, which take plain columns of the stage before."""
    types = {each.name: each.dataType.simpleString() for each in schema.fields}
    columns = ", ".join(types)
    for key in stage.by:
        if key not in types:
            raise DescriptionError(
                f"{place}: by={key!r} is not among the columns of the stage before: {columns}"
            )
        check_key(key, types[key], place)
    bound = {}
    for name, aggregate in stage.aggregates.items():
        if aggregate.column is None:
            bound[name] = aggregate
            continue
        if aggregate.column not in types:
            raise DescriptionError(
                f"{place}, aggregate({name}=...): {aggregate.column!r} is not a column of the "
                f"stage before ({columns}); a further stage takes plain columns, so compute an "
                "expression before it with derive(...)"
            )
        kind, where = types[aggregate.column], f"{place}, aggregate({name}=...)"
        bound[name] = aggregate.over(kind, where, named=True, ansi=ansi)
    partials = ((n, p.column) for n, each in bound.items() for p in each.partials(n))
    check_state_names(stage.by, partials, place)
    return bound


def _bound_functions(
    schema: StructType, functions: Mapping[str, ColumnFunction], place: str
) -> dict[str, tuple[ColumnFunction, pa.DataType]]:
    """Try the functions over no rows, to learn the types they return."""
    if not functions:
        return {}
    whole = StructType([*_PANE_FIELDS, *schema.fields])
    table = to_arrow_schema(whole, timezone="UTC", prefers_large_types=False).empty_table()
    bound = {}
    for name, function in functions.items():
        try:
            column = function(table)
            kind = column.type
            after = table.append_column(name, column)
        except Exception as error:
            raise DescriptionError(
                f"{place}: derive({name}={defined_at(function)}) fails over a table without rows "
                f"({', '.join(table.column_names)}): {explain(error)}; it must "
                "return a pyarrow.Array with as many values as there are rows"
            ) from error
        if pa.types.is_null(kind):
            raise DescriptionError(
                f"{place}: derive({name}=...) returns an array without a type; name it, such as "
                "pa.array(values, pa.float64())"
            )
        bound[name] = (function, kind)
        table = after
    return bound


def _extended(
    schema: StructType, derived: Mapping[str, tuple[ColumnFunction, pa.DataType]]
) -> StructType:
    return StructType([*schema.fields, *derived_fields(derived)])


def derived_fields(
    derived: Mapping[str, tuple[ColumnFunction, pa.DataType]],
) -> list[StructField]:
    """Return Spark's fields for derived columns."""
    return [StructField(name, from_arrow_type(kind)) for name, (_, kind) in derived.items()]
