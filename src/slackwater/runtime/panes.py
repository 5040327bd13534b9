"""From the state of closing windows to the rows of their panes, for a whole step at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from slackwater.runtime.merge import finish, merge
from slackwater.runtime.state import SliceState
from slackwater.spark.frames import ROWS, Template
from slackwater.spark.sinks.base import PANE_FIELDS

_WINDOW = "_sw_window"


@dataclass(frozen=True, eq=False)
class ClosingWindow:
    """Name a window that is to be emitted, with the state it is made from."""

    query: str
    number: int
    start_ms: int
    end_ms: int
    pane: int
    timing: str
    slices: tuple[SliceState, ...]

    @property
    def rows_held(self) -> int:
        """Count its state rows in the driver."""
        return sum(state.rows_held for state in self.slices)

    @property
    def in_files(self) -> bool:
        """Tell whether part of its state lies in files."""
        return any(state.blocks for state in self.slices)


def aggregate_panes(
    template: Template, windows: Sequence[ClosingWindow]
) -> tuple[pa.Table, list[int]]:
    """Merge and finish the partials of many windows in one pass; count the rows of each."""
    chunks, owners, lengths = [], [], []
    for index, window in enumerate(windows):
        for state in window.slices:
            for chunk in state.chunks:
                chunks.append(chunk)
                owners.append(index)
                lengths.append(chunk.num_rows)
    partials = pa.concat_tables(chunks).drop_columns([ROWS])
    owner = pa.array(np.repeat(np.array(owners, dtype=np.int32), lengths))
    partials = partials.append_column(_WINDOW, owner)
    keys = [_WINDOW, *template.output.by]
    merged = merge(partials, keys, template.aggregates)
    result = finish(merged, keys, template.aggregates)
    owner_of_row = result[_WINDOW].to_numpy()
    counts = np.bincount(owner_of_row, minlength=len(windows))
    panes = _with_pane_columns(result.drop_columns([_WINDOW]), windows, owner_of_row)
    return panes, [int(count) for count in counts]


def _with_pane_columns(
    values: pa.Table, windows: Sequence[ClosingWindow], owner: np.ndarray
) -> pa.Table:
    """Put the columns that every pane row has before keys and values."""
    columns = [
        pa.array([window.query for window in windows], pa.string()),
        _timestamps([window.start_ms for window in windows]),
        _timestamps([window.end_ms for window in windows]),
        pa.array([window.pane for window in windows], pa.int32()),
        pa.array([window.timing for window in windows], pa.string()),
        pa.array(np.ones(len(windows))),
    ]
    owner_index = pa.array(owner)
    arrays = [column.take(owner_index) for column in columns] + values.columns
    fields = [*PANE_FIELDS, *values.schema]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _timestamps(times_ms: Sequence[int]) -> pa.Array:
    micros = pa.array(np.array(times_ms, dtype=np.int64) * 1_000)
    return micros.cast(pa.timestamp("us", tz="UTC"))
