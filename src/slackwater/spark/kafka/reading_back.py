"""All that a topic holds now, as a reader under `read_committed` sees it."""

from __future__ import annotations

from collections.abc import Iterator

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from slackwater.spark.kafka import client_calls
from slackwater.spark.kafka.client_calls import timed_out
from slackwater.spark.kafka.settings import KafkaSettings

_AT_ONCE = 10_000


def committed_records(settings: KafkaSettings, topic: str) -> Iterator[Message]:
    """Read a topic from its beginning to where each partition ends now, in order of each."""
    consumer = Consumer(
        settings.client(
            group_id="slackwater-reading-back",  # never joined
            isolation_level="read_committed",
            enable_auto_commit=False,
            enable_partition_eof=True,
        )
    )
    try:
        found = consumer.list_topics(topic, timeout=client_calls.CALL_S).topics[topic]
        if found.error is not None:
            raise KafkaException(found.error)
        unread = set(found.partitions)
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in unread])
        while unread:
            for message in _arrived(consumer):
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(message.partition())
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()


def _arrived(consumer: Consumer) -> list[Message]:
    """Wait for something, and take all there is; `consume` alone would wait for it to be full."""
    first = consumer.poll(client_calls.CALL_S)
    if first is None:
        raise timed_out()
    return [first, *consumer.consume(_AT_ONCE, 0.0)]
