"""Large ranges of Kafka, read by executors: each Python worker keeps its client between tasks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Consumer
from pyspark.sql import DataFrame, SparkSession

from slackwater.spark.kafka.lines import RecordLines
from slackwater.spark.kafka.records import Partition, Records, Span, new_consumer, read_spans
from slackwater.spark.kafka.settings import KafkaSettings
from slackwater.spark.latebound import fixed_specification
from slackwater.spark.sources.base import ARRIVAL, OFFSET, PARTITION, QUERY
from slackwater.spark.sources.inline import LINE

NOTE: Final = "_sw_note"
_PATIENCE_S: Final = 20.0
_SCHEMA: Final = (
    f"{QUERY} int, {PARTITION} int, {OFFSET} bigint, {ARRIVAL} bigint, {LINE} string, {NOTE} string"
)
_ARROW: Final = pa.schema(
    [
        (QUERY, pa.int32()),
        (PARTITION, pa.int32()),
        (OFFSET, pa.int64()),
        (ARRIVAL, pa.int64()),
        (LINE, pa.string()),
        (NOTE, pa.string()),
    ]
)
_consumers: dict[tuple[KafkaSettings, str], Consumer] = {}  # of this worker


@dataclass(frozen=True)
class WantedSpan:
    """Name what one query reads of one partition; `index` is the source's number for it."""

    query: int
    index: int
    topic: str
    partition: int
    first: int
    until: int
    latest_ms: int

    @property
    def place(self) -> Partition:
        """Return topic and partition."""
        return self.topic, self.partition


@dataclass(frozen=True)
class ScanTask:
    """Know how to read; travels to the executors, secrets and all, but into no plan or log."""

    settings: KafkaSettings
    isolation: str
    lines: RecordLines
    notes: bool
    skip_lost: bool

    def rows(self, spark: SparkSession, shares: Sequence[Sequence[WantedSpan]]) -> DataFrame:
        """Read shares side by side: QUERY, PARTITION, OFFSET, ARRIVAL, LINE and NOTE."""
        texts = [[json.dumps([asdict(span) for span in share])] for share in shares]
        return fixed_specification(spark, texts).mapInArrow(self._reading(), _SCHEMA)

    def _reading(self) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for text in batch.column(0).to_pylist():
                    yield from self.read([WantedSpan(**cells) for cells in json.loads(text)])

        return read

    def read(self, spans: Sequence[WantedSpan]) -> Iterator[pa.RecordBatch]:
        """Read spans with the worker's own client; several queries may want the same partition."""
        key = (self.settings, self.isolation)
        consumer = _consumers.pop(key, None)
        if consumer is None:
            consumer = new_consumer(self.settings, self.isolation, fetch_min_bytes=1)
        waiting = list(spans)
        while waiting:
            turn: dict[Partition, WantedSpan] = {}
            for span in waiting:
                turn.setdefault(span.place, span)
            waiting = [span for span in waiting if turn[span.place] is not span]
            wanted: dict[Partition, Span] = {p: (s.first, s.until) for p, s in turn.items()}
            for place, records in read_spans(
                consumer, wanted, patience_s=_PATIENCE_S, skip_lost=self.skip_lost
            ):
                yield self._batch(turn[place], records)
        _consumers[key] = consumer  # one that failed is not used again

    def _batch(self, span: WantedSpan, records: Records) -> pa.RecordBatch:
        count = len(records)
        notes: Sequence[Any] = [None] * count
        if self.notes:
            notes = self.lines.notes(span.topic, span.partition, records)
        lines = self.lines.lines(span.topic, span.partition, records)
        columns = [
            pa.array([span.query] * count, pa.int32()),
            pa.array([span.index] * count, pa.int32()),
            pa.array(records.offsets, pa.int64()),
            pa.array(arrivals_ms(records, span.latest_ms), pa.int64()),
            pa.array(lines, pa.string()),
            pa.array(notes, pa.string()),
        ]
        return pa.record_batch(columns, schema=_ARROW)


def arrivals_ms(records: Records, latest_ms: int) -> list[int]:
    """Return when records arrived: as stamped, but not after they were planned, nor unknown."""
    return [stamp_ms if 0 <= stamp_ms <= latest_ms else latest_ms for stamp_ms in records.stamps_ms]
