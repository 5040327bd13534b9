"""A description applied to DataFrames: inputs through transforms, unions and the sides of joins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, TimestampType

from slackwater.app.checks import is_system_name
from slackwater.app.names import quoted
from slackwater.app.nodes import (
    EVENT_TIME,
    FrameFunction,
    LegsNode,
    Node,
    SidesNode,
    SourceNode,
    TransformNode,
    UnionNode,
)
from slackwater.errors import DescriptionError, SlackwaterError
from slackwater.spark.column_types import check_keepable
from slackwater.spark.failures import defined_at, explain
from slackwater.spark.rowwise import refusal
from slackwater.spark.sources.base import ARRIVAL, OFFSET, PARTITION, QUERY

# Where a row came from: dead letters carry it through the transforms, steps do not.
PLACE_COLUMNS = (PARTITION, OFFSET, ARRIVAL)

# Looks at what a transform returned; the text says which one it is.
Check = Callable[[DataFrame, str], None]


def unchecked(frame: DataFrame, what: str) -> None:
    """Look at nothing: what runs was checked on deployment."""


@dataclass(frozen=True, eq=False)
class Flow:
    """Hold the rows of a stream, and name the column that is their event time."""

    frame: DataFrame
    event_time: str

    def kept(self, names: Sequence[str]) -> list[str]:
        """Return which of these columns the rows still have."""
        return [name for name in names if name in self.frame.columns]


def through(node: Node, inputs: Iterator[Flow], place: str, check: Check = unchecked) -> Flow:
    """Pass inputs, in the order of `leaves`, through the description of a stream.

    `check` looks at what each transform returns, before anything else is said of it.
    """
    match node:
        case SourceNode():
            return next(inputs)
        case TransformNode(parent=parent):
            before = through(parent, inputs, place, check)
            after = called(node.function, before.frame, f"{place}: transform")
            check(after, f"{place}: transform {defined_at(node.function)}")
            return Flow(after, before.event_time)
        case UnionNode(left=left, right=right):
            one, two = (through(each, inputs, place, check) for each in (left, right))
            return _united(one, two, place)
        case LegsNode(legs=legs):
            flows = [timed(through(leg.node, inputs, place, check), place) for leg in legs]
            return _legs(node, flows, place)
        case SidesNode(sides=sides):
            flows = [timed(through(side, inputs, place, check), place) for side in sides]
            return _sides(node, flows, place)


def timed(flow: Flow, place: str) -> Flow:
    """Return a stream that has its event time still, as a timestamp; refuse any other."""
    name, frame = flow.event_time, flow.frame
    columns = frame.columns
    if name not in columns:
        raise DescriptionError(
            f"{place}: the transforms drop the event time {name!r}; "
            f"keep it in the select (left are: {', '.join(columns)})"
        )
    own = [QUERY, *PLACE_COLUMNS]
    taken = [each for each in columns if is_system_name(each) and each.lower() not in own]
    if taken and name != EVENT_TIME:  # the rows of a join have columns of its own
        raise DescriptionError(
            f"{place}: a transform adds a column {taken[0]!r}, and names with _sw_ are "
            "Slackwater's own; rename it"
        )
    for once in (name, QUERY):
        if sum(each.lower() == once.lower() for each in columns) > 1:
            raise DescriptionError(
                f"{place}: the transforms leave {once!r} twice (Spark ignores case); drop or "
                f"rename one of them (left are: {', '.join(columns)})"
            )
    if not isinstance(frame.schema[name].dataType, TimestampType):
        raise DescriptionError(
            f"{place}: the event time {name!r} is "
            f"{frame.schema[name].dataType.simpleString()}, not a timestamp; cast it"
        )
    return flow


def first_line(error: AnalysisException) -> str:
    """Say the essence of what Spark found wrong."""
    return explain(error).partition(": ")[2]


def called(function: FrameFunction, frame: DataFrame, what: str) -> DataFrame:
    """Call a function of the user's, and say which one, and where in it, where that fails."""
    what = f"{what} {defined_at(function)}"
    try:
        result = function(frame)
    except AnalysisException as error:
        if (refused := refusal(error, what)) is not None:
            raise refused from error
        raise DescriptionError(
            f"{what} does not fit its input ({', '.join(frame.columns)}): {first_line(error)}"
        ) from error
    except SlackwaterError:
        raise
    except Exception as error:
        raise DescriptionError(
            f"{what} raised {explain(error)}; it must make a DataFrame of one with the columns "
            f"{', '.join(frame.columns)}"
        ) from error
    if not isinstance(result, DataFrame):
        raise DescriptionError(f"{what} returned {_described(result)}; return the DataFrame")
    return result


def _described(result: object) -> str:
    """Say what a function returned in the place of a DataFrame, and how to have one instead."""
    kind = type(result)
    package = kind.__module__.partition(".")[0]
    if package != "pandas":
        return kind.__name__
    return (
        f"a {kind.__name__} of pandas: leave toPandas() out, or use "
        "df.groupBy(...).applyInPandas(...) or df.mapInPandas(...)"
    )


def _united(one: Flow, two: Flow, place: str) -> Flow:
    odd = set(one.frame.columns) ^ set(two.frame.columns)
    if one.event_time != two.event_time:
        names = " and ".join(sorted((one.event_time, two.event_time)))
        raise DescriptionError(
            f"{place}: its inputs call their event time {names}; "
            "give it the same name in all of them"
        )
    if not odd <= set(PLACE_COLUMNS):
        raise DescriptionError(
            f"{place}: union of streams with different columns: only one side has "
            f"{', '.join(sorted(odd))}; select the same columns on both sides"
        )
    frame = one.frame.unionByName(two.frame, allowMissingColumns=bool(odd))
    return Flow(frame, one.event_time)


def _legs(node: LegsNode, flows: Sequence[Flow], place: str) -> Flow:
    """Give the rows of each leg the keys, the arguments of its aggregates, and its mark."""
    _check_keys(node.on, flows, place)
    frames = []
    for index, flow in enumerate(flows):
        filled = node.arguments(index, flow.frame.columns)
        arguments = [f"{sql} AS {quoted(name)}" for name, sql in filled.items()]
        columns = [*_common(flow, flows), *map(quoted, node.on), *arguments]
        try:
            frames.append(flow.frame.selectExpr(*columns))
        except AnalysisException as error:
            raise DescriptionError(
                f"{place}: an aggregate of a join's side does not fit the side's columns "
                f"({', '.join(flow.frame.columns)}): {first_line(error)}"
            ) from error
    return Flow(_side_by_side(frames), EVENT_TIME)


def _sides(node: SidesNode, flows: Sequence[Flow], place: str) -> Flow:
    """Put the rows of each side, whole, into a column of their own."""
    _check_keys(node.on, flows, place)
    frames, taken = [], set[str]()
    for index, flow in enumerate(flows):
        inner = [n for n in flow.frame.columns if n not in (QUERY, *PLACE_COLUMNS)]
        if flow.event_time in taken - set(node.on):
            inner.remove(flow.event_time)  # both sides have it: the first one's is shown
        check_keepable((flow.frame.schema[name] for name in inner), f"{place}: a join's side has")
        before = {name.lower() for name in taken}
        twice = [name for name in inner if name.lower() in before and name not in node.on]
        if twice:
            raise DescriptionError(
                f"{place}: join(...): {twice[0]!r} is a column of two sides (Spark ignores case); "
                "rename it in one of them with a transform, or drop it there"
            )
        taken.update(inner)
        fields = ", ".join(_nullable(flow.frame.schema[name]) for name in inner)
        struct = f"struct({fields}) AS {node.column(index)}"
        frames.append(flow.frame.selectExpr(*_common(flow, flows), struct))
    return Flow(_side_by_side(frames), EVENT_TIME)


def _common(flow: Flow, flows: Sequence[Flow]) -> list[str]:
    """List what all sides of a join have: the event time, and what the runtime keeps with rows."""
    fusable = [QUERY] if all(QUERY in each.frame.columns for each in flows) else []
    return [*fusable, *flow.kept(PLACE_COLUMNS), f"{quoted(flow.event_time)} AS {EVENT_TIME}"]


def _nullable(field: StructField) -> str:
    """Write a column so that Spark takes it for nullable, which it is where its struct is null."""
    name = quoted(field.name)
    return name if field.nullable else f"CASE WHEN {name} IS NOT NULL THEN {name} END AS {name}"


def _side_by_side(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(partial(DataFrame.unionByName, allowMissingColumns=True), frames)


def _check_keys(on: Sequence[str], flows: Sequence[Flow], place: str) -> None:
    for key in on:
        types = []
        for flow in flows:
            if key not in flow.frame.columns:
                raise DescriptionError(
                    f"{place}: join(on={key!r}): a side has no such column "
                    f"(it has {', '.join(flow.frame.columns)}); rename or add it with a transform"
                )
            types.append(flow.frame.schema[key].dataType.simpleString())
        if len(set(types)) > 1:
            raise DescriptionError(
                f"{place}: join(on={key!r}): the sides have it as {' and as '.join(types)}; "
                "cast it to one type with a transform"
            )
