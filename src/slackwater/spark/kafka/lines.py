"""What is in a record, as a line of JSON: the one form in which rows travel to Spark.

A record that cannot be decoded becomes a line that is no JSON object, and so is malformed: its text
where it has any, else its bytes in Base64.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, Literal
from uuid import UUID

import fastavro
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from slackwater.spark.kafka.records import Records

RecordFormat = Literal["json", "avro", "columns"]
NOTE_STRUCT: Final = (
    StructType()
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("offset", LongType())
    .add("timestamp", TimestampType())
    .add("key", BinaryType())
    .add("headers", MapType(StringType(), StringType()))
)
_NO_VALUE: Final = "null"


@dataclass(frozen=True)
class RecordLines:
    """Write the records of one format as lines; the same in the driver and in executors."""

    format: RecordFormat
    avro_schema: str | None = None  # as JSON

    def lines(self, topic: str, partition: int, records: Records) -> list[str]:
        """Write each record as one line."""
        if self.format == "json":
            return [_text_line(value) for value in records.values]
        if self.format == "avro":
            decode = _avro_decoder(self.avro_schema or "")
            return [decode(value) for value in records.values]
        return [
            json.dumps(
                {
                    "topic": topic,
                    "partition": partition,
                    "offset": offset,
                    "timestamp": stamp_ms,
                    "key": _base64(key),
                    "value": _base64(value),
                    "headers": [{"key": k, "value": _base64(v)} for k, v in headers],
                }
            )
            for offset, stamp_ms, value, key, headers in records.rows()
        ]

    @staticmethod
    def notes(topic: str, partition: int, records: Records) -> list[str]:
        """Write what Kafka knows of each record beside its value, as NOTE_STRUCT in JSON."""
        return [
            json.dumps(
                {
                    "topic": topic,
                    "partition": partition,
                    "offset": offset,
                    "timestamp": datetime_text(stamp_ms),
                    "key": _base64(key),
                    "headers": {
                        name: None if value is None else value.decode("utf-8", "replace")
                        for name, value in headers
                    },
                }
            )
            for offset, stamp_ms, _, key, headers in records.rows()
        ]


def datetime_text(stamp_ms: int) -> str:
    """Write a moment so that Spark reads it, whatever the session's time zone.

    >>> datetime_text(1_500)
    '1970-01-01T00:00:01.500Z'
    """
    moment = datetime.fromtimestamp(stamp_ms // 1_000, UTC).replace(tzinfo=None)
    return f"{moment.isoformat()}.{stamp_ms % 1_000:03d}Z"


def _text_line(value: bytes | None) -> str:
    text = _NO_VALUE if value is None else value.decode("utf-8", "replace")
    return text if text.strip(" \t") else _NO_VALUE  # a blank line would be passed over


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


@lru_cache(maxsize=64)
def _avro_decoder(schema_json: str) -> Callable[[bytes | None], str]:
    """Make the function that turns Avro bytes (without a header or registry id) into a line."""
    schema = fastavro.parse_schema(json.loads(schema_json))

    def decode(value: bytes | None) -> str:
        if value is None:
            return _NO_VALUE
        stream = io.BytesIO(value)
        try:
            record = fastavro.schemaless_reader(stream, schema, None)
            if stream.tell() == len(value):
                return json.dumps(record, default=_plain)
        except Exception:  # whatever the decoder stumbles over, the record is malformed
            pass
        return base64.b64encode(value).decode()

    return decode


def _plain(value: Any) -> Any:
    match value:
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal() | UUID():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
