"""From Kafka to Kafka, through kills of the process and of the broker: nothing lost, none twice."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.recovery import kafka_to_kafka_child as child
from tests.recovery.incarnations import Incarnations

import slackwater as sw
from slackwater.spark.sinks.base import PANE_FIELDS
from slackwater.testing import assert_same_panes, batch_panes
from slackwater.testing.kafka_broker import KafkaBroker
from slackwater.testing.kafka_topics import read_topic, read_topic_panes
from slackwater_lab.inject.scenario import scenario_of
from slackwater_lab.inject.sending import Injector

RECORDS = 8_000
START_MS = 1_700_000_000_000


def inject(servers: str) -> None:
    """Write both topics, with event times in disorder beyond what the watermark waits for."""
    topics = [
        {
            "name": topic,
            "workload": "ysb",
            "partitions": 2,
            "delay": "exp",
            "phases": [{"seconds": RECORDS / 1_000, "rate": 1_000}],
        }
        for topic in child.TOPICS
    ]
    content = {"servers": servers, "paced": False, "start": START_MS, "topics": topics}
    sent = Injector(scenario_of(content, "test")).run()
    assert sent.records == RECORDS * len(topics)


def all_events(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    """Read a topic as one batch, without Slackwater's source."""
    values = [json.loads(record.value() or b"") for record in read_topic(servers, topic)]
    assert len(values) == RECORDS
    names = ("user_id", "ad_type", "event_type", "event_time")
    rows = [tuple(value[name] for name in names) for value in values]
    types = "user_id bigint, ad_type string, event_type string, event_time string"
    frame = spark.createDataFrame(rows, types)
    return frame.withColumn("event_time", frame["event_time"].cast("timestamp"))


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.spark
def test_kafka_to_kafka_survives_kills_of_both_ends(
    spark: SparkSession, kafka_jars: None, tmp_path: Path
) -> None:
    chance = random.Random(3)
    with KafkaBroker() as broker:
        inject(broker.servers)
        process = Incarnations(Path(child.__file__), broker.servers, str(tmp_path))
        for _ in range(3):
            alive = process.kill_after(chance.randrange(1, 6), chance.random() * 0.2)
            assert alive, "the topics were finished before it was killed often enough"

        def crash() -> None:
            broker.kill()
            broker.start()

        logged = process.finish(after=5, act=crash)
        told = ("does not answer", "it is tried again until it works")  # by source or sink
        assert any(words in logged for words in told)
        schema = pa.schema(
            [*PANE_FIELDS, ("ad_type", pa.string()), ("n", pa.int64()), ("users", pa.int64())]
        )
        panes = read_topic_panes(broker.servers, child.OUT, schema)
        rows = panes.to_pylist()
        seen = Counter((r["query"], r["window_start"], r["pane"], r["ad_type"]) for r in rows)
        assert not [identity for identity, times in seen.items() if times > 1]
        assert max(row["pane"] for row in rows) > 0  # late events have amended windows
        _, output = child.described(sw.memory())
        expected = [
            batch_panes(
                output,
                {"events": all_events(spark, broker.servers, topic)},
                event_time="event_time",
                query=topic,
                number=number,
            ).toArrow()
            for number, topic in enumerate(child.TOPICS)
        ]
        assert_same_panes(panes, pa.concat_tables(expected))
