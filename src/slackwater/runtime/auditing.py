"""Audits: early results compared with exact ones, from late panes or by reading a window again.

A query with exact panes is audited by the last one of each window, once the window is over: until
then, late events may still amend it. Another one is audited in a share of
its windows: once the source says that all of a window has come, its records are read again, all of
them, beside the steps. What audits find is kept with what the query has learned.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from slackwater.progress.watermarks import PartitionId
from slackwater.runtime.applying import applied_truth, held_columns
from slackwater.runtime.deployed import DeployedQuery
from slackwater.runtime.merge import finish, merge
from slackwater.runtime.panes import ClosingWindow, held_rows
from slackwater.runtime.records import rows_by_slice
from slackwater.runtime.sampler import QuerySampler
from slackwater.runtime.state import SliceState
from slackwater.spark.failures import explain
from slackwater.spark.frames import Template
from slackwater.spark.hush import hushed
from slackwater.spark.row_joins import WINDOW
from slackwater.spark.shapes import ResultShape
from slackwater.spark.steps import Piece, StepRunner
from slackwater.spark.windows import applied_rows

logger = logging.getLogger("slackwater")

_MOST_WAITING = 8  # audits that wait; a runtime that cannot keep up leaves windows out
_AUDIT_SLOT = -1  # beside all slots


def exact_results(
    shape: ResultShape, windows: Sequence[ClosingWindow], *, by_group: bool
) -> list[dict[str, float]]:
    """Compute what audits compare: for each window, its totals, or the results of its groups."""
    keys = [WINDOW, *(shape.by if by_group else ())]
    results = finish(merge(held_rows(windows), keys, shape.aggregates), keys, shape.aggregates)
    found: list[dict[str, float]] = [{} for _ in windows]
    for row in results.to_pylist():
        label = ", ".join(str(row[key]) for key in shape.by) if by_group else None
        for name in shape.aggregates:
            if row[name] is not None:
                place = name if label is None else f"{name} of {label}"
                found[row[WINDOW]][place] = float(row[name])
    return found


def exact_truths(
    sampler: QuerySampler,
    template: Template,
    windows: Sequence[ClosingWindow],
    results: Mapping[ClosingWindow, pa.Table],
    loaded: Callable[[ClosingWindow], ClosingWindow | None],
) -> dict[int, dict[str, float] | None]:
    """Say what exact panes tell of early ones, by their windows' ends; None: it is not known.

    `results` are the panes that a function made, where the output has one. `loaded` brings a
    window's state into the driver, unless it is too large for that.
    """
    found: dict[int, dict[str, float] | None] = {}
    held: list[ClosingWindow] = []
    for window in windows:
        lesson = sampler.promised(window.end_ms)
        if lesson is None:
            continue
        found[window.end_ms] = None
        whole = loaded(window)
        if whole is None:
            continue
        if template.output.function is None:
            held.append(whole)
        elif (exact := results.get(window)) is not None:
            columns = [field.name for field in template.pipeline.columns.fields]
            rows = held_columns(whole, columns)
            truth = applied_truth(sampler.wish, lesson, rows, partial(_known, exact))
            found[window.end_ms] = truth
    if held:
        shape, by_group = template.pipeline.shapes[0], sampler.wish.groups is not None
        exact_ones = exact_results(shape, held, by_group=by_group)
        found |= {window.end_ms: it for window, it in zip(held, exact_ones, strict=True)}
    return found


def _known(result: pa.Table) -> pa.Table:
    return result


@dataclass(frozen=True)
class _Duty:
    """Name a window to read again, and where its records lie."""

    query: DeployedQuery
    end_ms: int
    first: Mapping[PartitionId, int]


class Auditor:
    """Read windows again, beside the steps. One thread at a time works here."""

    def __init__(
        self,
        spark: SparkSession,
        runner: StepRunner,
        template_of: Callable[[DeployedQuery], Template],
    ) -> None:
        """Use `template_of` to find the template that computes a query exactly."""
        self._spark = spark
        self._runner = runner
        self._template_of = template_of
        self._waiting: deque[_Duty] = deque(maxlen=_MOST_WAITING)
        self._known = 0
        self._sampled: list[tuple[DeployedQuery, QuerySampler]] = []

    def look(self, queries: Sequence[DeployedQuery]) -> bool:
        """Take up the windows that are to be audited; tell whether some can be read by now."""
        for query in queries[self._known :]:  # this is asked often, and most do not sample
            if query.sampler is not None and not query.audited_by_panes:
                self._sampled.append((query, query.sampler))
        self._known = len(queries)
        for query, sampler in self._sampled:
            for end_ms, first in sampler.take_audits():
                if len(self._waiting) < _MOST_WAITING:
                    self._waiting.append(_Duty(query, end_ms, first))
        return any(_complete(duty) for duty in self._waiting)

    def work(self) -> int:
        """Audit the windows that have come in whole; return how many."""
        ready = [duty for duty in self._waiting if _complete(duty)]
        for duty in ready:
            self._waiting.remove(duty)
            try:
                with hushed():
                    self._audit(duty)
            except Exception as error:
                logger.warning("%s was not audited: %s", duty.query.pane_name, explain(error))
        return len(ready)

    def _audit(self, duty: _Duty) -> None:
        query, template = duty.query, self._template_of(duty.query)
        pieces = []
        for (index, partition), until in dict(query.state.positions).items():
            first = duty.first.get((index, partition), 0)
            piece = query.readers[index].again(partition, first, until)
            if piece is None:
                return
            pieces.append(Piece(query.number, index, piece, query.readers[index]))
        outcome = self._runner.run(template, pieces, _AUDIT_SLOT)
        rows = rows_by_slice(outcome.rows).get(query.number, {})
        start_ms = duty.end_ms - query.grid.size_ms
        slices = [rows[s] for s in query.grid.slices_of(start_ms) if s in rows]
        if not slices or query.sampler is None:
            return
        if template.output.function is not None:
            self._audit_function(query.sampler, template, duty.end_ms, pa.concat_tables(slices))
            return
        window = ClosingWindow(
            query=query.pane_name,
            number=query.number,
            start_ms=start_ms,
            end_ms=duty.end_ms,
            pane=1,
            timing="late",
            slices=(SliceState(tuple(slices)),),
        )
        by_group = query.sampler.wish.groups is not None
        (truth,) = exact_results(template.pipeline.shapes[0], [window], by_group=by_group)
        query.sampler.compare(duty.end_ms, truth)

    def _audit_function(
        self, sampler: QuerySampler, template: Template, end_ms: int, rows: pa.Table
    ) -> None:
        lesson = sampler.promised(end_ms)
        if lesson is None:
            return

        def exact() -> pa.Table:
            weights = pa.array(np.ones(rows.num_rows))
            return applied_rows(self._spark, template, rows, weights).toArrow()

        sampler.compare(end_ms, applied_truth(sampler.wish, lesson, rows, exact))


def _complete(duty: _Duty) -> bool:
    """Tell whether the source has said that all of a window has come."""
    times = duty.query.state.watermarks.partitions.values()
    return all(time_ms is not None and time_ms >= duty.end_ms for time_ms in times)
