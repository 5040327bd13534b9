"""The rows of panes of windows that each key has for itself, and those that take windows back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slackwater.runtime.deployed import DeployedQuery
from slackwater.runtime.panes import ClosingWindow, PaneRows
from slackwater.spark.shapes import ResultShape
from slackwater.spark.sinks.base import PANE_FIELDS, RETRACTED
from slackwater.spark.sinks.pane_tables import with_window_keys


@dataclass(frozen=True, eq=False)
class EmittedWindows:
    """Hold windows to be shown; `owner` is the place of each one's query in the step."""

    owner: NDArray[np.int64]
    start_us: NDArray[np.int64]
    end_us: NDArray[np.int64]
    late: NDArray[np.bool_]
    values: pa.Table  # keys, then values


@dataclass(frozen=True, eq=False)
class RetractedWindows:
    """Hold windows that were shown and are none any more."""

    owner: NDArray[np.int64]
    start_us: NDArray[np.int64]
    keys: pa.Table


def keyed_pane_rows(
    shape: ResultShape,
    queries: Sequence[DeployedQuery],
    emitted: EmittedWindows,
    retracted: RetractedWindows,
) -> tuple[PaneRows, list[ClosingWindow]]:
    """Make one row for each window: first those taken back, without values, then those shown.

    All panes of a step have one number, that of the query's emission.
    """
    timing = np.where(emitted.late, "late", "on_time")
    table = _labelled(
        shape, queries, emitted.owner, emitted.start_us, emitted.end_us, timing, emitted.values
    )
    if shape.derived:
        table = shape.deriver()(table)
    nothing = np.full(len(retracted.owner), RETRACTED)
    # Where a window that is none any more would end, nobody can say.
    gone = _labelled(
        shape,
        queries,
        retracted.owner,
        retracted.start_us,
        retracted.start_us,
        nothing,
        retracted.keys,
    )
    columns = [
        gone[field.name] if field.name in gone.column_names else pa.nulls(len(nothing), field.type)
        for field in table.schema
    ]
    rows = pa.concat_tables([pa.Table.from_arrays(columns, schema=table.schema), table])
    windows = [
        ClosingWindow(
            query=queries[owner].state.name,
            number=queries[owner].number,
            start_ms=start_us // 1_000,
            end_ms=-(-end_us // 1_000),
            pane=queries[owner].state.keyed.emissions,
            timing=str(when),
            slices=(),
        )
        for owner, start_us, end_us, when in zip(
            np.concatenate((retracted.owner, emitted.owner)).tolist(),
            np.concatenate((retracted.start_us, emitted.start_us)).tolist(),
            np.concatenate((retracted.start_us, emitted.end_us)).tolist(),
            [*nothing.tolist(), *timing.tolist()],
            strict=True,
        )
    ]
    return PaneRows(rows, np.arange(rows.num_rows)), windows


def _labelled(
    shape: ResultShape,
    queries: Sequence[DeployedQuery],
    owner: NDArray[np.int64],
    start_us: NDArray[np.int64],
    end_us: NDArray[np.int64],
    timing: NDArray[np.str_],
    values: pa.Table,
) -> pa.Table:
    """Put the columns that every pane row has before keys and values, and note the keys."""
    names = pa.array([query.state.name for query in queries], pa.string())
    panes = np.array([query.state.keyed.emissions for query in queries], dtype=np.int32)
    columns = [
        names.take(pa.array(owner)),
        pa.array(start_us).cast(pa.timestamp("us", tz="UTC")),
        pa.array(end_us).cast(pa.timestamp("us", tz="UTC")),
        pa.array(panes[owner]),
        pa.array(timing.tolist(), pa.string()),
        pa.array(np.ones(len(owner))),
    ]
    schema = with_window_keys(pa.schema([*PANE_FIELDS, *values.schema]), shape.by)
    return pa.Table.from_arrays([*columns, *values.columns], schema=schema)
