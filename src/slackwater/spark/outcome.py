"""What a step's job brings back: state rows, and statistics beside them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.spark.frames import ROWS, SLICE, STATISTICS
from slackwater.spark.jobtimes import JobTimes
from slackwater.spark.sources.base import QUERY


@dataclass(frozen=True)
class PartitionStatistics:
    """Say what a step saw of one partition, before any transform."""

    query: int
    input: int
    partition: int
    records: int
    rejected: int
    newest_ms: int | None  # highest event time, or announced watermark
    newest_arrival_ms: int | None
    delays: int
    delay_sum_ms: float
    delay_squares_ms2: float
    delay_most_ms: float = 0.0


@dataclass(frozen=True)
class StepOutcome:
    """Hold what a step brought back: state rows by query and slice, and statistics.

    `timeless` counts, by query, the rows that a transform left without event time.
    """

    rows: pa.Table  # QUERY, SLICE, then the template's state columns
    timeless: Counter[int]
    statistics: tuple[PartitionStatistics, ...]
    prepared: bool
    times: JobTimes


def read_outcome(table: pa.Table, times: JobTimes, *, prepared: bool) -> StepOutcome:
    """Tell state rows from statistics in what a step's job returned."""
    is_row = pc.is_null(table[STATISTICS])
    statistics = table.filter(pc.invert(is_row)).select([QUERY, STATISTICS])
    rows = table.filter(is_row).drop_columns([STATISTICS])
    # Nullability differs between plans of the same template; state must not depend on it.
    rows = pa.table(dict(zip(rows.column_names, rows.columns, strict=True)))
    timeless: Counter[int] = Counter()
    if rows[SLICE].null_count:
        placed = pc.is_valid(rows[SLICE])
        timeless = _count_rows(rows.filter(pc.invert(placed)))
        rows = rows.filter(placed)
    return StepOutcome(rows, timeless, tuple(_read_statistics(statistics)), prepared, times)


def _count_rows(state: pa.Table) -> Counter[int]:
    """Count, by query, the rows behind some state."""
    each = state[ROWS].to_pylist() if ROWS in state.column_names else [1] * state.num_rows
    counts: Counter[int] = Counter()
    for query, rows in zip(state[QUERY].to_pylist(), each, strict=True):
        counts[query] += rows
    return counts


def _read_statistics(table: pa.Table) -> Iterator[PartitionStatistics]:
    queries = table[QUERY].to_pylist()
    for query, text in zip(queries, table[STATISTICS].to_pylist(), strict=True):
        cell = json.loads(text)  # an aggregate that is null is left out
        yield PartitionStatistics(
            query=query,
            input=cell["input"],
            partition=cell["partition"],
            records=cell["records"],
            rejected=cell["rejected"],
            newest_ms=cell.get("newest"),
            newest_arrival_ms=cell.get("newest_arrival"),
            delays=cell["delays"],
            delay_sum_ms=cell.get("delay_sum", 0.0),
            delay_squares_ms2=cell.get("delay_squares", 0.0),
            delay_most_ms=cell.get("delay_most", 0.0),
        )
