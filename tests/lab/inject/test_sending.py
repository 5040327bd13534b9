from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from slackwater.cli.main import app
from slackwater.errors import SlackwaterError
from slackwater.spark.kafka import client_calls
from slackwater.testing.kafka_broker import KafkaBroker
from slackwater.testing.kafka_topics import read_topic
from slackwater_lab.inject.scenario import Scenario, scenario_of
from slackwater_lab.inject.sending import Injector

START_MS = 1_700_000_000_000


def scenario(servers: str, name: str, *, paced: bool = False, seconds: float = 4) -> Scenario:
    kinds = ["ysb", "lrb", "nyt", "knn"]
    phases = [{"seconds": seconds / 2, "rate": 1_500}, {"seconds": seconds / 2, "from": 0, "to": 9}]
    topics = [
        {"name": f"{name}-{kind}", "workload": kind, "partitions": 2, "phases": phases}
        for kind in kinds
    ]
    content = {"servers": servers, "paced": paced, "topics": topics}
    return scenario_of(content if paced else {**content, "start": START_MS}, "here")


def test_no_broker_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_calls, "CALL_S", 0.2)
    with pytest.raises(SlackwaterError, match=r"cannot write to 127.0.0.1:1: "):
        Injector(scenario("127.0.0.1:1", "t"))


@pytest.mark.kafka
@pytest.mark.slow
def test_two_runs_write_the_same_and_tell_what(kafka_broker: KafkaBroker) -> None:
    runs = []
    for name in ("one", "two"):
        sent = Injector(scenario(kafka_broker.servers, name)).run()
        topics = {}
        for topic in sent.topics:
            records = read_topic(kafka_broker.servers, topic.topic)
            topics[topic.workload] = [
                (r.key(), r.value(), r.timestamp(), r.partition()) for r in records
            ]
            assert topic.records == len(records) == 3_009
            assert topic.bytes == sum(len(r.value() or b"") for r in records)
            stamps = [r.timestamp()[1] for r in records]
            assert (min(stamps), max(stamps)) == (topic.first_arrival_ms, topic.last_arrival_ms)
        assert {r[3] for r in topics["ysb"]} == {0, 1}
        runs.append(topics)
    assert runs[0] == runs[1]


@pytest.mark.kafka
@pytest.mark.slow
def test_a_broker_that_goes_and_comes_gets_every_record_once(kafka_jars: None) -> None:
    with KafkaBroker() as broker:
        injector = Injector(scenario(broker.servers, "t", paced=True, seconds=6))
        restarted = threading.Event()

        def restart(_: object) -> None:
            if not restarted.is_set():
                restarted.set()
                broker.kill()
                broker.start()

        sent = injector.run(restart, every_s=1.0)
        assert restarted.is_set()
        for topic in sent.topics:
            values = Counter(r.value() for r in read_topic(broker.servers, topic.topic))
            assert values.total() == topic.records
            if topic.workload == "knn":  # its points are numbered
                assert max(values.values()) == 1


@pytest.mark.kafka
@pytest.mark.slow
def test_the_command_says_what_it_sent(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text(
        'servers = "nowhere:1"\npaced = false\n[[topics]]\nname = "commanded"\nworkload = "ysb"\n'
        "phases = [{ seconds = 2, rate = 100 }]\n"
    )
    arguments = ["inject", str(file), "--servers", kafka_broker.servers, "--start", str(START_MS)]
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    sent = json.loads(result.stdout)
    assert sent["records"] == sent["topics"][0]["records"] == 200
    assert sent["start_ms"] == START_MS
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0
    assert "commanded" in result.stdout
    assert len(read_topic(kafka_broker.servers, "commanded")) == 400
