"""From the state of closing windows to the rows of their panes, for a whole step at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql.pandas.types import to_arrow_schema

from slackwater.app.nodes import LegsNode, joined
from slackwater.runtime.merge import finish, merge
from slackwater.runtime.sample_facts import SampleFacts
from slackwater.runtime.state import SliceState
from slackwater.spark.row_joins import WINDOW
from slackwater.spark.shapes import ResultShape
from slackwater.spark.sinks.base import PANE_FIELDS, RETRACTED


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
    sample: SampleFacts | None = None  # of a window that is estimated
    first_pane: int = 0

    @property
    def shown_pane(self) -> int:
        """Return the pane's number as sinks have it."""
        return self.first_pane + self.pane

    @property
    def rows(self) -> int:
        """Count its state rows, wherever they are."""
        stored = sum(block.rows for state in self.slices for block in state.blocks)
        return stored + sum(state.rows_held for state in self.slices)

    @property
    def bytes(self) -> int:
        """Return how much memory its state takes, or would."""
        stored = sum(block.bytes for state in self.slices for block in state.blocks)
        return stored + sum(state.bytes_held for state in self.slices)

    @property
    def in_files(self) -> bool:
        """Tell whether part of its state lies in files."""
        return any(state.blocks for state in self.slices)


@dataclass(frozen=True, eq=False)
class PaneRows:
    """Hold the rows of some windows' panes; `owner` is the place of each row's window in a list."""

    table: pa.Table
    owner: NDArray[np.int64]

    def counts(self, windows: int) -> list[int]:
        """Count the rows of each window."""
        return [int(count) for count in np.bincount(self.owner, minlength=windows)]

    def each(self, windows: int) -> list[pa.Table]:
        """Tell the rows of each window apart."""
        return [self.table.filter(pa.array(self.owner == place)) for place in range(windows)]


def aggregate_panes(shape: ResultShape, windows: Sequence[ClosingWindow]) -> PaneRows:
    """Merge and finish the partials of many windows in one pass; each has state in the driver."""
    partials = held_rows(windows)
    keys = [WINDOW, *shape.by]
    merged = merge(partials, keys, shape.aggregates)
    result = finish(merged, keys, shape.aggregates)
    if shape.join is not None:
        result = settle_join(shape.join, result)
    return with_pane_columns(shape, result, windows)


def held_rows(windows: Sequence[ClosingWindow]) -> pa.Table:
    """Put the state rows of many windows together, with the place of each row's window."""
    chunks, owners, lengths = [], [], []
    for index, window in enumerate(windows):
        for state in window.slices:
            for chunk in state.chunks:
                chunks.append(chunk)
                owners.append(index)
                lengths.append(chunk.num_rows)
    owner = pa.array(np.repeat(np.array(owners, dtype=np.int32), lengths))
    return pa.concat_tables(chunks).append_column(WINDOW, owner)


def settle_join(join: LegsNode, table: pa.Table) -> pa.Table:
    """Keep the groups that a join keeps, and show of each the legs that have it."""
    present = [pc.greater(table[mark], 0) for mark in join.marks]
    kept, shown = joined(join.hows, present, pc.and_, pc.or_)
    for leg, has_leg in zip(join.legs, shown, strict=True):
        if pc.all(has_leg).as_py() is not False:
            continue
        rows = pa.array(np.arange(table.num_rows))
        rows = pc.if_else(has_leg, rows, pa.scalar(None, pa.int64()))
        for name in leg.aggregates:
            index = table.schema.get_field_index(name)
            table = table.set_column(index, name, table[name].take(rows))
    return table.drop_columns(join.marks).filter(kept)


def with_pane_columns(
    shape: ResultShape,
    values: pa.Table,
    windows: Sequence[ClosingWindow],
    accuracies: Sequence[float] | None = None,
) -> PaneRows:
    """Put the columns that every pane row has before keys and values, derived ones behind."""
    owner = values[WINDOW].to_numpy().astype(np.int64)
    values = values.drop_columns([WINDOW])
    columns = [
        pa.array([window.query for window in windows], pa.string()),
        _timestamps([window.start_ms for window in windows]),
        _timestamps([window.end_ms for window in windows]),
        pa.array([window.shown_pane for window in windows], pa.int32()),
        pa.array([window.timing for window in windows], pa.string()),
        pa.array(np.ones(len(windows)) if accuracies is None else np.array(accuracies)),
    ]
    owner_index = pa.array(owner)
    arrays = [column.take(owner_index) for column in columns] + values.columns
    fields = [*PANE_FIELDS, *values.schema]
    table = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
    return PaneRows(shape.deriver()(table) if shape.derived else table, owner)


def no_panes(shape: ResultShape) -> PaneRows:
    """Return panes without rows, with the columns that a further stage's panes have."""
    assert shape.result is not None
    values = to_arrow_schema(shape.result, timezone="UTC", prefers_large_types=False)
    table = pa.schema([*PANE_FIELDS, *values]).empty_table()
    return PaneRows(table, np.zeros(0, dtype=np.int64))


def with_retractions(table: pa.Table, windows: Sequence[ClosingWindow]) -> pa.Table:
    """Add, for each of these windows, a row that takes all rows of its earlier panes back."""
    if not windows:
        return table
    columns = {
        "query": pa.array([window.query for window in windows], pa.string()),
        "window_start": _timestamps([window.start_ms for window in windows]),
        "window_end": _timestamps([window.end_ms for window in windows]),
        "pane": pa.array([window.shown_pane for window in windows], pa.int32()),
        "timing": pa.array([RETRACTED] * len(windows), pa.string()),
        "accuracy": pa.array(np.ones(len(windows))),
    }
    arrays = [
        columns[field.name] if field.name in columns else pa.nulls(len(windows), field.type)
        for field in table.schema
    ]
    # Columns that are never null in a result are so here.
    named = pa.table(dict(zip(table.column_names, table.columns, strict=True)))
    return pa.concat_tables([named, pa.table(arrays, names=table.column_names)])


def with_exact_bounds(shape: ResultShape, panes: PaneRows) -> PaneRows:
    """Give exact panes the columns of estimated ones: bounds that leave nothing open."""
    table, columns = panes.table, {}
    for name in table.column_names:
        if name not in shape.aggregates:
            columns[name] = table[name]
            continue
        exact = table[name].cast(pa.float64())
        columns |= {name: exact, f"{name}_low": exact, f"{name}_high": exact}
    rows = table.num_rows
    columns["confidence"] = pa.array(np.ones(rows))
    columns["sampled"] = columns["population"] = pa.nulls(rows, pa.int64())
    columns["met"] = pa.array(np.ones(rows, dtype=bool))
    fields = {field.name: field for field in PANE_FIELDS}
    schema = pa.schema([fields.get(n, pa.field(n, c.type)) for n, c in columns.items()])
    return PaneRows(pa.Table.from_arrays(list(columns.values()), schema=schema), panes.owner)


def _timestamps(times_ms: Sequence[int]) -> pa.Array:
    micros = pa.array(np.array(times_ms, dtype=np.int64) * 1_000)
    return micros.cast(pa.timestamp("us", tz="UTC"))
