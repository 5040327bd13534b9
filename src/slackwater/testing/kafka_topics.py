"""What a topic holds, as a reader under `read_committed` sees it."""

from __future__ import annotations

import json

import pyarrow as pa
from confluent_kafka import Message

from slackwater.spark.kafka.reading_back import committed_records
from slackwater.spark.kafka.settings import KafkaSettings


def read_topic(servers: str, topic: str) -> list[Message]:
    """Read all committed records, partition by partition, up to where the topic ends now."""
    records = committed_records(KafkaSettings(servers), topic)
    return sorted(records, key=lambda record: (record.partition() or 0, record.offset() or 0))


def read_topic_panes(servers: str, topic: str, schema: pa.Schema) -> pa.Table:
    """Read the panes of a Kafka sink, with the columns and types that they were written with."""
    rows = [json.loads(value) for record in read_topic(servers, topic) if (value := record.value())]
    columns = {
        field.name: _typed([row[field.name] for row in rows], field.type) for field in schema
    }
    return pa.table(columns)


def _typed(values: list[object], kind: pa.DataType) -> pa.Array:
    """Read what the sink writes as text."""
    if pa.types.is_timestamp(kind) or pa.types.is_decimal(kind):
        return pa.array(values, pa.string()).cast(kind)
    return pa.array(values, kind)
