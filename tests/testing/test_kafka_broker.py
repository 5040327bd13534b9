from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from slackwater.errors import DescriptionError, MissingRequirementError, SlackwaterError
from slackwater.spark.maven import jars
from slackwater.testing.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

OWNER = """
import sys
from slackwater.testing.kafka_broker import KafkaBroker
broker = KafkaBroker().start()
print(broker.data, flush=True)
sys.stdin.read()
"""


def test_records_outlive_stops_and_crashes_on_the_same_port(
    kafka_jars: None, tmp_path: Path
) -> None:
    broker = KafkaBroker(tmp_path)
    servers = broker.servers
    with broker:
        broker.create_topic("kept", partitions=2)
        broker.add_partitions("kept", 3)
        assert broker.topics() == {"kept": 3}
        for end in (broker.stop, broker.kill):
            produce(servers, "kept", 2, b"record")
            end()
            broker.start()
        assert broker.servers == servers
        assert end_of(servers, "kept", 2) == 2
        broker.delete_topic("kept")
        assert broker.topics() == {}
    assert (tmp_path / "records").is_dir()


def test_broker_ends_with_its_owner_and_leaves_nothing(kafka_jars: None) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with owner:
        assert owner.stdout is not None
        data = Path(owner.stdout.readline().strip())
        assert data.is_dir()
        children = psutil.Process(owner.pid).children(recursive=True)
        assert any("kafka.Kafka" in child.cmdline() for child in children)
        owner.kill()
    _, alive = psutil.wait_procs(children, timeout=30)
    assert alive == []
    assert not data.exists()


def test_broker_says_why_it_did_not_start(kafka_broker: KafkaBroker) -> None:
    second = KafkaBroker(port=kafka_broker.port)
    with pytest.raises(SlackwaterError, match=r"(?s)ended with code .*Address already in use"):
        second.__enter__()
    assert not second.data.exists()


def test_jars_out_of_reach_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kafka_jars: None
) -> None:
    monkeypatch.setenv("SLACKWATER_CACHE", str(tmp_path))
    monkeypatch.setenv("SLACKWATER_MAVEN", "http://127.0.0.1:9/")
    with pytest.raises(MissingRequirementError, match=r"org\.example:none:1 .*SLACKWATER_MAVEN"):
        jars("org.example:none:1")
    with pytest.raises(DescriptionError, match="group:name:version"):
        jars("none")


def produce(servers: str, topic: str, partition: int, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": servers, "acks": "all"})
    producer.produce(topic, value, partition=partition)
    assert producer.flush(30) == 0


def end_of(servers: str, topic: str, partition: int) -> int:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "end"})
    try:
        bounds = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
        assert bounds is not None
        return bounds[1]
    finally:
        consumer.close()
