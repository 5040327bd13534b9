from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from slackwater.errors import DescriptionError
from slackwater.spark.kafka.failures import sink_error
from slackwater.spark.kafka.settings import KafkaSettings

SECRETS = {"sasl.username": "alice", "sasl.password": "hu", "ssl.key.pem": "-----BEGIN"}


def test_values_of_settings_never_show() -> None:
    settings = KafkaSettings.of(
        "one:9092, two:9093", {**SECRETS, "sasl.mechanism": "PLAIN"}, "kafka"
    )
    assert settings.servers == "one:9092,two:9093"
    failure = KafkaException(
        KafkaError(KafkaError._AUTHENTICATION, "PLAIN: alice with hu and -----BEGIN was refused")
    )
    said = [repr(settings), str(settings), str(sink_error(failure, settings, "topic t"))]
    assert not [text for text in said for secret in SECRETS.values() if secret in text]
    assert "PLAIN: *** with *** and *** was refused" in said[-1]
    assert "check the user and password" in said[-1]


def test_settings_reach_the_client() -> None:
    client = KafkaSettings.of("b:1", {"ssl.ca.location": "/ca", "retries": "3"}, "kafka").client(
        group_id="g"
    )
    assert client["bootstrap.servers"] == "b:1"
    assert client["group.id"] == "g"
    assert client["ssl.ca.location"] == "/ca"
    assert client["retries"] == "3"


@pytest.mark.parametrize(
    ("servers", "options", "said"),
    [
        ("", None, r"kafka\(servers=''\).*host:port"),
        ("broker", None, r"'broker' is no server: write host:port"),
        ("a:1,,b:2", None, r"'' is no server"),
        (
            "a:1",
            {"bootstrap.servers": "x"},
            r"'bootstrap.servers' is set here: give it as",
        ),
        ("a:1", {"sasl.password": None}, r"'sasl.password' must be .* text"),
        ("a:1", {"acks": "0"}, r"'acks' is set here: leave it out"),
    ],
)
def test_bad_settings_are_named(servers: str, options: Any, said: str) -> None:
    with pytest.raises(DescriptionError, match=said):
        KafkaSettings.of(servers, options, "kafka", {"acks": "leave it out"})
