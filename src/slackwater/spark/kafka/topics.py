"""Topics that must be there before anything is written to them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from slackwater.errors import SinkError
from slackwater.spark.kafka import client_calls
from slackwater.spark.kafka.settings import KafkaSettings

COMPACTED: Final = {"cleanup.policy": "compact"}


def require_topic(
    settings: KafkaSettings,
    topic: str,
    config: Mapping[str, str] | None = None,
    partitions: int = -1,
) -> bool:
    """Make a topic where there is none, and tell whether that was so.

    Without `partitions` the broker chooses how many.
    """
    admin, call_s = AdminClient(settings.client()), client_calls.CALL_S
    if _exists(admin, topic):
        return False
    new = NewTopic(topic, partitions, config=dict(config or {}))
    try:
        admin.create_topics([new], request_timeout=call_s)[topic].result(call_s)
    except KafkaException as failure:
        code = failure.args[0].code()
        if code == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        if code in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.POLICY_VIOLATION):
            wanted = " and ".join(f"{name}={value}" for name, value in (config or {}).items())
            raise SinkError(
                f"topic {topic} does not exist, and this user may not create it: have it created"
                f"{wanted and ' with '}{wanted}, then deploy again"
            ) from failure
        raise
    until = time.monotonic() + call_s
    while not _exists(admin, topic):  # a broker hears of a new topic a moment after it is made
        if time.monotonic() > until:
            raise client_calls.timed_out()
        time.sleep(0.02)
    return True


def _exists(admin: AdminClient, topic: str) -> bool:
    error = admin.list_topics(topic, timeout=client_calls.CALL_S).topics[topic].error
    if error is None:
        return True
    if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
        return False
    raise KafkaException(error)


def require_config(settings: KafkaSettings, topic: str, config: Mapping[str, str]) -> None:
    """Refuse a topic that is configured otherwise; who may not look is trusted to know."""
    admin, call_s = AdminClient(settings.client()), client_calls.CALL_S
    resource = ConfigResource(ResourceType.TOPIC, topic)
    try:
        described = admin.describe_configs([resource], request_timeout=call_s)
        found = described[resource].result(call_s)
    except KafkaException as failure:
        if failure.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return
        raise
    for name, value in config.items():
        if found[name].value != value:
            raise SinkError(
                f"topic {topic} has {name}={found[name].value}, but must have {value}, or panes "
                "could be written twice: set that, or give the sink another writer="
            )
