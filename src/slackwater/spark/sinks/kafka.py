"""Panes as records of a Kafka topic."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from confluent_kafka import KafkaException, Producer

from slackwater.errors import DescriptionError
from slackwater.spark.kafka.settings import KafkaSettings
from slackwater.spark.sinks.base import PANE_COLUMNS, Sink, SinkWriter
from slackwater.spark.sinks.kafka_transactions import TransactionalWriter
from slackwater.spark.sinks.kafka_upserts import UpsertWriter

Mode = Literal["transactional", "upsert"]

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,240}")
_RESERVED: Final = {
    "transactional.id": "choose writer=",
    "enable.idempotence": "leave it out, it is always on",
    "transaction.timeout.ms": "leave it out",
    "acks": "leave it out, all replicas in sync acknowledge",
    "isolation.level": "leave it out",
    "group.id": "leave it out",
}


def kafka_sink(
    servers: str,
    topic: str,
    *,
    mode: Mode = "transactional",
    key: str | Sequence[str] = (),
    writer: str | None = None,
    options: Mapping[str, str] | None = None,
) -> KafkaSink:
    """Write panes to a topic as JSON, a record for each row.

    "transactional" writes each pane exactly once, for readers under `read_committed`. A topic named
    `<writer>.panes` beside it remembers what was written; `writer` is by default the topic's name,
    and runtimes that write to one topic each need their own.

    "upsert" keeps one record for each query, window and `key`: that of the newest pane. It is for
    compacted topics, and needs no transactions; a record may come a second time after a crash.

    Records are keyed by query, window and the columns of `key`. Topics that do not exist are made.
    `options` are settings of librdkafka's, such as `security.protocol` and `sasl.password`.
    """
    return KafkaSink(
        KafkaSettings.of(servers, options, "kafka_sink", _RESERVED),
        topic,
        mode,
        (key,) if isinstance(key, str) else tuple(key),
        topic if writer is None else writer,
    )


@dataclass(frozen=True)
class KafkaSink(Sink):
    """Name a topic for panes; one writer of a name at a time."""

    settings: KafkaSettings
    topic: str
    mode: Mode
    key: tuple[str, ...]
    writer: str

    def __post_init__(self) -> None:
        if self.mode not in ("transactional", "upsert"):
            raise DescriptionError(
                f"kafka_sink(mode={self.mode!r}) is unknown: use 'transactional' or 'upsert'"
            )
        for field in ("topic", "writer"):
            if not _NAME.fullmatch(getattr(self, field)):
                raise DescriptionError(
                    f"kafka_sink({field}={getattr(self, field)!r}) cannot name a topic: use up to "
                    "240 letters, digits, '.', '_' and '-'"
                )
        if f"{self.writer}.panes" == self.topic:
            raise DescriptionError(
                f"kafka_sink(writer={self.writer!r}) would keep its own notes in topic "
                f"{self.topic!r}: use another name"
            )
        for name in self.key:
            if name in PANE_COLUMNS or self.key.count(name) > 1:
                raise DescriptionError(
                    f"kafka_sink(key={list(self.key)}): give each column of the result once; "
                    "query and window_start are always in the key"
                )
        try:
            Producer(self.settings.client())
        except KafkaException as failure:
            raise DescriptionError(
                f"kafka_sink(options=...): {self.settings.told(failure.args[0])}: "
                "see librdkafka's CONFIGURATION.md for the names and values of settings"
            ) from None

    def open(self) -> SinkWriter:
        """Take the topic over; where the broker does not answer, panes wait until it does."""
        writer: TransactionalWriter | UpsertWriter
        if self.mode == "transactional":
            writer = TransactionalWriter(self.settings, self.topic, self.key, self.writer)
        else:
            writer = UpsertWriter(self.settings, self.topic, self.key)
        writer.connect()
        return writer
