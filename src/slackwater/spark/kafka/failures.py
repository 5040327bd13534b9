"""What Kafka's failures mean to who runs Slackwater."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from slackwater.errors import SinkError, SinkUnavailableError
from slackwater.spark.kafka.settings import KafkaSettings

_UNREACHABLE: Final = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._WAIT_COORD,
        KafkaError._RETRY,
        KafkaError._DESTROY_BROKER,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_COORDINATOR,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.NOT_CONTROLLER,
    }
)
# What happened to the transaction is to be found out; the next try begins with that.
_UNSURE: Final = frozenset(
    {
        KafkaError._FENCED,
        KafkaError._STATE,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.INVALID_TXN_STATE,
        KafkaError.UNKNOWN_PRODUCER_ID,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.TRANSACTION_ABORTABLE,
        KafkaError._PURGE_QUEUE,
        KafkaError._PURGE_INFLIGHT,
    }
)
_REMEDIES: Final = {
    KafkaError._AUTHENTICATION: "check the user and password in options=, then resume",
    KafkaError.SASL_AUTHENTICATION_FAILED: "check the user and password in options=, then resume",
    KafkaError._SSL: "check the certificates and keys in options=, then resume",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "give this user the right to it, then resume",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "give this user the right to it, then resume",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "give this user the right to its "
    "transactional id, then resume",
    KafkaError.MSG_SIZE_TOO_LARGE: "raise message.max.bytes in options= and max.message.bytes of "
    "the topic, then resume",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "create the topic again, then resume",
    KafkaError._UNKNOWN_TOPIC: "create the topic again, then resume",
    KafkaError._UNKNOWN_PARTITION: "create the topic again, then resume",
}


def unreachable(error: KafkaError) -> bool:
    """Tell whether waiting may help."""
    return error.code() in _UNREACHABLE or (error.retriable() and error.code() not in _REMEDIES)


def unsure(error: KafkaError) -> bool:
    """Tell whether a producer lost its transaction, and must find out what became of it."""
    return error.code() in _UNSURE


def sink_error(failure: KafkaException, settings: KafkaSettings, place: str) -> SinkError:
    """Say why a sink did not take its panes: either it waits, or somebody must do something."""
    error = failure.args[0] if failure.args else None
    if not isinstance(error, KafkaError):
        return SinkError(f"cannot write {place}: {settings.told(failure)}: mend it, then resume")
    told = settings.told(error)
    if unreachable(error) or unsure(error):
        return SinkUnavailableError(f"{place} at {settings.servers} cannot be written now: {told}")
    remedy = _REMEDIES.get(error.code(), "mend it, then resume")
    return SinkError(f"cannot write {place} at {settings.servers}: {told}: {remedy}")


@contextlib.contextmanager
def as_sink_error(settings: KafkaSettings, place: str) -> Iterator[None]:
    """Turn failures of a Kafka client into a SinkError that says where, why and what to do."""
    try:
        yield
    except KafkaException as failure:
        raise sink_error(failure, settings, place) from failure
