"""Further stages of a chain of windows, computed in the driver from the panes of the one before.

A pane that amends a window replaces all rows that the window's earlier panes gave: only the newest
of each is kept, and a window of the next stage that had closed over the old ones fires once more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from slackwater.progress.chaining import StageClosing, close_stage
from slackwater.runtime.deployed import DeployedQuery
from slackwater.runtime.merge import merge
from slackwater.runtime.panes import ClosingWindow, PaneRows, aggregate_panes, no_panes
from slackwater.runtime.partials import row_partials
from slackwater.runtime.state import SliceState, StageChange
from slackwater.spark.row_joins import WINDOW
from slackwater.spark.shapes import ResultShape


@dataclass(frozen=True, eq=False)
class ChainedQuery:
    """Hold what a step has fired of one query so far, stage by stage."""

    query: DeployedQuery
    after_ms: int | None  # the query's watermark after the step
    windows: tuple[ClosingWindow, ...]  # that fired in the last stage looked at
    changes: tuple[StageChange, ...] = ()


def follow_chain(
    shapes: Sequence[ResultShape], queries: Sequence[ChainedQuery], panes: PaneRows | None
) -> tuple[list[ChainedQuery], PaneRows]:
    """Carry the panes of the first stage (None: it has none) through; return those of the last.

    Rows belong to the windows of all queries, in order.
    """
    chained = list(queries)
    for before, shape in pairwise(shapes):
        fired = [window for each in chained for window in each.windows]
        arrived = _by_query(fired, _merged_by_window(shape, panes, len(fired)))
        chained = [
            _next_stage(before, shape, each, arrived.get(each.query.number, {})) for each in chained
        ]
        fired = [window for each in chained for window in each.windows]
        panes = _computed(shape, fired)
    assert panes is not None  # a chain has a second stage
    return chained, panes


def _next_stage(
    before: ResultShape, shape: ResultShape, chained: ChainedQuery, arrived: Mapping[int, pa.Table]
) -> ChainedQuery:
    """Close the windows of one query's next stage; `arrived` are rows by window of the last."""
    query = chained.query
    grid, state = shape.windows.grid(query.number), query.state.stage(len(chained.changes))
    # A window that never gave a row is nothing to the next stage; one that had some, and now
    # gives none, is.
    arrived = {s: rows for s, rows in arrived.items() if rows is not None or s in state.sources}
    closing = close_stage(
        grid,
        before.windows.size_ms,
        bounds=query.bounds,
        held=state.sources.keys(),
        arrived=arrived.keys(),
        panes=state.panes,
        gone_until_ms=state.gone_until_ms,
        before_ms=query.state.watermark_ms,
        after_ms=chained.after_ms,
    )
    change = StageChange(
        fired={firing.window_ms: firing.pane + 1 for firing in closing.firings},
        windows_gone_until_ms=closing.gone_until_ms,
        sources_gone=tuple(sorted(closing.forgotten & state.sources.keys())),
        replaced={s: rows for s, rows in arrived.items() if s not in closing.forgotten},
    )
    windows = _closing_windows(query, shape, closing, {**state.sources, **arrived})
    return replace(chained, windows=windows, changes=(*chained.changes, change))


def _closing_windows(
    query: DeployedQuery,
    shape: ResultShape,
    closing: StageClosing,
    sources: Mapping[int, pa.Table],
) -> tuple[ClosingWindow, ...]:
    windows = []
    for firing in closing.firings:
        tables = [sources[start] for start in closing.sources[firing.window_ms]]
        windows.append(
            ClosingWindow(
                query=query.state.name,
                number=query.number,
                start_ms=firing.window_ms,
                end_ms=firing.window_ms + shape.windows.size_ms,
                pane=firing.pane,
                timing=firing.timing,
                slices=(SliceState(tuple(table for table in tables if table is not None)),),
                first_pane=query.state.first_pane,
            )
        )
    return tuple(windows)


def _computed(shape: ResultShape, windows: Sequence[ClosingWindow]) -> PaneRows:
    has_rows = any(state.chunks for window in windows for state in window.slices)
    return aggregate_panes(shape, windows) if has_rows else no_panes(shape)


def _merged_by_window(
    shape: ResultShape, panes: PaneRows | None, windows: int
) -> list[pa.Table | None]:
    """Turn rows into the next stage's partials, merged within each window they come from."""
    tables: list[pa.Table | None] = [None] * windows
    if panes is None or not panes.table.num_rows:
        return tables
    order = np.argsort(panes.owner, kind="stable")
    owner = panes.owner[order]
    rows = panes.table.take(order).append_column(WINDOW, pa.array(owner))
    keys = [WINDOW, *shape.by]
    # Groups stand in order of first appearance, so those of a window stay together.
    merged = merge(row_partials(rows, keys, shape.aggregates), keys, shape.aggregates)
    places = merged[WINDOW].to_numpy()
    merged = merged.drop_columns([WINDOW]).combine_chunks()
    for place in np.unique(places):
        first, until = np.searchsorted(places, [place, place + 1])
        tables[place] = merged.slice(first, until - first)
    return tables


def _by_query(
    windows: Sequence[ClosingWindow], tables: Sequence[pa.Table | None]
) -> dict[int, dict[int, pa.Table | None]]:
    found: dict[int, dict[int, pa.Table | None]] = {}
    for window, table in zip(windows, tables, strict=True):
        found.setdefault(window.number, {})[window.start_ms] = table
    return found
