"""The checks of a description that need the schemas of its inputs."""

from __future__ import annotations

from collections.abc import Sequence

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
from slackwater.spark.flows import called, first_line
from slackwater.spark.passage import find_passage
from slackwater.spark.row_joins import joined_rows
from slackwater.spark.sampled import whole_rows
from slackwater.spark.shapes import checked_shapes, result_schema
from slackwater.spark.sources.base import QUERY, SYSTEM_COLUMNS, SourceReader


class CheckedPipeline:
    """Hold what is known of an output once the schemas of its inputs are."""

    def __init__(
        self, spark: SparkSession, output: Output, readers: Sequence[SourceReader]
    ) -> None:
        """Run the description over empty input and refuse what cannot work, by name and remedy."""
        self._output = output
        self.passage = find_passage(spark, output, readers)
        self.calls_python = self.passage.calls_python
        self.fusable = self.passage.fusable
        # Whether a record's group is known before any transform.
        self.keys_from_source = len(readers) == 1 and {*output.by} <= self.passage.carried
        flow = self.passage.flow
        self.result_names: tuple[str, ...] = ()  # of a function
        self.event_time = flow.event_time
        self.columns = StructType(
            [f for f in flow.frame.schema.fields if f.name.lower() not in SYSTEM_COLUMNS]
        )
        rows = spark.createDataFrame([], self.columns)
        if output.row_join is not None:
            rows = joined_rows(output.row_join, rows)
        self.aggregates = self._bind_aggregates(rows)
        if output.error is not None:
            check_sampled_types(output.place, self.aggregates)
        of_function = self._check_result(rows)
        self.shapes = checked_shapes(spark, output, rows, self.aggregates)
        self.result = result_schema(output, rows, self.shapes, of_function)

    def visible(self, reader: SourceReader, wanted: Sequence[str]) -> list[str]:
        """List, as SQL, what transforms see: the source's columns, and of ours what they may."""
        ours = [name for name in (QUERY, *wanted) if name in self.passage.shown]
        return [*(quoted(field.name) for field in reader.schema.fields), *ours]

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
