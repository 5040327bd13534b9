"""The checks of a description that need the schemas of its inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from slackwater.app.aggregates import Aggregate
from slackwater.app.bounds import bound_names
from slackwater.app.checks import check_state_names, is_reserved, is_system_name
from slackwater.app.names import quoted
from slackwater.app.outputs import Output
from slackwater.app.sampled import check_sampled_types, sampled_partials
from slackwater.app.types import check_key, is_number
from slackwater.app.windows import CountWindows
from slackwater.errors import DescriptionError
from slackwater.spark.column_types import check_keepable
from slackwater.spark.flows import called, first_line
from slackwater.spark.keyed_rows import value_columns
from slackwater.spark.passage import find_passage
from slackwater.spark.row_joins import joined_rows
from slackwater.spark.sampled import whole_rows
from slackwater.spark.shapes import checked_shapes, is_ansi, result_schema
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
        # Whether the event time is the source's own.
        self.time_from_source = len(readers) == 1 and flow.event_time in self.passage.carried
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
            if key not in types:
                raise DescriptionError(
                    f"{output.place}: by={key!r} is not among the columns: "
                    f"{', '.join(sorted(types))}"
                )
            if rows.columns.count(key) > 1:
                raise DescriptionError(
                    f"{output.place}: by={key!r} is two of the columns; drop or rename one of "
                    "them in a transform"
                )
            check_key(key, types[key].simpleString(), output.place)
        check_state_names(output.by, _kept_columns(output, self.aggregates), output.place)
        if output.function is not None:
            check_keepable(
                self.columns.fields, f"{output.place}: the rows that apply(...) gets have"
            )
            result = called(output.function, whole_rows(output, rows), f"{output.place}: apply")
            _check_result_names(result.columns, output.place)
            check_keepable(result.schema.fields, f"{output.place}: apply(...) returns")
            _check_bounds(output, result.schema)
            self.result_names = tuple(result.columns)
            return None if output.stages else result.schema
        return None

    def _bind_aggregates(self, rows: DataFrame) -> dict[str, Aggregate]:
        bound: dict[str, Aggregate] = {}
        ansi = is_ansi(rows.sparkSession)
        written = {} if self._output.join is None else self._output.join.written
        for name, aggregate in self._output.aggregates.items():
            place = f"{self._output.place}, aggregate({name}=...)"
            if aggregate.column is None:
                bound[name] = aggregate
                continue
            named = self._output.join is None and aggregate.column in rows.columns
            argument_of = quoted(aggregate.column) if named else aggregate.column
            try:
                argument = rows.selectExpr(f"({argument_of}) AS argument").schema[0].dataType
                rows.selectExpr(f"count(({argument_of}))")  # it must be of single rows
            except AnalysisException as error:
                raise DescriptionError(
                    f"{place}: {aggregate.column!r} is not among the columns "
                    f"({', '.join(rows.columns)}) nor an expression over them: "
                    f"{first_line(error)}"
                ) from error
            if name in written and written[name].column is not None:
                written[name].over(argument.simpleString(), place)  # refuses in the user's words
            bound[name] = aggregate.over(argument.simpleString(), place, named=named, ansi=ansi)
        return bound


def _kept_columns(output: Output, aggregates: Mapping[str, Aggregate]) -> Iterator[tuple[str, str]]:
    """List the state columns of each aggregate, by its name."""
    for name, aggregate in aggregates.items():
        partials = [*aggregate.partials(name)]
        if output.error is not None:
            partials += sampled_partials(name, aggregate)
        yield from ((name, partial.column) for partial in partials)
    if isinstance(output.windows, CountWindows):
        yield from value_columns(aggregates).items()


def _check_result_names(names: Sequence[str], place: str) -> None:
    taken: dict[str, str] = {}
    for name in names:
        if is_reserved(name) or is_system_name(name):
            raise DescriptionError(
                f"{place}: apply(...) returns a column {name!r}, a name that Slackwater puts on "
                "every pane or keeps for itself (in any case, for Spark ignores that); rename it"
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
