"""Compute the panes of closing windows, in the driver or on Spark, and write them to the sink."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from slackwater.runtime.applying import applied_panes, held_columns, with_exact_numbers
from slackwater.runtime.estimating import estimated_panes
from slackwater.runtime.panes import (
    ClosingWindow,
    PaneRows,
    aggregate_panes,
    held_rows,
    with_exact_bounds,
    with_pane_columns,
    with_retractions,
)
from slackwater.runtime.placing import Limits
from slackwater.runtime.sample_facts import WindowLesson
from slackwater.runtime.staged import StagedBlocks
from slackwater.runtime.write_turns import WritingStep
from slackwater.spark.frames import Template
from slackwater.spark.row_joins import aggregated_join
from slackwater.spark.sinks.base import PaneId, SinkWriter
from slackwater.spark.windows import (
    PaneValues,
    applied_rows,
    joined_state,
    pane_frame,
    window_frame,
)


class Watch:
    """Measure laps."""

    def __init__(self) -> None:
        """Start the first lap."""
        self._last = time.perf_counter()

    def lap_ms(self) -> float:
        """Return how long the lap took, and start another."""
        last, self._last = self._last, time.perf_counter()
        return (self._last - last) * 1_000


@dataclass(frozen=True)
class Emission:
    """Say how many rows each window's pane has, and how long they took."""

    counts: Sequence[int]
    merge_ms: float
    sink_ms: float
    lessons: Mapping[ClosingWindow, WindowLesson] = field(default_factory=dict)
    results: Mapping[ClosingWindow, pa.Table] = field(default_factory=dict)  # of functions, exactly


class PaneEmitter:
    """Make panes. Used by all slots at once; holds no state of its own."""

    def __init__(
        self,
        spark: SparkSession,
        staged: StagedBlocks,
        sinks: Mapping[object, SinkWriter],
        limits: Limits,
    ) -> None:
        """Bring together what panes are made with."""
        self._spark = spark
        self._staged = staged
        self._sinks = sinks
        self._limits = limits

    def emit(
        self, template: Template, windows: Sequence[ClosingWindow], step: WritingStep, watch: Watch
    ) -> Emission:
        """Compute and write the panes of a template's first windows."""
        if not windows:
            return Emission([], watch.lap_ms(), 0.0)
        if template.samples:
            held = [self._in_memory(window) for window in windows]
            panes, found = self._estimated(template, held)
            merge_ms = watch.lap_ms()
            self.write(template, panes, windows, step)
            lessons = dict(zip(windows, found, strict=True))
            return Emission(panes.counts(len(windows)), merge_ms, watch.lap_ms(), lessons)
        large = [window for window in windows if self._is_large(template, window)]
        small = [window for window in windows if window not in large]
        groups = list(self._groups(small))
        if len(groups) == 1 and not large:
            panes = self._small_panes(template, groups[0])
            merge_ms = watch.lap_ms()
            self.write(template, panes, groups[0], step)
            return Emission(
                panes.counts(len(windows)),
                merge_ms,
                watch.lap_ms(),
                results=_exact_results(template, groups[0], panes),
            )
        return self._emit_in_pieces(template, windows, groups, large, step, watch)

    def _emit_in_pieces(
        self,
        template: Template,
        windows: Sequence[ClosingWindow],
        groups: Sequence[Sequence[ClosingWindow]],
        large: Sequence[ClosingWindow],
        step: WritingStep,
        watch: Watch,
    ) -> Emission:
        """Compute what memory cannot hold at once piece by piece; all of it is seen, or nothing."""
        counts = dict.fromkeys(windows, 0)
        exact: dict[ClosingWindow, pa.Table] = {}
        with self._sinks[template.output.sink].stage(step.slot) as pieces:
            for group in groups:
                panes = self._small_panes(template, group)
                counts.update(zip(group, panes.counts(len(group)), strict=True))
                exact |= _exact_results(template, group, panes)
                pieces.add(_shown(template, panes, group))
            for window in large:
                pane = PaneId(window.query, window.start_ms * 1_000, window.shown_pane)
                frame = self._frame(template, window)
                counts[window] = pieces.add_frame(pane, frame)
                if not counts[window]:
                    nothing = to_arrow_schema(frame.schema, timezone="UTC").empty_table()
                    pieces.add(_shown(template, _owned(nothing, 0), [window]))
            merge_ms = watch.lap_ms()
            with step.turn():
                pieces.publish()
        return Emission(
            [counts[window] for window in windows], merge_ms, watch.lap_ms(), results=exact
        )

    def _estimated(
        self, template: Template, windows: Sequence[ClosingWindow]
    ) -> tuple[PaneRows, list[WindowLesson]]:
        """Estimate the panes of windows that were sampled."""
        shape, wish = template.pipeline.shapes[0], template.output.error
        if template.output.function is None or wish is None:
            return estimated_panes(shape, windows)

        def apply(rows: pa.Table, weights: pa.Array) -> pa.Table:
            return applied_rows(self._spark, template, rows, weights).toArrow()

        columns = [field.name for field in template.pipeline.columns.fields]
        return applied_panes(shape, windows, columns, wish.functions, apply)

    def compute(self, template: Template, windows: Sequence[ClosingWindow]) -> PaneRows:
        """Compute the panes of a template's first windows for a further stage, in the driver."""
        places = {window: place for place, window in enumerate(windows)}
        large = [window for window in windows if self._is_large(template, window)]
        small = [window for window in windows if window not in large]
        parts = []
        for group in self._groups(small):
            panes = self._small_panes(template, group)
            whole = np.array([places[window] for window in group], dtype=np.int64)
            parts.append(PaneRows(panes.table, whole[panes.owner]))
        for window in large:
            table = self._frame(template, window).toArrow()
            parts.append(_owned(table, places[window]))
        return _together(parts)

    def write(
        self,
        template: Template,
        panes: PaneRows,
        windows: Sequence[ClosingWindow],
        step: WritingStep,
    ) -> None:
        """Write the panes of a step's windows, all of them, to the template's sink."""
        table = _shown(template, panes, windows)
        if table.num_rows:
            with step.turn():
                self._sinks[template.output.sink].write(table, step.slot)

    def _small_panes(self, template: Template, windows: Sequence[ClosingWindow]) -> PaneRows:
        shape, output = template.pipeline.shapes[0], template.output
        windows = [self._in_memory(window) for window in windows]
        if not template.keeps_rows:
            panes = aggregate_panes(shape, windows)
            return with_exact_bounds(shape, panes) if template.bounds == "exact" else panes
        if output.row_join is not None and output.function is None:
            rows = joined_state(self._spark, template, held_rows(windows))
            joined = aggregated_join(output.row_join, rows, shape.by, shape.aggregates)
            return with_pane_columns(shape, joined.toArrow(), windows)
        tables = [self._frame(template, window).toArrow() for window in windows]
        if template.bounds == "exact" and output.error is not None:
            columns = [field.name for field in template.pipeline.columns.fields]
            tables = [
                with_exact_numbers(
                    output.error,
                    template.pipeline.result_names,
                    table,
                    held_columns(window, columns),
                )
                for table, window in zip(tables, windows, strict=True)
            ]
        return _together([_owned(table, place) for place, table in enumerate(tables)])

    def _frame(self, template: Template, window: ClosingWindow) -> DataFrame:
        """Compute one window's pane as a frame."""
        held = [chunk for state in window.slices for chunk in state.chunks]
        blocks = [block for state in window.slices for block in state.blocks]
        frames, files = self._staged.spread(blocks)
        values = PaneValues(
            window.query,
            window.start_ms,
            window.end_ms,
            window.shown_pane,
            window.timing,
            accuracy=1.0,
        )
        state = window_frame(self._spark, template, held, files, frames)
        return pane_frame(template, state, values)

    def _groups(self, windows: Sequence[ClosingWindow]) -> Iterator[list[ClosingWindow]]:
        """Take together what memory may hold at once: most often, all."""
        group: list[ClosingWindow] = []
        size = 0
        for window in windows:
            if group and size + window.bytes > self._limits.window_bytes:
                yield group
                group, size = [], 0
            group.append(window)
            size += window.bytes
        if group:
            yield group

    def _in_memory(self, window: ClosingWindow) -> ClosingWindow:
        """Return a window with all of its state in the driver."""
        if not window.in_files:
            return window
        return replace(window, slices=tuple(map(self._staged.in_memory, window.slices)))

    def loaded(self, template: Template, window: ClosingWindow) -> ClosingWindow | None:
        """Return a window with all of its state in the driver; None where it is too large."""
        return None if self._is_large(template, window) else self._in_memory(window)

    def _is_large(self, template: Template, window: ClosingWindow) -> bool:
        """Tell whether Spark computes a window from its files: the driver need not hold it."""
        limits = self._limits
        if template.keeps_rows:
            return window.in_files and window.bytes > limits.function_bytes
        return window.rows > limits.window_rows or window.bytes > limits.window_bytes


def _shown(template: Template, panes: PaneRows, windows: Sequence[ClosingWindow]) -> pa.Table:
    """Return what a sink is to see of some windows' panes.

    One without rows leaves no trace there, unless there may be rows for it to take back. Only a
    function can give some rows and then, with more input, none.
    """
    if template.output.function is None:
        return panes.table
    counts = panes.counts(len(windows))
    emptied = [w for w, rows in zip(windows, counts, strict=True) if w.shown_pane and not rows]
    return with_retractions(panes.table, emptied)


def _exact_results(
    template: Template, windows: Sequence[ClosingWindow], panes: PaneRows
) -> dict[ClosingWindow, pa.Table]:
    """Keep what functions gave exactly, where early panes are to be compared with it."""
    if template.bounds != "exact" or template.output.function is None:
        return {}
    return dict(zip(windows, panes.each(len(windows)), strict=True))


def _owned(table: pa.Table, place: int) -> PaneRows:
    return PaneRows(table, np.full(table.num_rows, place, dtype=np.int64))


def _together(parts: Sequence[PaneRows]) -> PaneRows:
    if len(parts) == 1:
        return parts[0]
    names = parts[0].table.column_names
    # Nullability differs between what Spark and what the driver computes.
    tables = [pa.table(dict(zip(names, part.table.columns, strict=True))) for part in parts]
    return PaneRows(pa.concat_tables(tables), np.concatenate([part.owner for part in parts]))
