"""The checks of a description that need the schemas of its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from slackwater.app.aggregates import Aggregate
from slackwater.app.bounds import bound_names
from slackwater.app.checks import is_reserved
from slackwater.app.names import quoted
from slackwater.app.outputs import Output
from slackwater.app.sampled import check_sampled_types
from slackwater.app.types import is_number
from slackwater.errors import DescriptionError
from slackwater.spark.flows import Flow, called, first_line, through, timed
from slackwater.spark.latebound import classic_jvm
from slackwater.spark.row_joins import joined_rows
from slackwater.spark.safety import expression_names
from slackwater.spark.sampled import whole_rows
from slackwater.spark.shapes import checked_shapes, result_schema
from slackwater.spark.sources.base import QUERY, SourceReader

# Logical nodes that give other rows when the same input is cut into other steps.
_STATEFUL = {
    "Aggregate": "an aggregation",
    "Distinct": "distinct",
    "Deduplicate": "distinct or dropDuplicates",
    "Window": "a window function",
    "GlobalLimit": "limit",
    "LocalLimit": "limit",
    "Tail": "tail",
    "Offset": "offset",
    "Sort": "a sort",
    "Intersect": "intersect",
    "Except": "except",
    "Pivot": "pivot",
    "FlatMapGroupsInPandas": "applyInPandas",
    "FlatMapGroupsInArrow": "applyInArrow",
    "FlatMapCoGroupsInPandas": "a cogroup",
}
# Which side of a join with a static table may be the stream.
_STREAM_SIDE = {
    "Inner": {"left", "right"},
    "Cross": {"left", "right"},
    "LeftOuter": {"left"},
    "RightOuter": {"right"},
    "LeftSemi": {"left"},
    "LeftAnti": {"left"},
}


def visible_columns(reader: SourceReader) -> list[str]:
    """List, as SQL, what a transform sees: the source's own columns and the query's number."""
    return [quoted(field.name) for field in reader.schema.fields] + [QUERY]


class CheckedPipeline:
    """Hold what is known of an output once the schemas of its inputs are."""

    def __init__(
        self, spark: SparkSession, output: Output, readers: Sequence[SourceReader]
    ) -> None:
        """Run the description over empty input and refuse what cannot work, by name and remedy."""
        self._output = output
        inputs = [_empty(spark, reader) for reader in readers]
        empty = (
            Flow(frame, reader.event_time) for frame, reader in zip(inputs, readers, strict=True)
        )
        flow = timed(through(output.stream, empty, output.place), output.place)
        stream = flow.frame
        self.calls_python = False
        self.keys_from_source = False  # whether a record's group is known before any transform
        if classic_jvm(spark) is not None:
            plan = stream._jdf.queryExecution().analyzed()
            _require_stateless(plan, output.place)
            self.calls_python = "PythonUDF" in expression_names(plan)
            self.keys_from_source = _passed_on(inputs, plan, output.by)
        self.fusable = QUERY in stream.columns
        self.result_names: tuple[str, ...] = ()  # of a function
        self.event_time = flow.event_time
        self.columns = StructType([f for f in stream.schema.fields if f.name != QUERY])
        rows = spark.createDataFrame([], self.columns)
        if output.row_join is not None:
            rows = joined_rows(output.row_join, rows)
        self.aggregates = self._bind_aggregates(rows)
        if output.error is not None:
            check_sampled_types(output.place, self.aggregates)
        of_function = self._check_result(rows)
        self.shapes = checked_shapes(spark, output, rows, self.aggregates)
        self.result = result_schema(output, rows, self.shapes, of_function)

    def _check_result(self, rows: DataFrame) -> StructType | None:
        """Check keys and names; return what a function gives that no further stage takes."""
        output = self._output
        types = {field.name: field.dataType for field in rows.schema.fields}
        for key in output.by:
            _check_key(key, types, output.place)
        _check_state_names(output, self.aggregates)
        if output.function is not None:
            result = called(output.function, whole_rows(output, rows), f"{output.place}: apply")
            _check_result_names(result.columns, output.place)
            _check_bounds(output, result.schema)
            self.result_names = tuple(result.columns)
            return None if output.stages else result.schema
        return None

    def _bind_aggregates(self, rows: DataFrame) -> dict[str, Aggregate]:
        bound: dict[str, Aggregate] = {}
        written = {} if self._output.join is None else self._output.join.written
        for name, aggregate in self._output.aggregates.items():
            place = f"{self._output.place}, aggregate({name}=...)"
            if aggregate.column is None:
                bound[name] = aggregate
                continue
            try:
                argument = rows.selectExpr(f"({aggregate.column}) AS argument").schema[0].dataType
                rows.selectExpr(f"count(({aggregate.column}))")  # it must be of single rows
            except AnalysisException as error:
                raise DescriptionError(
                    f"{place}: {aggregate.column!r} is not among the columns "
                    f"({', '.join(rows.columns)}) nor an expression over them: "
                    f"{first_line(error)}"
                ) from error
            if name in written and written[name].column is not None:
                written[name].over(argument.simpleString(), place)  # refuses in the user's words
            bound[name] = aggregate.over(argument.simpleString(), place)
        return bound


def _passed_on(inputs: Sequence[DataFrame], plan: Any, keys: Sequence[str]) -> bool:
    """Tell whether keys are columns of the only input that no transform has touched."""
    if len(inputs) != 1 or not keys:
        return False

    def identities(of: Any) -> dict[str, int]:
        attributes = of.output()
        each = (attributes.apply(index) for index in range(attributes.size()))
        return {str(attribute.name()): int(attribute.exprId().id()) for attribute in each}

    before = identities(inputs[0]._jdf.queryExecution().analyzed())
    after = identities(plan)
    return all(key in before and before[key] == after.get(key) for key in keys)


def _empty(spark: SparkSession, reader: SourceReader) -> DataFrame:
    schema = StructType(list(reader.schema.fields)).add(QUERY, "integer", nullable=False)
    return spark.createDataFrame([], schema)


def _check_key(key: str, types: dict[str, DataType], place: str) -> None:
    if key not in types:
        raise DescriptionError(
            f"{place}: by={key!r} is not among the columns: {', '.join(sorted(types))}"
        )
    if isinstance(types[key], ArrayType | MapType | StructType | VariantType):
        raise DescriptionError(
            f"{place}: by={key!r} is {types[key].simpleString()}, which cannot be a key; "
            "select its parts as columns first"
        )


def _check_state_names(output: Output, aggregates: dict[str, Aggregate]) -> None:
    """Refuse names that Spark, which ignores case, would take for one another in the state."""
    taken = {key.lower(): f"the key {key!r}" for key in output.by}
    for name, aggregate in aggregates.items():
        for partial in aggregate.partials(name):
            other = taken.setdefault(partial.column.lower(), f"the aggregate {name!r}")
            if other != f"the aggregate {name!r}":
                raise DescriptionError(
                    f"{output.place}: the aggregate {name!r} keeps its state in a column "
                    f"{partial.column!r}, which {other} has too; rename one of them"
                )


def _check_result_names(names: Sequence[str], place: str) -> None:
    taken: dict[str, str] = {}
    for name in names:
        if is_reserved(name):
            raise DescriptionError(
                f"{place}: apply(...) returns a column {name!r}, a name that Slackwater puts on "
                "every pane (in any case, for Spark ignores that); rename it"
            )
        if (other := taken.setdefault(name.lower(), name)) != name or names.count(name) > 1:
            raise DescriptionError(
                f"{place}: apply(...) returns columns {other!r} and {name!r}, which are one name "
                "to Spark; rename one of them"
            )


def _check_bounds(output: Output, result: StructType) -> None:
    """Refuse results of a function that have no room for the columns of their bounds."""
    types = {field.name.lower(): field for field in result.fields}
    for name in output.bounded:
        field = types.get(name.lower())
        if field is None:
            continue
        kind = field.dataType.simpleString()
        if field.name != name or not is_number(kind):
            raise DescriptionError(
                f"{output.place}: within(functions={{{name!r}: ...}}): apply(...) returns a column "
                f"{field.name!r} of type {kind}; bound a number by its very name, or rename it"
            )
    taken = set(bound_names(output.bounded)) - set(output.bounded) if output.bounded else set()
    for name in sorted(taken & set(types)):
        raise DescriptionError(
            f"{output.place}: apply(...) returns a column {name!r}, a name that error=within(...) "
            "puts on every pane; rename it"
        )


def _require_stateless(plan: Any, place: str) -> bool:
    """Refuse operators over the stream whose result depends on how it is cut into steps."""
    children = [plan.children().apply(index) for index in range(plan.children().size())]
    name = str(plan.getClass().getSimpleName())
    if not children:
        attributes = plan.output()
        return any(attributes.apply(i).name() == QUERY for i in range(attributes.size()))
    streaming = [_require_stateless(child, place) for child in children]
    if not any(streaming):
        return False
    if name in _STATEFUL:
        raise DescriptionError(
            f"{place}: a transform uses {_STATEFUL[name]}, whose result depends on which rows are "
            "read together; do it per window, with .window(...).aggregate(...) or .apply(...)"
        )
    if name == "Join":
        kind = str(plan.joinType().getClass().getSimpleName()).removesuffix("$")
        if all(streaming):
            raise DescriptionError(
                f"{place}: a transform joins the stream with itself; do it per window, with "
                ".window(...).apply(...)"
            )
        side = "left" if streaming[0] else "right"
        if side not in _STREAM_SIDE.get(kind, set()):
            raise DescriptionError(
                f"{place}: a transform joins the stream on the {side} of a {kind} join, which "
                "would repeat unmatched rows of the static table in each step; turn the join round"
            )
    return True
