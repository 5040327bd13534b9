"""Run steps: prepared where the plan proves safe, rebuilt where it does not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from slackwater.errors import DescriptionError
from slackwater.spark.flows import first_line
from slackwater.spark.frames import (
    Template,
    TooLate,
    entry_rows,
    rejected_frame,
    step_frame,
    timeless_frame,
    too_late_frame,
)
from slackwater.spark.jobtimes import JobWatch
from slackwater.spark.latebound import fixed_specification, parsed_specification
from slackwater.spark.outcome import StepOutcome, read_outcome
from slackwater.spark.prepared import PreparedPlans
from slackwater.spark.sampled import sample_cell, sample_sql
from slackwater.spark.sources.base import LateBoundReader, Range, ScanReader, SourceReader


@dataclass(frozen=True)
class Piece:
    """Name what one query reads from one partition of one input."""

    query: int
    input: int
    range: Range
    reader: SourceReader = field(compare=False, repr=False)


class StepRunner:
    """Turn ranges into rows on Spark, one job a step."""

    def __init__(self, spark: SparkSession, *, prepare: bool = True, profile: bool = False) -> None:
        """Prepare plans where that is safe; `prepare=False` rebuilds every step."""
        self._spark = spark
        self._profile = profile
        self._plans = PreparedPlans(spark, _late_bound_frame, enabled=prepare)

    def warm(self, template: Template, copies: int = 1) -> None:
        """Prepare a template ahead of its first step, for so many steps at once."""
        self._plans.warm(template, copies)

    def why_rebuilt(self, template: Template) -> list[str]:
        """Say why a template's steps are rebuilt; empty where they are prepared."""
        return self._plans.why_not(template)

    def forget(self, template: Template) -> None:
        """Drop a template's plans, so that the next step makes them, and static tables, anew."""
        self._plans.forget(template)

    def run(
        self, template: Template, pieces: Sequence[Piece], slot: int, *, parallelism: int = 1
    ) -> StepOutcome:
        """Read the pieces in one Spark job; `parallelism` above 1 spreads them over tasks."""
        watch = JobWatch(self._spark, slot, profile=self._profile)
        if parallelism == 1 and _fits(template, pieces):
            with self._plans.lent(template) as plan:
                if plan is not None:
                    plan.cells.bind(_specification(template, pieces))
                    watch.specified()
                    table = plan.fetch()
                    return read_outcome(table, watch.times(), prepared=True)
        frame = self._rebuilt(template, pieces, parallelism)
        watch.specified()
        return read_outcome(frame.toArrow(), watch.times(), prepared=False)

    def analyse(self, template: Template) -> None:
        """Build the frame of a step that reads nothing, without running it."""
        self._rebuilt(template, [], 1)

    def rejected(self, template: Template, pieces: Sequence[Piece]) -> pa.Table:
        """Fetch the records of these pieces without usable event time, or that lose it later."""
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
        self, template: Template, pieces: Sequence[Piece], over: Mapping[int, TooLate]
    ) -> pa.Table:
        """Fetch the rows of these pieces whose windows were all over, as said for each query."""
        rows = self._input_rows(template, pieces, 1)
        return too_late_frame(template, rows, over).toArrow()

    def _rebuilt(self, template: Template, pieces: Sequence[Piece], parallelism: int) -> DataFrame:
        if _fits(template, pieces) and all(
            isinstance(reader, LateBoundReader) for reader in template.readers
        ):
            specification = self._written_out(template, _shares(pieces, parallelism))
            return _late_bound_frame(template, specification, single=parallelism == 1)
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
                    specification = self._written_out(template, shares, in_full=True)
                rows.append(entry_rows(template, specification, index))
            elif isinstance(reader, ScanReader):
                scanned = reader.scan(self._spark, mine)
                if template.samples:
                    scanned = scanned.selectExpr("*", sample_sql(mine))
                rows.append(scanned)
            else:
                raise TypeError(f"{type(reader).__name__} can read neither inline nor by a scan")
        return rows

    def _written_out(
        self, template: Template, shares: Sequence[Sequence[Piece]], *, in_full: bool = False
    ) -> DataFrame:
        """Write a specification into a frame of its own, a partition for each share."""
        texts = [_specification(template, share, in_full=in_full) for share in shares]
        written = fixed_specification(self._spark, texts)
        return parsed_specification(written, template.specification_types)


def analyse_step(spark: SparkSession, template: Template) -> None:
    """Let Spark look at a step before there is one; refuse what no step could run."""
    try:
        StepRunner(spark, prepare=False).analyse(template)
    except AnalysisException as error:
        raise DescriptionError(
            f"{template.output.place}: Spark cannot run its steps: {first_line(error)}"
        ) from error


def _late_bound_frame(
    template: Template, specification: DataFrame, *, single: bool = True
) -> DataFrame:
    readers = [reader for reader in template.readers if isinstance(reader, LateBoundReader)]
    rows = [entry_rows(template, specification, index) for index in range(len(readers))]
    measured = [
        entry_rows(template, specification, index, sampled=True)
        if template.samples_statistics(index)
        else rows[index]
        for index in range(len(readers))
    ]
    return step_frame(template, rows, measured, single=single)


def _fits(template: Template, pieces: Sequence[Piece]) -> bool:
    return all(
        reader.suits([(piece.query, piece.range) for piece in pieces if piece.input == index])
        for index, reader in enumerate(template.readers)
        if isinstance(reader, LateBoundReader)
    )


def _specification(
    template: Template, pieces: Sequence[Piece], *, in_full: bool = False
) -> list[str]:
    entries: list[list[object]] = [[] for _ in template.readers]
    for piece in pieces:
        if isinstance(piece.reader, LateBoundReader) and piece.range.events:
            write = piece.reader.entry_in_full if in_full else piece.reader.entry
            entry: object = write(piece.query, piece.range)
            if template.samples:
                entry = {"r": entry, "s": sample_cell(piece.range)}
            entries[piece.input].append(entry)
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
