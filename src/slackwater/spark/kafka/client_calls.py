"""Calls of Kafka's client that end after a while, whatever the broker does."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

CALL_S = 10.0  # how long a broker may take to answer before it counts as away
PAUSE_S = 5.0  # how long one that is away is left alone


def timed_out() -> KafkaException:
    """Make the failure of a call that took too long."""
    return KafkaException(KafkaError(KafkaError._TIMED_OUT))


def produce(producer: Producer, topic: str, value: bytes | None, key: bytes, **more: Any) -> None:
    """Put a record into a producer's queue; where that is full, let it send first."""
    until = None
    while True:
        try:
            producer.produce(topic, value, key, **more)
            return
        except BufferError:
            now = time.monotonic()
            until = now + CALL_S if until is None else until
            if now > until:
                raise timed_out() from None
            producer.poll(0.1)
