"""What can be told of a Kafka input without a broker."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructType, TimestampType

import slackwater as sw
from slackwater.errors import DescriptionError
from slackwater.spark.kafka.avro_types import spark_schema
from slackwater.spark.sources.base import Range
from slackwater.spark.sources.kafka import Kafka
from slackwater.spark.sources.kafka_offsets import PlannedOffsets

SCHEMA = StructType().add("ts", TimestampType()).add("k", StringType())
SECRET = "hush-hush-7719"
OPTIONS = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "shop",
    "sasl.password": SECRET,
}


def describe(**changes: Any) -> Kafka:
    settings: dict[str, Any] = {"topics": "clicks", "schema": SCHEMA, "event_time": "ts"}
    return sw.kafka("127.0.0.1:9", **{**settings, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"topics": []}, "at least one topic"),
        ({"topics": ["a", "a"]}, "twice"),
        ({"format": "csv"}, "format='csv' is unknown"),
        ({"on_lost_data": "ignore"}, "on_lost_data='ignore' is unknown"),
        ({"isolation": "serializable"}, "isolation='serializable' is unknown"),
        ({"schema": None}, "schema=None"),
        ({"event_time": "when"}, "event_time='when' is not in the schema"),
        ({"event_time": None}, "event_time is not given"),
        ({"format": "columns"}, "has its own"),
        ({"format": "avro", "schema": "{}"}, "no Avro schema"),
        ({"watermark": sw.from_source()}, "watermark_header="),
        ({"watermark": sw.bounded("1 s"), "watermark_header": "w"}, "choose one"),
        ({"options": {"group.id": "g"}}, "group="),
        ({"options": {"auto.offset.reset": "latest"}}, "start="),
        ({"inline_bytes": -1}, "inline_bytes=-1"),
        ({"start": {"other": {0: 1}}}, "start="),
    ],
)
def test_what_cannot_work_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DescriptionError, match=message):
        describe(**changes)


def test_partitions_keep_their_numbers_when_topics_grow() -> None:
    one, two = describe(topics="a"), describe(topics=["a", "b"])
    assert [one.index(("a", p)) for p in range(3)] == [0, 1, 2]
    for source, topics in ((one, ["a"]), (two, ["a", "b"])):
        places = [(topic, partition) for topic in topics for partition in range(5)]
        numbers = [source.index(place) for place in places]
        assert len(set(numbers)) == len(numbers)
        assert [source.place(number) for number in numbers] == places


def test_avro_types_become_columns() -> None:
    avro = """{"type": "record", "name": "r", "fields": [
        {"name": "ts", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal",
                                   "precision": 9, "scale": 2}},
        {"name": "kind", "type": {"type": "enum", "name": "kind", "symbols": ["A"]}},
        {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "more", "type": {"type": "map", "values": "double"}},
        {"name": "user", "type": ["null", {"type": "record", "name": "user", "fields": [
            {"name": "id", "type": "int"}]}]},
        {"name": "friend", "type": ["null", "user"]}]}"""
    assert spark_schema(avro, "ts").simpleString() == (
        "struct<ts:timestamp,at:timestamp,price:decimal(9,2),kind:string,tags:array<string>,"
        "more:map<string,double>,user:struct<id:int>,friend:struct<id:int>>"
    )
    with pytest.raises(DescriptionError, match="union"):
        spark_schema('{"type":"record","name":"r","fields":[{"name":"x","type":["int","string"]}]}')


def test_planned_offsets_survive_the_journal() -> None:
    planned = PlannedOffsets()
    planned.identities["t"] = "x"
    planned.plan(Range(0, 0, 10, 8, detail={"topic": "t", "lost": 2}))
    state = planned.state()
    later = [Range(0, 10, 15, 5), Range(1, 0, 3, 3, detail={"topic": "t", "identity": "y"})]
    restored = PlannedOffsets()
    restored.restore(state, later)
    assert (restored.at, restored.records, restored.lost) == ({0: 15, 1: 3}, 16, 2)
    assert restored.identities == {"t": "y"}


def test_loss_told_by_an_empty_range_is_not_forgotten() -> None:
    planned = PlannedOffsets()
    planned.plan(Range(0, 0, 0, 0, detail={"topic": "t", "lost": 2, "identity": "y"}))
    planned.plan(Range(0, 0, 1, 1, detail={"topic": "t"}))
    planned.plan(Range(0, 0, 3, 2, detail={"topic": "t"}))  # instead of the former
    assert (planned.lost, planned.records, planned.at) == (2, 2, {0: 3})


@pytest.mark.spark
def test_secrets_stay_secret(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG, "slackwater")
    monkeypatch.setattr("slackwater.spark.sources.kafka_reader._OPEN_S", 0.1)
    monkeypatch.setattr("slackwater.spark.kafka.survey.SILENT_S", 0.2)
    source = describe(options=OPTIONS, group="g", topics=["clicks"])
    app = sw.App("a")
    app.source("e").window(sw.tumbling("1 s")).aggregate(n=sw.count()).to(sw.memory())
    with sw.Runtime(spark, journal=tmp_path) as rt:
        rt.deploy(app, "q", e=source)
        rt.run(until=lambda: rt.queries()[0].waits_for is not None)
        told = [repr(source), str(source), repr(rt.queries()), caplog.text, *capfd.readouterr()]
        readers = rt._fleet.queries[0].readers
        told += [repr(reader.fusion_key) for reader in readers]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    told += [path.read_bytes().decode("latin-1") for path in files]
    assert "does not answer" in caplog.text
    assert not [text for text in told if SECRET in text]
