"""Run steps: prepared where the plan proves safe, rebuilt where it does not."""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from slackwater.spark.frames import (
    ROWS,
    SLICE,
    STATISTICS,
    Template,
    entry_rows,
    rejected_frame,
    step_frame,
    timeless_frame,
    too_late_frame,
)
from slackwater.spark.latebound import SpecificationCells, classic_jvm, fixed_specification
from slackwater.spark.safety import unsafe_reasons
from slackwater.spark.sources.base import QUERY, LateBoundReader, Range, ScanReader, SourceReader

logger = logging.getLogger("slackwater")


@dataclass(frozen=True)
class Piece:
    """Name what one query reads from one partition of one input."""

    query: int
    input: int
    range: Range
    reader: SourceReader = field(compare=False, repr=False)


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


@dataclass(frozen=True)
class StepOutcome:
    """Hold what a step brought back: state rows by query and slice, and statistics.

    `timeless` counts, by query, the rows that a transform left without event time.
    """

    rows: pa.Table  # QUERY, SLICE, then the template's state columns
    timeless: Counter[int]
    statistics: tuple[PartitionStatistics, ...]
    prepared: bool


@dataclass
class _PreparedPlan:
    cells: SpecificationCells
    frame: DataFrame


@dataclass
class _Lane:
    """Hold the prepared plans of one slot; a slot runs one step at a time."""

    plans: dict[Template, _PreparedPlan] = field(default_factory=dict)


class StepRunner:
    """Turn ranges into rows on Spark, one job a step."""

    def __init__(self, spark: SparkSession, slots: int, *, prepare: bool = True) -> None:
        """Keep one set of prepared plans per slot; `prepare=False` rebuilds every step."""
        self._spark = spark
        self._prepare = prepare and classic_jvm(spark) is not None
        self._lanes = [_Lane() for _ in range(slots)]
        self._verdicts: dict[Template, list[str]] = {}  # empty: safe
        self._lock = threading.Lock()

    def prepare(self, template: Template, slot: int) -> None:
        """Build and plan a template for a slot ahead of its first step."""
        if self._may_prepare(template):
            self._plan(template, slot)

    def why_rebuilt(self, template: Template) -> list[str]:
        """Say why a template's steps are rebuilt; empty where they are prepared."""
        late_bound = all(isinstance(reader, LateBoundReader) for reader in template.readers)
        if not late_bound:
            return ["its source needs a scan of its own"]
        return self._verdicts.get(template, []) if self._prepare else ["prepare=False"]

    def run(
        self, template: Template, pieces: Sequence[Piece], slot: int, *, parallelism: int = 1
    ) -> StepOutcome:
        """Read the pieces in one Spark job; `parallelism` above 1 spreads them over tasks."""
        plan = None
        if parallelism == 1 and self._may_prepare(template) and _fits(template, pieces):
            plan = self._plan(template, slot)
        if plan is not None:
            plan.cells.bind(_specification(template, pieces))
            table = plan.frame.toArrow()
        else:
            table = self._rebuilt(template, pieces, parallelism).toArrow()
        return _outcome(table, prepared=plan is not None)

    def rejected(self, template: Template, pieces: Sequence[Piece]) -> pa.Table:
        """Fetch the records of these pieces without usable event time, or that lose it on the way."""
        rows = self._input_rows(template, pieces, 1)
        frames = [
            rejected_frame(reader, index, frame)
            for index, (reader, frame) in enumerate(zip(template.readers, rows, strict=True))
        ]
        frames.append(timeless_frame(template, rows))
        result = frames[0]
        for frame in frames[1:]:
            result = result.union(frame)
        return result.toArrow()

    def too_late(
        self, template: Template, pieces: Sequence[Piece], forgotten_until_ms: dict[int, int]
    ) -> pa.Table:
        """Fetch the rows of these pieces whose windows had all ended by the moment given."""
        rows = self._input_rows(template, pieces, 1)
        return too_late_frame(template, rows, forgotten_until_ms).toArrow()

    def forget(self, template: Template) -> None:
        """Drop a template's plans, so that the next step makes them, and static tables, anew."""
        for lane in self._lanes:
            lane.plans.pop(template, None)

    def _may_prepare(self, template: Template) -> bool:
        late_bound = all(isinstance(reader, LateBoundReader) for reader in template.readers)
        return self._prepare and late_bound and not self._verdicts.get(template)

    def _plan(self, template: Template, slot: int) -> _PreparedPlan | None:
        lane = self._lanes[slot]
        if template not in lane.plans:
            cells = SpecificationCells(self._spark, len(template.readers))
            frame = _late_bound_frame(template, cells.frame).coalesce(1)
            reasons = self._verdict(template, frame, cells)
            if reasons:
                return None
            lane.plans[template] = _PreparedPlan(cells, frame)
        return lane.plans[template]

    def _verdict(
        self, template: Template, frame: DataFrame, cells: SpecificationCells
    ) -> list[str]:
        """Find out once per template why it may not be prepared."""
        with self._lock:
            if template not in self._verdicts:
                reasons = unsafe_reasons(frame, cells.rdd_id)
                self._verdicts[template] = reasons
                if reasons:
                    logger.info(
                        "%s is rebuilt for each step: %s", template.output.place, "; ".join(reasons)
                    )
            return self._verdicts[template]

    def _rebuilt(self, template: Template, pieces: Sequence[Piece], parallelism: int) -> DataFrame:
        if _fits(template, pieces) and all(
            isinstance(reader, LateBoundReader) for reader in template.readers
        ):
            shares = _shares(pieces, parallelism)
            specification = fixed_specification(
                self._spark, [_specification(template, share) for share in shares]
            )
            return _late_bound_frame(template, specification)
        rows = self._input_rows(template, pieces, parallelism)
        return step_frame(template, rows, rows)

    def _input_rows(
        self, template: Template, pieces: Sequence[Piece], parallelism: int
    ) -> list[DataFrame]:
        """Build each input's records without preparing anything."""
        specification = None
        rows = []
        for index, reader in enumerate(template.readers):
            mine = [(piece.query, piece.range) for piece in pieces if piece.input == index]
            if isinstance(reader, LateBoundReader) and reader.suits(mine):
                if specification is None:
                    shares = _shares(pieces, parallelism)
                    specification = fixed_specification(
                        self._spark, [_specification(template, share) for share in shares]
                    )
                rows.append(entry_rows(reader, specification, index))
            elif isinstance(reader, ScanReader):
                rows.append(reader.scan(self._spark, mine))
            else:
                raise TypeError(f"{type(reader).__name__} can read neither inline nor by a scan")
        return rows


def _late_bound_frame(template: Template, specification: DataFrame) -> DataFrame:
    readers = [reader for reader in template.readers if isinstance(reader, LateBoundReader)]
    rows = [entry_rows(reader, specification, index) for index, reader in enumerate(readers)]
    measured = [
        entry_rows(reader, specification, index, sampled=True)
        if template.samples_statistics(index)
        else rows[index]
        for index, reader in enumerate(readers)
    ]
    return step_frame(template, rows, measured)


def _fits(template: Template, pieces: Sequence[Piece]) -> bool:
    return all(
        reader.suits([(piece.query, piece.range) for piece in pieces if piece.input == index])
        for index, reader in enumerate(template.readers)
        if isinstance(reader, LateBoundReader)
    )


def _specification(template: Template, pieces: Sequence[Piece]) -> list[str]:
    entries: list[list[object]] = [[] for _ in template.readers]
    for piece in pieces:
        if isinstance(piece.reader, LateBoundReader) and piece.range.events:
            entries[piece.input].append(piece.reader.entry(piece.query, piece.range))
    return [json.dumps(entry, separators=(",", ":")) for entry in entries]


def _shares(pieces: Sequence[Piece], parallelism: int) -> list[list[Piece]]:
    """Deal the pieces out to tasks, largest first, each to the task that has least."""
    parts = [
        replace(piece, range=part)
        for piece in pieces
        for part in piece.reader.split(piece.range, parallelism)
    ]
    shares: list[list[Piece]] = [[] for _ in range(parallelism)]
    loads = [0] * parallelism
    for piece in sorted(parts, key=lambda part: -part.range.events):
        lightest = loads.index(min(loads))
        shares[lightest].append(piece)
        loads[lightest] += piece.range.events
    return shares


def _outcome(table: pa.Table, *, prepared: bool) -> StepOutcome:
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
    return StepOutcome(rows, timeless, tuple(_read_statistics(statistics)), prepared)


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
        )
