"""Close sessions and counted windows over tables of their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slackwater.app.windows import CountWindows, KeyedWindows
from slackwater.progress.counting import CountedRows, close_counted
from slackwater.progress.sessions import Horizon, close_sessions
from slackwater.runtime.keyed_state import PREFIX, SHOWN
from slackwater.runtime.merge import group_numbers, merge
from slackwater.spark.frames import ROWS
from slackwater.spark.keyed_rows import FIRST, LAST, TIES
from slackwater.spark.row_joins import WINDOW
from slackwater.spark.shapes import ResultShape

OWNER = "_sw_owner"  # the place of a row's query in the step


@dataclass(frozen=True, eq=False)
class ClosedRows:
    """Hold what becomes of the rows of a step."""

    shown: pa.Table  # merged partials of what is emitted: OWNER, keys, partials
    start_us: NDArray[np.int64]
    end_us: NDArray[np.int64]
    late: NDArray[np.bool_]
    retracted: NDArray[np.int64]  # rows
    gone: NDArray[np.bool_]  # of each row: it does not stay as it is
    added: pa.Table  # OWNER, then state columns


def close_rows(
    shape: ResultShape,
    windows: KeyedWindows,
    table: pa.Table,
    arrived: NDArray[np.bool_],
    horizon: Horizon,
) -> ClosedRows:
    """Decide what becomes of rows (OWNER, state columns); `arrived` are those a step brought."""
    if isinstance(windows, CountWindows):
        return _counted(shape, windows, table, arrived, horizon)
    return _sessions(shape, windows, table, arrived, horizon)


def _sessions(
    shape: ResultShape,
    windows: KeyedWindows,
    table: pa.Table,
    arrived: NDArray[np.bool_],
    horizon: Horizon,
) -> ClosedRows:
    gap_us = windows.gap_ms * 1_000
    closing = close_sessions(
        group_numbers(table, [OWNER, *shape.by]),
        table[FIRST].to_numpy(),
        table[LAST].to_numpy(),
        arrived=arrived,
        shown=_flags(table, SHOWN),
        horizon=horizon,
        gap_us=gap_us,
    )
    changed = closing.changed[closing.session]
    pieces = table.append_column(WINDOW, pa.array(closing.session)).filter(pa.array(changed))
    whole = merge(pieces, [WINDOW, OWNER, *shape.by], shape.aggregates, sums=[ROWS])
    session = whole[WINDOW].to_numpy()
    whole = whole.drop_columns([WINDOW])
    emitted = closing.emitted[session]
    stays = pa.array(~closing.forgotten[session])
    spans = {FIRST: closing.start_us, LAST: closing.last_us, SHOWN: closing.shown}
    added = _with_columns(whole, {name: column[session] for name, column in spans.items()})
    return ClosedRows(
        shown=whole.filter(pa.array(emitted)),
        start_us=closing.start_us[session][emitted],
        end_us=closing.last_us[session][emitted] + gap_us,
        late=closing.late[session][emitted],
        retracted=np.flatnonzero(closing.retracted),
        gone=changed,
        added=added.filter(stays).select(table.column_names),
    )


def _counted(
    shape: ResultShape,
    windows: CountWindows,
    table: pa.Table,
    arrived: NDArray[np.bool_],
    horizon: Horizon,
) -> ClosedRows:
    shown = _flags(table, SHOWN)
    closing = close_counted(
        CountedRows(
            group=group_numbers(table, [OWNER, *shape.by]),
            first_us=table[FIRST].to_numpy(),
            last_us=table[LAST].to_numpy(),
            events=table[ROWS].to_numpy(),
            is_prefix=_flags(table, PREFIX),
            ties=tuple(table[tie].to_numpy() for tie in TIES),
            arrived=arrived,
            shown=shown,
        ),
        horizon,
        gap_us=windows.gap_ms * 1_000,
        size=windows.events,
        slide=windows.every,
    )
    pieces = table.take(pa.array(closing.members)).append_column(WINDOW, pa.array(closing.window))
    whole = merge(pieces, [WINDOW, OWNER, *shape.by], shape.aggregates)
    gone = arrived | closing.dropped | (closing.shown != shown)
    stays = gone & ~closing.dropped
    kept = _with_columns(table.filter(pa.array(stays)), {SHOWN: closing.shown[stays]})
    return ClosedRows(
        shown=whole.drop_columns([WINDOW]),
        start_us=closing.start_us,
        end_us=closing.last_us,
        late=closing.late,
        retracted=closing.retracted,
        gone=gone,
        added=pa.concat_tables(
            [
                kept.select(table.column_names),
                _prefixes(
                    table.take(pa.array(closing.prefix_row)),
                    {
                        ROWS: closing.prefix_events,
                        FIRST: closing.prefix_first_us,
                        LAST: closing.prefix_last_us,
                    },
                    [OWNER, *shape.by],
                ),
            ]
        ),
    )


def _prefixes(
    rows: pa.Table, counts: Mapping[str, NDArray[np.int64]], keys: Sequence[str]
) -> pa.Table:
    """Make rows that only count events, from rows with their keys."""
    size = rows.num_rows
    columns = {
        field.name: rows[field.name]
        if field.name in keys
        else pa.array(np.zeros(size, dtype=np.int64))
        if field.name in TIES
        else pa.nulls(size, field.type)
        for field in rows.schema
    }
    columns |= {name: pa.array(column) for name, column in counts.items()}
    columns |= {SHOWN: pa.array(np.zeros(size, bool)), PREFIX: pa.array(np.ones(size, bool))}
    return pa.table(columns)


def _with_columns(table: pa.Table, columns: Mapping[str, NDArray[np.generic]]) -> pa.Table:
    """Set columns of a table, in place of those of the same name or behind the others."""
    for name, column in columns.items():
        index = table.schema.get_field_index(name)
        array = pa.array(column)
        table = (
            table.append_column(name, array) if index < 0 else table.set_column(index, name, array)
        )
    return table


def _flags(table: pa.Table, column: str) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = table[column].to_numpy()
    return found
