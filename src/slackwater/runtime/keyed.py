"""Windows that each key has for itself: from a step's rows, and those held, to panes and new state.

All queries of a step are worked on together, in whole columns; what happens is decided in
`progress.sessions` and `progress.counting`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slackwater.app.windows import CountWindows, KeyedWindows, SessionWindows
from slackwater.progress.sessions import Horizon
from slackwater.runtime.deployed import DeployedQuery
from slackwater.runtime.keyed_closing import OWNER, ClosedRows, close_rows
from slackwater.runtime.keyed_panes import EmittedWindows, RetractedWindows, keyed_pane_rows
from slackwater.runtime.keyed_state import PREFIX, SHOWN, may_change
from slackwater.runtime.merge import finish
from slackwater.runtime.panes import ClosingWindow, PaneRows
from slackwater.runtime.partials import row_partials
from slackwater.runtime.state import KeyedChange
from slackwater.spark.frames import ROWS, SLICE, Template
from slackwater.spark.keyed_rows import FIRST, span_columns, value_columns
from slackwater.spark.shapes import ResultShape
from slackwater.spark.sources.base import QUERY

_NEVER_US = -(2**62)


@dataclass(frozen=True, eq=False)
class KeyedQuery:
    """Say how far a query's event time comes in a step."""

    query: DeployedQuery
    after_ms: int | None
    gone_until_ms: int | None  # cells that start here or earlier take nothing in from now on

    def horizon_us(self) -> tuple[int, int, int]:
        """Return the watermark before and after, and before which time nothing can come."""
        settled_ms = None
        if self.gone_until_ms is not None:
            cell_ms = self.query.grid.size_ms
            settled_ms = (self.gone_until_ms // cell_ms + 1) * cell_ms
        times_ms = (self.query.state.watermark_ms, self.after_ms, settled_ms)
        before, after, settled = (_NEVER_US if ms is None else ms * 1_000 for ms in times_ms)
        return before, after, settled


@dataclass(frozen=True, eq=False)
class KeyedStep:
    """Hold what a step means for all its queries, in their order; `windows` fired, by query."""

    changes: list[KeyedChange]
    windows: list[tuple[ClosingWindow, ...]]
    panes: PaneRows | None


def take_in(template: Template, rows: pa.Table | None, queries: Sequence[KeyedQuery]) -> KeyedStep:
    """Work out what a step's rows (QUERY, SLICE, state columns) and its watermarks change."""
    shape, windows = template.pipeline.shapes[0], template.output.windows
    assert isinstance(windows, KeyedWindows)
    table, place = _gathered(shape, windows, rows, queries)
    if table is None:
        unchanged = [KeyedChange(each.query.state.keyed.emissions) for each in queries]
        return KeyedStep(unchanged, [()] * len(queries), None)
    horizon_us = np.array([each.horizon_us() for each in queries], dtype=np.int64)
    owner = table[OWNER].to_numpy()
    horizon = Horizon(*(horizon_us[owner, column] for column in range(3)))
    outcome = close_rows(shape, windows, table, place < 0, horizon)
    return _step(shape, queries, table, place, outcome)


def split_by_lateness(
    rows: pa.Table | None, queries: Sequence[DeployedQuery]
) -> tuple[pa.Table | None, pa.Table | None]:
    """Tell a step's rows from those that came when their cell took nothing in any more."""
    if rows is None:
        return None, None
    late = np.zeros(rows.num_rows, dtype=np.bool_)
    number, cell_ms = rows[QUERY].to_numpy(), rows[SLICE].to_numpy()
    for query in queries:
        if query.state.gone_until_ms is not None:
            late |= (number == query.number) & (cell_ms <= query.state.gone_until_ms)
    return rows.filter(pa.array(~late)), rows.filter(pa.array(late))


def _gathered(
    shape: ResultShape,
    windows: KeyedWindows,
    rows: pa.Table | None,
    queries: Sequence[KeyedQuery],
) -> tuple[pa.Table | None, NDArray[np.int64]]:
    """Put new rows, and held ones that they or the watermark may change, together.

    Return also the place of each among its query's held ones, -1 for new ones.
    """
    parts, places = [], []
    for owner, each in enumerate(queries):
        held = each.query.state.keyed.rows
        if held is None:
            continue
        place = np.arange(held.num_rows)
        if isinstance(windows, SessionWindows):
            look = may_change(windows, held, shape.by, rows, each.horizon_us())
            place = np.flatnonzero(look)
            held = held.take(pa.array(place))
        parts.append(held.append_column(OWNER, pa.array(np.full(len(place), owner))))
        places.append(place)
    if rows is not None and rows.num_rows:
        numbers = np.array([each.query.number for each in queries])
        order = np.argsort(numbers)
        owner = order[np.searchsorted(numbers[order], rows[QUERY].to_numpy())]
        arrived = _as_state(shape, windows, rows)
        parts.append(arrived.append_column(OWNER, pa.array(owner.astype(np.int64))))
        places.append(np.full(rows.num_rows, -1))
    if not any(map(len, places)):
        return None, np.zeros(0, dtype=np.int64)
    names = parts[0].column_names
    return pa.concat_tables([part.select(names) for part in parts]), np.concatenate(places)


def _as_state(shape: ResultShape, windows: KeyedWindows, rows: pa.Table) -> pa.Table:
    """Give new rows the columns that state has."""
    no = pa.array(np.zeros(rows.num_rows, dtype=np.bool_))
    if isinstance(windows, CountWindows):
        values = value_columns(shape.aggregates)
        over_values = {
            name: replace(each, column=values.get(name)) for name, each in shape.aggregates.items()
        }
        rows = row_partials(rows, [*shape.by, ROWS, *span_columns(windows)], over_values)
        return rows.append_column(SHOWN, no).append_column(PREFIX, no)
    return rows.drop_columns([QUERY, SLICE]).append_column(SHOWN, no)


def _step(
    shape: ResultShape,
    queries: Sequence[KeyedQuery],
    table: pa.Table,
    place: NDArray[np.int64],
    outcome: ClosedRows,
) -> KeyedStep:
    """Sort by query what the step emits, takes back, keeps and drops."""
    count = len(queries)
    owner, shown_by = table[OWNER].to_numpy(), outcome.shown[OWNER].to_numpy()
    retracted_by = owner[outcome.retracted]
    emits = np.bincount(shown_by, minlength=count) + np.bincount(retracted_by, minlength=count) > 0
    pane = np.array([each.query.state.keyed.emissions for each in queries])
    dropped = np.flatnonzero(outcome.gone & (place >= 0))
    dropped_of = _by_owner(owner[dropped], count)
    added, added_of = (
        outcome.added.drop_columns([OWNER]),
        _by_owner(outcome.added[OWNER].to_numpy(), count),
    )
    changes = [
        KeyedChange(
            emissions=int(pane[index] + emits[index]),
            gone=tuple(place[dropped[dropped_of[index]]].tolist()),
            added=added.take(pa.array(added_of[index])) if len(added_of[index]) else None,
        )
        for index in range(count)
    ]
    if not emits.any():
        return KeyedStep(changes, [()] * count, None)
    values = finish(outcome.shown, [OWNER, *shape.by], shape.aggregates)
    taken_back = table.take(pa.array(outcome.retracted))
    panes, fired = keyed_pane_rows(
        shape,
        [each.query for each in queries],
        EmittedWindows(
            shown_by, outcome.start_us, outcome.end_us, outcome.late, values.drop_columns([OWNER])
        ),
        RetractedWindows(retracted_by, taken_back[FIRST].to_numpy(), taken_back.select(shape.by)),
    )
    windows = [
        tuple(fired[index] for index in indexes.tolist())
        for indexes in _by_owner(np.concatenate((retracted_by, shown_by)), count)
    ]
    return KeyedStep(changes, windows, panes)


def _by_owner(owner: NDArray[np.int64], count: int) -> list[NDArray[np.int64]]:
    """List the places of each query's rows, in their order."""
    order = np.argsort(owner, kind="stable")
    return np.split(order, np.searchsorted(owner[order], np.arange(1, count)))
