"""From a window's sample to the rows of its early pane: estimates, bounds, and what they teach."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from slackwater.runtime.estimators import all_groups, each_group
from slackwater.runtime.panes import ClosingWindow, PaneRows, with_pane_columns
from slackwater.runtime.sample_facts import SampleFacts, WindowLesson
from slackwater.runtime.samples import WindowSample, gathered
from slackwater.sampling.estimates import Spread, spreads
from slackwater.sampling.monitor import GroupShare
from slackwater.spark.frames import ROWS
from slackwater.spark.row_joins import WINDOW
from slackwater.spark.shapes import ResultShape

MOST_GROUPS = 64  # that have rates of their own; where more qualify, one rate serves all
_NEARLY = 0.5  # of the share from which on groups have the bound: they may qualify next time


def estimated_panes(
    shape: ResultShape, windows: Sequence[ClosingWindow]
) -> tuple[PaneRows, list[WindowLesson]]:
    """Estimate the panes of windows that were sampled, each from its own strata."""
    tables, accuracies, lessons = [], [], []
    for place, window in enumerate(windows):
        assert window.sample is not None
        chunks = [chunk for state in window.slices for chunk in state.chunks]
        sample = gathered(pa.concat_tables(chunks), shape.by, window.sample)
        table, lesson = _estimate(shape, sample, window.sample)
        accuracies.append(sample.strata.sampled_share)
        lessons.append(lesson)
        owner = pa.array(np.full(table.num_rows, place, dtype=np.int32))
        tables.append(table.append_column(WINDOW, owner))
    panes = with_pane_columns(shape, pa.concat_tables(tables), windows, accuracies)
    return panes, lessons


def _estimate(
    shape: ResultShape, sample: WindowSample, facts: SampleFacts
) -> tuple[pa.Table, WindowLesson]:
    target, groups = facts.target, sample.groups
    counted = sample.summed(ROWS)
    qualifies = np.ones(groups, dtype=bool)
    own: dict[int, Spread] = {}
    populations = np.zeros(groups)
    if target.group_share is not None and groups:
        rows = counted @ sample.strata.weights
        qualifies = rows >= target.group_share * rows.sum()
        populations = sample.populations(counted)
        near = rows >= _NEARLY * target.group_share * rows.sum()
        own = {place: Spread(0.0, 0.0) for place in sample.places[near].tolist() if place}
        own = own if len(own) <= MOST_GROUPS else {}
    columns: dict[str, pa.Array] = {key: sample.keys[key] for key in shape.by}
    met = np.full(groups, facts.trusted)
    learned: dict[str, Spread] = {}
    promised: dict[str, tuple[float, float, float]] = {}
    labels = _labels(sample.keys, groups) if target.group_share is not None else []
    for name, aggregate in shape.aggregates.items():
        found, lin = each_group(name, aggregate, sample, facts, counted)
        columns[name] = pa.array(found.value, mask=np.isnan(found.value))
        for column, values in (("_low", found.low), ("_high", found.high)):
            unknown = np.isnan(values) if facts.bounded else np.ones(groups, dtype=bool)
            columns[name + column] = pa.array(values, mask=unknown)
        if lin is None or not groups:
            continue
        met &= found.relative() <= target.relative  # each row speaks for itself
        if target.group_share is None:
            total, whole = all_groups(name, aggregate, sample, facts, counted)
            learned[name] = spreads(sample.strata, whole)[0]
            promised[name] = (total.value[0], total.low[0], total.high[0])
        else:
            for index in np.flatnonzero(qualifies).tolist():
                promised[f"{name} of {labels[index]}"] = (
                    found.value[index],
                    found.low[index],
                    found.high[index],
                )
            each = [s for s, q in zip(spreads(sample.strata, lin), qualifies, strict=True) if q]
            for one in each:
                learned[name] = learned.get(name, Spread(0.0, 0.0)) | one
            inner = spreads(sample.strata, lin, populations)
            for place, one in zip(sample.places.tolist(), inner, strict=True):
                if place in own:
                    own[place] |= one
    taken, population = sample.strata.sampled.sum(), sample.strata.population
    columns["confidence"] = pa.array(np.full(groups, target.confidence))
    columns["sampled"] = pa.array(np.full(groups, int(taken), dtype=np.int64))
    columns["population"] = pa.array(np.full(groups, round(population), dtype=np.int64))
    columns["met"] = pa.array(met, mask=np.full(groups, not facts.bounded))
    if not facts.bounded:
        promised = {}
    return pa.table(columns), WindowLesson(
        sample.substreams,
        learned,
        promised,
        sample.strata.missing,
        sample.strata.sampled_share,
        {
            place: GroupShare(float(size / population), own[place])
            for place, size in zip(sample.places.tolist(), populations.tolist(), strict=True)
            if place in own
        },
    )


def _labels(keys: pa.Table, groups: int) -> list[str]:
    if not keys.num_columns:
        return [""] * groups
    return [", ".join(map(str, row.values())) for row in keys.to_pylist()]
