"""Read planned ranges of topics: send small ones along, let executors scan large ones."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from slackwater.app.names import quoted
from slackwater.errors import UnavailableError
from slackwater.spark.kafka.hub import KafkaHub
from slackwater.spark.kafka.lines import NOTE_STRUCT, RecordLines
from slackwater.spark.kafka.records import GUESSED_BYTES, Partition
from slackwater.spark.latebound import parallelism
from slackwater.spark.sources.base import (
    ARRIVAL,
    OFFSET,
    PARTITION,
    QUERY,
    LateBoundReader,
    Range,
    ScanReader,
)
from slackwater.spark.sources.inline import LINE, JsonRecords, whole_text
from slackwater.spark.sources.kafka_scan import NOTE, ScanTask, WantedSpan, arrivals_ms

if TYPE_CHECKING:
    from slackwater.spark.sources.kafka import Kafka

_MOST_LINES: Final = 500  # of a run: a malformed one makes all of them be read one by one
FETCHED_BYTES: Final = 1_048_576  # more than that executors fetch sooner than the driver


class KafkaRows(LateBoundReader, ScanReader):
    """Turn ranges into rows. A range may be another reader's, of the same cluster and format."""

    entry_type = (
        "struct<query:int,partition:int,runs:array<struct<first:bigint,arrivals:array<bigint>,"
        "whole:string,lines:array<string>,notes:array<string>>>>"
    )

    def __init__(self, description: Kafka, records: JsonRecords) -> None:
        """Connect to the cluster."""
        self._description = description
        self._records = records
        self.event_time = description.event_time
        self.watermark = description.watermark
        self.max_ahead_ms = description.max_ahead_ms
        self.schema = records.schema
        if description.metadata is not None:
            note = StructField(description.metadata, NOTE_STRUCT)
            self.schema = StructType([*records.schema.fields, note])
        self._lines = RecordLines(description.format, description.avro_schema)
        self._hub = KafkaHub.of(description.settings, description.isolation)

    @property
    def fusion_key(self) -> Hashable:
        """Fuse readers of any topics of a cluster whose records look the same."""
        d = self._description
        reading = (d.settings, d.isolation, d.on_lost_data, self._lines, d.epoch, d.metadata)
        return ("kafka", *reading, self.schema.json(), self.event_time, d.inline_bytes)

    def split(self, piece: Range, parts: int) -> list[Range]:
        """Cut a range at offsets."""
        first = _read_from(piece)
        step = max(1, -(-(piece.until - first) // max(1, parts)))
        cuts = [*range(first, piece.until, step), piece.until]
        return [
            Range(
                partition=piece.partition,
                first=begin,
                until=until,
                events=until - begin,
                watermark_ms=piece.watermark_ms,
                idle=piece.idle,
                detail={name: piece.detail[name] for name in ("topic", "partition", "now")},
                sample=piece.sample,
            )
            for begin, until in itertools.pairwise(cuts)
        ]

    def suits(self, ranges: Sequence[tuple[int, Range]]) -> bool:
        """Send records along that are held here, or soon fetched, up to `inline_bytes`."""
        total, limit = 0.0, self._description.inline_bytes
        for _, piece in ranges:
            place = _place(piece)
            total += piece.events * (self._hub.mean_bytes(place) or GUESSED_BYTES)
            if not self._hub.held(place, _read_from(piece), piece.until):
                limit = min(limit, FETCHED_BYTES)
        return total <= limit

    def entry(self, query: int, piece: Range) -> dict[str, Any]:
        """Write the records of a range, as they are held or fetched now."""
        return {"query": query, "partition": piece.partition, "runs": self._runs(piece, whole=True)}

    def entry_in_full(self, query: int, piece: Range) -> dict[str, Any]:
        """Write them line by line, so that the malformed are told."""
        runs = self._runs(piece, whole=False)
        return {"query": query, "partition": piece.partition, "runs": runs}

    def expand(self, entries: DataFrame, further: Sequence[str] = ()) -> DataFrame:
        """Turn entries into source rows."""
        runs = entries.selectExpr(
            f"r.query AS {QUERY}", f"r.partition AS {PARTITION}", *further, "inline(r.runs)"
        ).withColumnRenamed("notes", NOTE)
        name = self._description.metadata
        if name is None:
            return self._records.parse_runs(runs.drop(NOTE), further=further)
        rows = self._records.parse_runs(runs, [NOTE], further=further)
        return rows.selectExpr(*(_note(name) if c == NOTE else quoted(c) for c in rows.columns))

    def scan(self, spark: SparkSession, ranges: Sequence[tuple[int, Range]]) -> DataFrame:
        """Let executors read the ranges of many queries, spread evenly over tasks."""
        if (trouble := self._hub.trouble) is not None:
            raise UnavailableError(trouble)
        d = self._description
        tasks = parallelism(spark)
        wanted = [
            WantedSpan(
                query=query,
                index=part.partition,
                topic=part.detail["topic"],
                partition=part.detail["partition"],
                first=_read_from(part),
                until=part.until,
                latest_ms=part.detail["now"],
            )
            for query, piece in ranges
            for part in self.split(piece, tasks if len(ranges) < 2 * tasks else 1)
        ]
        wanted.sort(key=lambda span: span.first - span.until)
        shares = [wanted[task::tasks] for task in range(min(tasks, len(wanted)))] or [[]]
        task = ScanTask(
            d.settings,
            d.isolation,
            self._lines,
            notes=d.metadata is not None,
            skip_lost=d.on_lost_data == "skip",
        )
        return self._parsed(task.rows(spark, shares))

    def _parsed(self, rows: DataFrame) -> DataFrame:
        name = self._description.metadata
        if name is None:
            return self._records.parse(rows.drop(NOTE))
        return self._records.parse(
            rows.selectExpr(QUERY, PARTITION, OFFSET, ARRIVAL, LINE, _note(name)), [name]
        )

    def _runs(self, piece: Range, *, whole: bool) -> list[dict[str, Any]]:
        """Write records as runs that follow each other."""
        place, first = _place(piece), _read_from(piece)
        skip_lost = self._description.on_lost_data == "skip"
        records = self._hub.read(place, first, piece.until, skip_lost=skip_lost)
        lines = self._lines.lines(*place, records)
        notes = self._lines.notes(*place, records) if self._description.metadata else None
        arrivals = arrivals_ms(records, piece.detail["now"])
        runs = []
        for begin, end in _stretches(records.offsets):
            run: dict[str, Any] = {
                "first": records.offsets[begin],
                "arrivals": arrivals[begin:end],
            }
            text = whole_text(lines[begin:end]) if whole else None
            run |= {"lines": lines[begin:end]} if text is None else {"whole": text}
            if notes is not None:
                run["notes"] = notes[begin:end]
            runs.append(run)
        return runs


def _note(column: str) -> str:
    return f"from_json({NOTE}, '{NOTE_STRUCT.simpleString()}') AS {quoted(column)}"


def _stretches(offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Find the places of offsets that follow each other, a few hundred at most.

    >>> list(_stretches([7, 8, 12]))
    [(0, 2), (2, 3)]
    """
    begin, count = 0, len(offsets)
    while begin < count:
        end = min(begin + _MOST_LINES, count)
        if offsets[end - 1] - offsets[begin] != end - 1 - begin:
            end = next(at for at in range(begin + 1, end) if offsets[at] != offsets[at - 1] + 1)
        yield begin, end
        begin = end


def _place(piece: Range) -> Partition:
    """Return topic and partition of a range, which may be another reader's."""
    return piece.detail["topic"], piece.detail["partition"]


def _read_from(piece: Range) -> int:
    """Return the first offset to read, which is later than the range's own after a loss."""
    return int(piece.detail.get("from", piece.first))
