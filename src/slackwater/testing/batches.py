"""What a query must come to: the same description as one Spark batch over all events.

Everything is done the plain way, with Spark's own grouping and joins over exploded windows: no
slices, no partials, no tagged streams.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from slackwater.app.aggregates import Aggregate
from slackwater.app.names import quoted, sql_text
from slackwater.app.nodes import LegsNode, Node, SidesNode, leaves
from slackwater.app.outputs import ColumnFunction, Output
from slackwater.app.windows import KeyedWindows, Windows
from slackwater.errors import DescriptionError
from slackwater.spark.flows import Flow, through
from slackwater.spark.passage import hands_out_rows
from slackwater.spark.sampled import whole_rows
from slackwater.spark.sources.base import QUERY
from slackwater.testing.keyed_batches import batch_values, keyed_batch

_START = "_sw_start"  # of a window, in microseconds


def batch_panes(
    output: Output,
    inputs: Mapping[str, DataFrame],
    *,
    event_time: str | Mapping[str, str],
    query: str = "test",
    number: int = 0,
) -> DataFrame:
    """Compute an output over all events at once: query, window_start, window_end, then the result.

    `inputs` holds every event of each of the app's inputs, with the columns the source would give;
    `event_time` is the column that says when, one for all inputs or one for each by its name.
    `query` is the name it is deployed under; `number`, counted from 0 in the order of deployment,
    matters only to windows with the offset "spread".
    """
    times = {
        name: event_time if isinstance(event_time, str) else event_time[name] for name in inputs
    }

    def flow(node: Node) -> Flow:
        plain = [Flow(inputs[leaf.name], times[leaf.name]) for leaf in leaves(node)]
        with suppress(DescriptionError):  # of transforms that name the query's number
            found = through(node, iter(plain), output.place)
            if not hands_out_rows(found.frame):
                return found
        numbered = (
            Flow(each.frame.withColumn(QUERY, F.lit(number).cast("int")), each.event_time)
            for each in plain
        )
        return through(node, numbered, output.place)

    def windowed(node: Node) -> DataFrame:
        rows = flow(node)
        time = f"unix_micros({quoted(rows.event_time)})"
        return _exploded(output.windows, number, rows.frame, time).drop(QUERY)

    if isinstance(output.windows, KeyedWindows):
        panes = keyed_batch(output, output.windows, flow(output.stream), query)
    else:
        panes = _first_stage(output, windowed, lambda node: flow(node).event_time, query)
    panes = _derived(panes, output.derived)
    for stage in output.stages:
        rows = _exploded(stage.windows, number, panes, "unix_micros(window_end) - 1000L")
        result = _grouped(
            rows.drop("query", "window_start", "window_end"), stage.by, stage.aggregates
        )
        panes = _derived(_labelled(result, stage.windows, query), stage.derived)
    return panes


def _first_stage(
    output: Output,
    windowed: Callable[[Node], DataFrame],
    event_time: Callable[[Node], str],
    query: str,
) -> DataFrame:
    match output.stream:
        case LegsNode(legs=legs, on=on, hows=hows):
            sides = [_grouped(windowed(leg.node), on, leg.aggregates) for leg in legs]
            return _labelled(_joined(sides, on, hows), output.windows, query)
        case SidesNode(sides=nodes, on=on, hows=hows):
            sides = [windowed(node) for node in nodes]
            seen = set(sides[0].columns)
            for index, node in enumerate(nodes[1:], start=1):
                if event_time(node) in seen - set(on):
                    sides[index] = sides[index].drop(event_time(node))
                seen.update(sides[index].columns)
            rows = _joined(sides, on, hows)
        case node:
            rows = windowed(node)
    if output.function is not None:
        return _applied(output, rows, query)
    return _labelled(_grouped(rows, output.by, output.aggregates), output.windows, query)


def _exploded(windows: Windows, number: int, rows: DataFrame, time: str) -> DataFrame:
    """Repeat each row for every window that holds it, in plain arithmetic on microseconds."""
    size_us, slide_us = windows.size_ms * 1_000, windows.slide_ms * 1_000
    offset_us = windows.grid(number).offset_ms * 1_000
    most = math.ceil(size_us / slide_us)
    last = f"{time} - pmod({time} - {offset_us}L, {slide_us}L)"
    starts = f"transform(sequence(0, {most - 1}), i -> {last} - i * {slide_us}L)"
    held = f"filter({starts}, start -> start + {size_us}L > {time})"
    return rows.selectExpr("*", f"explode({held}) AS {_START}")


def _grouped(
    rows: DataFrame, by: tuple[str, ...], aggregates: Mapping[str, Aggregate]
) -> DataFrame:
    return rows.groupBy(_START, *map(quoted, by)).agg(*batch_values(rows, aggregates))


def _joined(sides: list[DataFrame], on: tuple[str, ...], hows: tuple[str, ...]) -> DataFrame:
    """Join on window and keys, null to null."""
    result = sides[0]
    for how, side in zip(hows, sides[1:], strict=True):
        keys = [_START, *on]
        right = side.withColumnsRenamed({key: f"_right_{key}" for key in keys})
        matches = [F.col(quoted(k)).eqNullSafe(F.col(quoted(f"_right_{k}"))) for k in keys]
        both = result.join(right, reduce(lambda one, two: one & two, matches), how)
        merged = {k: F.coalesce(F.col(quoted(k)), F.col(quoted(f"_right_{k}"))) for k in keys}
        result = both.withColumns(merged if how == "full" else {})
        result = result.drop(*(f"_right_{key}" for key in keys))
    return result


def _labelled(result: DataFrame, windows: Windows, query: str) -> DataFrame:
    labels = _labels(_START, windows, query)
    return result.selectExpr(*labels, *(quoted(n) for n in result.columns if n != _START))


def _labels(start: str, windows: Windows, query: str) -> list[str]:
    return [
        f"{sql_text(query)} AS query",
        f"timestamp_micros({start}) AS window_start",
        f"timestamp_micros({start} + {windows.size_ms * 1_000}L) AS window_end",
    ]


def _applied(output: Output, rows: DataFrame, query: str) -> DataFrame:
    """Run the function over the rows of each window by itself."""
    assert output.function is not None
    inner = [quoted(name) for name in rows.columns if name != _START]
    found = [row[0] for row in rows.select(_START).distinct().orderBy(_START).collect()]
    results = []
    for start in found or [0]:
        held = whole_rows(output, rows.where(f"{_START} = {start}L").select(*inner))
        result: DataFrame = output.function(held)
        results.append(result.selectExpr(*_labels(f"{start}L", output.windows, query), "*"))
    return reduce(DataFrame.union, results)


def _derived(panes: DataFrame, functions: Mapping[str, ColumnFunction]) -> DataFrame:
    if not functions:
        return panes
    table = panes.toArrow()
    for name, function in functions.items():
        table = table.append_column(name, function(table))
    return panes.sparkSession.createDataFrame(table)
