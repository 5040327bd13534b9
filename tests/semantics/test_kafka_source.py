"""Queries over a real broker that comes and goes, beside queries that do not need it."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

import slackwater as sw
from slackwater.cli.journal_report import read_journal
from slackwater.runtime.reports import QueryReport
from slackwater.spark.sinks.pane_tables import last_panes
from slackwater.spark.sinks.parquet import read_panes
from slackwater.testing.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.spark]

SCHEMA = "ts timestamp, k string, v bigint"
START_S = 1_714_557_600  # 2024-05-01T10:00:00Z
COUNT = 2_000


class Sender:
    """Send records to two partitions, and remember what the windows must come to."""

    def __init__(self, servers: str) -> None:
        self._producer = Producer({"bootstrap.servers": servers, "log_level": 0})
        self._chance = random.Random(3)
        self.counts: Counter[tuple[int, str]] = Counter()

    def send(self, count: int) -> None:
        for number in range(count):
            second, key = self._chance.randrange(60), self._chance.choice("abc")
            moment = datetime.fromtimestamp(START_S + second, UTC).isoformat()
            text = json.dumps({"ts": moment, "k": key, "v": 1})
            self._producer.produce("in", text, partition=number % 2)
            self.counts[START_S + second - second % 5, key] += 1
        assert self._producer.flush(60) == 0

    def close_windows(self) -> None:
        for partition in range(2):
            text = json.dumps({"ts": datetime.now(UTC).isoformat(), "k": "end", "v": 0})
            self._producer.produce("in", text, partition=partition)
        assert self._producer.flush(60) == 0

    def break_in(self) -> None:
        self._producer.produce("in", b"{no json", partition=1)
        assert self._producer.flush(60) == 0


def until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def test_broker_may_be_late_and_go_away_while_others_go_on(
    spark: SparkSession, kafka_jars: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slackwater.spark.sources.kafka_reader._OPEN_S", 0.1)
    app = sw.App("counts")
    app.source("events").window(sw.tumbling("5 seconds"), by="k").aggregate(n=sw.sum("v")).to(
        sw.parquet(tmp_path / "out"), lateness="1000 days"
    )
    other = sw.App("other")
    other.source("events").window(sw.tumbling("200 ms")).aggregate(n=sw.count()).to(sw.memory())
    broker = KafkaBroker()
    failures: list[BaseException] = []
    with sw.Runtime(spark, journal=tmp_path / "state") as rt:
        topic = sw.kafka(broker.servers, "in", schema=SCHEMA, event_time="ts", group="seen")
        rt.deploy(app, "late", events=topic)
        rt.deploy(other, "other", events=sw.ysb(rate=200, seed=1))

        def report(name: str) -> QueryReport:
            return next(query for query in rt.queries() if query.name == name)

        def goes_on(name: str) -> None:
            panes = report(name).panes
            until(lambda: report(name).panes >= panes + 2, f"{name} stands still")

        def story() -> None:
            try:
                until(lambda: "does not answer" in (report("late").waits_for or ""), "no word")
                goes_on("other")
                with broker:
                    broker.create_topic("in", partitions=2)
                    sender = Sender(broker.servers)
                    sender.send(COUNT)
                    until(lambda: report("late").records == COUNT, "first records")
                    broker.kill()
                    until(lambda: report("late").waits_for is not None, "no word again")
                    goes_on("other")
                    broker.start()
                    sender.send(COUNT)
                    sender.break_in()
                    sender.close_windows()
                    until(lambda: report("late").records == 2 * COUNT + 3, "all records")
                    until(lambda: bool(rt.dead_letters.counts()), "dead letters")
                    told = {each.query: each for each in read_journal(tmp_path / "state").inputs}
                    assert set(told["late"].lags) == {"in/0", "in/1"}
                    assert report("late").quarantined is None
                    expected.update(sender.counts)
            except BaseException as failure:
                failures.append(failure)
            finally:
                rt.stop()

        expected: dict[tuple[int, str], int] = {}
        teller = threading.Thread(target=story)
        teller.start()
        rt.run(seconds=240)
        teller.join()
        if failures:
            raise failures[0]
        (letter,) = rt.dead_letters.read().to_pylist()
    assert (letter["topic"], letter["partition"], letter["reason"]) == ("in", 1, "malformed")
    assert (letter["record"], letter["offset"]) == ("{no json", COUNT)
    rows = last_panes(read_panes(tmp_path / "out")).to_pylist()
    found = {(int(row["window_start"].timestamp()), row["k"]): row["n"] for row in rows}
    assert {place: n for place, n in found.items() if place[1] != "end"} == expected
