"""Functions of a window's rows under an error wish: panes from samples, and what is true of them.

The function is run over the sampled rows, each with its weight; the wish's error functions then say
how far off its result may be. What they bound is a column of the result, or a number of its own
that tells how good the result is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from slackwater.app.bounds import ErrorWish
from slackwater.runtime.panes import ClosingWindow, PaneRows, with_pane_columns
from slackwater.runtime.sample_facts import SampleFacts, WindowLesson
from slackwater.runtime.samples import WindowSample, gathered
from slackwater.sampling.applied import (
    NumberBounds,
    ResultErrorFunction,
    SampledWindow,
    judged,
)
from slackwater.sampling.estimates import Spread
from slackwater.sampling.strata import Floats
from slackwater.sampling.targets import Target
from slackwater.spark.row_joins import WINDOW
from slackwater.spark.shapes import ResultShape

Functions = Mapping[str, ResultErrorFunction]


def held_columns(window: ClosingWindow, columns: Sequence[str]) -> pa.Table:
    """Put the rows of a window together, all of which are in the driver."""
    chunks = [chunk for state in window.slices for chunk in state.chunks]
    return pa.concat_tables(chunks).select(columns)


def applied_panes(
    shape: ResultShape,
    windows: Sequence[ClosingWindow],
    columns: Sequence[str],
    functions: Functions,
    apply: Callable[[pa.Table, pa.Array], pa.Table],
) -> tuple[PaneRows, list[WindowLesson]]:
    """Apply a function to the sampled rows (`columns`) of each window, and bound what it gives."""
    tables, accuracies, lessons = [], [], []
    for place, window in enumerate(windows):
        facts = window.sample
        assert facts is not None
        chunks = [chunk for state in window.slices for chunk in state.chunks]
        sample = gathered(pa.concat_tables(chunks), (), facts)
        rows = sample.rows.select(columns)
        result = apply(rows, pa.array(sample.strata.weights[sample.stratum]))
        table, lesson = _bounded(sample, rows, result, facts, functions)
        accuracies.append(sample.strata.sampled_share)
        lessons.append(lesson)
        owner = pa.array(np.full(table.num_rows, place, dtype=np.int32))
        tables.append(table.append_column(WINDOW, owner))
    return with_pane_columns(shape, pa.concat_tables(tables), windows, accuracies), lessons


def _bounded(
    sample: WindowSample,
    rows: pa.Table,
    result: pa.Table,
    facts: SampleFacts,
    functions: Functions,
) -> tuple[pa.Table, WindowLesson]:
    count, target = result.num_rows, facts.target
    found: dict[str, NumberBounds] = {}
    if rows.num_rows:
        seen = SampledWindow(
            rows, result, sample.strata, sample.stratum, target, facts.caution, facts.bias
        )
        found = judged(seen, functions, count)
    columns = {name: result[name] for name in result.column_names if name not in functions}
    met = np.full(count, bool(rows.num_rows) and facts.trusted)
    learned: dict[str, Spread] = {}
    promised: dict[str, tuple[float, float, float]] = {}
    for name in functions:
        nothing = np.full(1, np.nan)
        it = found.get(name, NumberBounds(nothing, nothing, nothing, Spread(0.0, 0.0)))
        columns[name] = _column(it.value, count)
        for end, bound in (("_low", it.low), ("_high", it.high)):
            columns[name + end] = _column(bound if facts.bounded else nothing, count)
        if name in found:
            met &= np.broadcast_to(it.relative() <= target.relative, count)
            learned[name] = it.spread
            promised |= _promises(name, it, of_result=name in result.column_names)
    columns["confidence"] = pa.array(np.full(count, target.confidence))
    taken, population = sample.strata.sampled.sum(), sample.strata.population
    columns["sampled"] = pa.array(np.full(count, int(taken), dtype=np.int64))
    columns["population"] = pa.array(np.full(count, round(population), dtype=np.int64))
    columns["met"] = pa.array(met, mask=np.full(count, not facts.bounded))
    return pa.table(columns), WindowLesson(
        sample.substreams,
        learned,
        promised if facts.bounded else {},
        sample.strata.missing,
        sample.strata.sampled_share,
        result=result,
    )


def _promises(
    name: str, it: NumberBounds, *, of_result: bool
) -> dict[str, tuple[float, float, float]]:
    """List what can be audited: not columns of many rows, which an exact result has otherwise."""
    if len(it.value) == 1:
        return {name: (float(it.value[0]), float(it.low[0]), float(it.high[0]))}
    if of_result:
        return {}
    bounds = zip(it.value.tolist(), it.low.tolist(), it.high.tolist(), strict=True)
    return {f"{name} of row {row}": each for row, each in enumerate(bounds)}


def applied_truth(
    wish: ErrorWish, lesson: WindowLesson, rows: pa.Table, exact: Callable[[], pa.Table]
) -> dict[str, float]:
    """Find the truth about an early result, from all rows of its window.

    A column of the result is compared with the exact result. A number about the result is that of
    the early result, over all rows: it says how good that one was.
    """
    early = lesson.result
    assert early is not None
    truth: dict[str, float] = {}
    window = SampledWindow.whole(rows, early, Target(wish.relative, wish.confidence))
    whole: pa.Table | None = None
    for name, function in wish.functions.items():
        if not any(each == name or each.startswith(f"{name} of row ") for each in lesson.promised):
            continue
        if name not in early.column_names:
            values = judged(window, {name: function}, early.num_rows)[name].value.tolist()
            one = len(values) == 1
            truth |= {name if one else f"{name} of row {i}": v for i, v in enumerate(values)}
            continue
        whole = exact() if whole is None else whole
        if whole.num_rows and (value := whole[name][0].as_py()) is not None:
            truth[name] = float(value)
    return truth


def with_exact_numbers(
    wish: ErrorWish, names: Sequence[str], panes: pa.Table, rows: pa.Table
) -> pa.Table:
    """Fill in, on an exact pane, the numbers about its result, which only error functions know.

    `names` are the columns of the result itself.
    """
    functions = {name: each for name, each in wish.functions.items() if name not in names}
    if not functions or not panes.num_rows or not rows.num_rows:
        return panes
    target = Target(wish.relative, wish.confidence)
    window = SampledWindow.whole(rows, panes.select(list(names)), target)
    for name, it in judged(window, functions, panes.num_rows).items():
        for column in (name, f"{name}_low", f"{name}_high"):
            index = panes.schema.get_field_index(column)
            panes = panes.set_column(index, column, _column(it.value, panes.num_rows))
    return panes


def _column(values: Floats, rows: int) -> pa.Array:
    full = np.broadcast_to(values, rows)
    return pa.array(full, mask=np.isnan(full))
