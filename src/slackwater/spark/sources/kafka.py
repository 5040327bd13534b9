"""Topics of Kafka as a source: JSON, Avro without a registry, or plain columns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from slackwater.app.checks import doubled_name, is_system_name
from slackwater.app.durations import Duration, to_ms
from slackwater.app.names import sql_text
from slackwater.app.watermarks import FromSource, Punctuated, WatermarkStrategy, bounded
from slackwater.errors import DescriptionError
from slackwater.spark.kafka.avro_types import spark_schema
from slackwater.spark.kafka.lines import RecordFormat
from slackwater.spark.kafka.records import Partition
from slackwater.spark.kafka.settings import KafkaSettings
from slackwater.spark.sources.base import SourceDescription
from slackwater.spark.sources.inline import Epoch, JsonRecords, checked_schema
from slackwater.spark.sources.kafka_reader import KafkaReader

OnLostData = Literal["fail", "skip"]
Isolation = Literal["read_committed", "read_uncommitted"]
Start = str | datetime | Mapping[int, int] | Mapping[str, Mapping[int, int]]

# A word, a moment in milliseconds, or offsets by the source's own numbers of partitions.
Beginning = Literal["earliest", "latest"] | int | tuple[tuple[int, int], ...]

COLUMNS = (
    StructType()
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("offset", LongType())
    .add("timestamp", TimestampType())
    .add("key", BinaryType())
    .add("value", BinaryType())
    .add("headers", ArrayType(StructType().add("key", StringType()).add("value", BinaryType())))
)
_RESERVED = {
    "group.id": "give it as group=",
    "isolation.level": "give it as isolation=",
    "auto.offset.reset": "give it as start=",
    "enable.auto.commit": "offsets are committed to the journal; group= tells them to Kafka too",
    "enable.auto.offset.store": "offsets are kept in the journal",
    "enable.partition.eof": "leave it out",
}


@dataclass(frozen=True)
class Kafka(SourceDescription):
    """Describe topics of a cluster; `kafka(...)` writes it with good defaults."""

    settings: KafkaSettings
    topics: tuple[str, ...]
    schema: StructType | str
    event_time: str
    watermark: WatermarkStrategy
    max_ahead_ms: int
    idle_after_ms: int
    format: RecordFormat = "json"
    avro_schema: str | None = None
    epoch: Epoch | None = None
    start: Beginning = "earliest"
    follow: bool = True
    on_lost_data: OnLostData = "fail"
    isolation: Isolation = "read_committed"
    group: str | None = None
    metadata: str | None = None
    inline_bytes: int = 8_388_608

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if not self.topics or not all(isinstance(t, str) and t for t in self.topics):
            raise DescriptionError(f"topics={list(self.topics)!r}: name at least one topic")
        if len(set(self.topics)) < len(self.topics):
            raise DescriptionError(f"topics={list(self.topics)!r} names one twice: take it out")
        for field, value, known in (
            ("format", self.format, get_args(RecordFormat)),
            ("on_lost_data", self.on_lost_data, get_args(OnLostData)),
            ("isolation", self.isolation, get_args(Isolation)),
        ):
            if value not in known:
                raise DescriptionError(f"{field}={value!r} is unknown: use {' or '.join(known)}")
        if isinstance(self.watermark, FromSource) and self.follow:
            raise DescriptionError(
                "watermark=from_source(): Kafka has no watermarks of its own; use bounded(...), "
                "punctuated(...) for a field that carries them, or watermark_header= for a header"
            )
        if self.inline_bytes < 0:
            raise DescriptionError(f"inline_bytes={self.inline_bytes!r} must not be negative")
        if isinstance(self.schema, StructType):
            JsonRecords(checked_schema(self.schema, self.event_time), self.epoch)

    def open(self, spark: SparkSession) -> KafkaReader:
        """Connect to the cluster; where it does not answer, the query waits for it."""
        records = JsonRecords(checked_schema(self.schema, self.event_time), self.epoch)
        if self.metadata is not None:
            if doubled_name([*records.schema.names, self.metadata]) is not None:
                raise DescriptionError(
                    f"metadata={self.metadata!r} is a column of the schema: give it another name"
                )
            if not self.metadata or is_system_name(self.metadata):
                raise DescriptionError(
                    f"metadata={self.metadata!r}: give the column a name, without _sw_"
                )
        return KafkaReader(self, records)

    def index(self, place: Partition) -> int:
        """Return a partition's number, the same for good: topics may get more partitions."""
        topic, partition = place
        return partition * len(self.topics) + self.topics.index(topic)

    def place(self, index: int) -> Partition:
        """Return topic and partition behind a number."""
        return self.topics[index % len(self.topics)], index // len(self.topics)


def kafka(
    servers: str,
    topics: str | Sequence[str],
    *,
    schema: StructType | str | Mapping[str, Any] | None = None,
    event_time: str | None = None,
    format: RecordFormat = "json",
    watermark: WatermarkStrategy | None = None,
    watermark_header: str | None = None,
    start: Start = "earliest",
    follow: bool = True,
    on_lost_data: OnLostData = "fail",
    isolation: Isolation = "read_committed",
    group: str | None = None,
    epoch: Epoch | None = None,
    metadata: str | None = None,
    max_ahead: Duration = "1 minute",
    idle_after: Duration = "5 seconds",
    options: Mapping[str, Any] | None = None,
    inline_bytes: int = 8_388_608,
) -> Kafka:
    """Read the records of one or more topics of Kafka.

    `format` is "json", "avro" (`schema` is then the Avro schema that all records were written
    with, as JSON) or "columns" (no `schema`: topic, partition, offset, timestamp, key, value,
    headers). `metadata` names a further column with what Kafka knows of a record, as a struct of
    topic, partition, offset, timestamp, key and headers. `watermark_header` names a header with a
    watermark in milliseconds; `watermark` is `bounded("1 second")` where neither is given.

    `start` is where a query that the journal does not know begins: "earliest", "latest", a moment,
    or offsets by partition (several topics: by topic, then partition). Partitions that are new
    later are read from their beginning. `follow=False` reads what is there, then ends.
    `on_lost_data="skip"` goes on where records were deleted before they were read, and counts them.
    `group` tells offsets to the broker under that name, for tools that show lag; nothing reads
    them back. `options` are settings of librdkafka (TLS, SASL); their values are never shown.
    Steps of at most `inline_bytes` take the fast way: the driver sends the records along.
    """
    names = (topics,) if isinstance(topics, str) else tuple(topics)
    avro = None
    if format == "avro":
        avro = schema if isinstance(schema, str) else json.dumps(schema)
        found: StructType | str = spark_schema(avro, None if epoch is None else event_time)
    elif format == "columns":
        if schema is not None:
            raise DescriptionError("schema is for 'json' and 'avro': 'columns' has its own")
        found, event_time, epoch = COLUMNS, event_time or "timestamp", "milliseconds"
    elif isinstance(schema, StructType | str):
        found = schema
    else:
        raise DescriptionError(
            f"schema={schema!r}: give the columns, such as 'ts timestamp, amount double'"
        )
    if event_time is None:
        raise DescriptionError("event_time is not given: name the column that holds it")
    if watermark_header is not None:
        if watermark is not None:
            raise DescriptionError("watermark and watermark_header are both given: choose one")
        metadata = metadata or "kafka"
        header = f"`{metadata}`.headers[{sql_text(watermark_header)}]"
        watermark = Punctuated(f"timestamp_millis(try_cast({header} AS BIGINT))")
    return Kafka(
        settings=KafkaSettings.of(servers, options, "kafka", _RESERVED),
        topics=names,
        schema=found,
        event_time=event_time,
        watermark=watermark or bounded("1 second"),
        max_ahead_ms=to_ms(max_ahead, "max_ahead", allow_zero=True),
        idle_after_ms=to_ms(idle_after, "idle_after", allow_zero=True),
        format=format,
        avro_schema=avro,
        epoch=epoch,
        start=_checked_start(start, names),
        follow=follow,
        on_lost_data=on_lost_data,
        isolation=isolation,
        group=group,
        metadata=metadata,
        inline_bytes=inline_bytes,
    )


def _checked_start(start: Start, topics: Sequence[str]) -> Beginning:
    if start == "earliest":
        return "earliest"
    if start == "latest":
        return "latest"
    try:
        if isinstance(start, str | datetime):
            moment = datetime.fromisoformat(start) if isinstance(start, str) else start
            if moment.tzinfo is None:
                raise ValueError("it has no time zone")
            return int(moment.timestamp() * 1_000)
        by_topic: Mapping[Any, Any] = start
        if len(topics) == 1 and topics[0] not in start:
            by_topic = {topics[0]: start}
        return tuple(
            (partition * len(topics) + topics.index(topic), _offset(offset))
            for topic, offsets in by_topic.items()
            for partition, offset in offsets.items()
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise DescriptionError(
            f"start={start!r} is no beginning ({error}): use 'earliest', 'latest', a moment with "
            "its time zone such as '2026-01-31T12:00:00Z', or offsets such as {0: 1200, 1: 900}"
        ) from error


def _offset(offset: Any) -> int:
    if not isinstance(offset, int) or offset < 0:
        raise ValueError(f"{offset!r} is no offset")
    return offset
