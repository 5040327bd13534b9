from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from slackwater.errors import DescriptionError, SinkError, SinkUnavailableError
from slackwater.spark.kafka import client_calls
from slackwater.spark.sinks.base import RETRACTED, PaneId
from slackwater.spark.sinks.kafka import KafkaSink, kafka_sink
from slackwater.spark.sinks.kafka_session import TransactionSession
from slackwater.spark.sinks.kafka_transactions import TransactionalWriter, _Turn
from slackwater.spark.sinks.pane_tables import _keys, with_window_keys
from slackwater.testing.kafka_broker import KafkaBroker
from slackwater.testing.kafka_topics import read_topic, read_topic_panes

Make = Callable[..., pa.Table]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"mode": "exactly"}, r"mode='exactly'.*'transactional' or 'upsert'"),
        ({"topic": "a b"}, r"topic='a b'.*letters"),
        ({"writer": ""}, r"writer=''.*letters"),
        ({"topic": "x.panes", "writer": "x"}, r"writer='x'.*another name"),
        ({"key": ["a", "a"]}, r"key=\['a', 'a'\].*once"),
        ({"key": "window_start"}, r"window_start are always in the key"),
        ({"options": {"transactional.id": "mine"}}, r"'transactional.id' is set here: .*writer="),
        ({"options": {"no.such": "1"}}, r"No such configuration property: \"no.such\""),
        ({"options": {"security.protocol": "nonsense"}}, r"Invalid value .* see librdkafka's"),
    ],
)
def test_bad_descriptions_are_named(given: dict[str, Any], said: str) -> None:
    topic = given.pop("topic", "panes")
    with pytest.raises(DescriptionError, match=said):
        kafka_sink("localhost:1", topic, **given)


def test_secrets_are_not_in_what_a_sink_shows() -> None:
    sink = kafka_sink("localhost:1", "t", options={"sasl.password": "hush"})
    assert "hush" not in repr(sink)
    assert sink == kafka_sink("localhost:1", "t", options={"sasl.password": "hush"})
    assert hash(sink) == hash(kafka_sink("localhost:1", "t", options={"sasl.password": "hush"}))


def test_without_a_broker_panes_wait(make_panes: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_calls, "CALL_S", 0.2)
    monkeypatch.setattr(client_calls, "PAUSE_S", 0.0)
    for mode in ("transactional", "upsert"):
        sink = kafka_sink("127.0.0.1:1", "t", mode=mode, key="campaign")
        writer = sink.open()
        with pytest.raises(SinkUnavailableError, match=r"topic t at 127.0.0.1:1 cannot be written"):
            writer.write(make_panes(), 0)
        writer.close()
        with pytest.raises(SinkError, match="closed"):
            writer.write(make_panes(), 0)


def fresh(broker: KafkaBroker, **settings: Any) -> KafkaSink:
    return kafka_sink(broker.servers, f"panes-{uuid.uuid4().hex}", **settings)


def seen(broker: KafkaBroker, sink: KafkaSink) -> Counter[Any]:
    rows = [json.loads(record.value() or b"") for record in read_topic(broker.servers, sink.topic)]
    names = ("query", "window_start", "pane", "campaign")
    return Counter(tuple(row[name] for name in names) for row in rows)


def newest(broker: KafkaBroker, sink: KafkaSink) -> set[tuple[str, int, str]]:
    """Read what compaction leaves: query, window by number, campaign."""
    last = {record.key(): record.value() for record in read_topic(broker.servers, sink.topic)}
    rows = [json.loads(value) for value in last.values() if value is not None]
    return {(r["query"], int(r["window_start"][17:19]) // 3 - 7, r["campaign"]) for r in rows}


def retracted(panes: pa.Table, campaign: str | None) -> pa.Table:
    rows = [{**row, "timing": RETRACTED, "campaign": campaign} for row in panes.to_pylist()]
    return pa.Table.from_pylist(rows, schema=panes.schema)


@pytest.mark.kafka
@pytest.mark.slow
class TestOnABroker:
    def test_records_tell_all_there_is_to_know(
        self, kafka_broker: KafkaBroker, make_panes: Make
    ) -> None:
        sink, panes = fresh(kafka_broker, key="campaign"), make_panes("ads", 1, pane=2, rows=3)
        writer = sink.open()
        writer.write(panes, 0)
        writer.close()
        record = read_topic(kafka_broker.servers, sink.topic)[0]
        assert json.loads(record.key() or b"") == {
            "query": "ads",
            "window_start": "2023-11-14T22:13:24.000000Z",
            "campaign": "c0",
        }
        assert record.headers() == [
            ("query", b"ads"),
            ("window_start", b"2023-11-14T22:13:24.000000Z"),
            ("pane", b"2"),
        ]
        read = read_topic_panes(kafka_broker.servers, sink.topic, panes.schema)
        assert read.sort_by("campaign").equals(panes.cast(read.schema))

    def test_a_successor_leaves_out_what_its_predecessor_committed(
        self, kafka_broker: KafkaBroker, make_panes: Make
    ) -> None:
        sink = fresh(kafka_broker)
        writer = sink.open()
        first, second = make_panes("ads", 0), make_panes("ads", 1)
        writer.write(pa.concat_tables([first, second]), 1)
        writer.close()
        successor = sink.open()
        again = pa.concat_tables([second, make_panes("ads", 1, pane=1), first])
        successor.write(again, 3)
        successor.close()
        assert set(seen(kafka_broker, sink).values()) == {1}
        assert seen(kafka_broker, sink).total() == 15

    def test_an_unfinished_transaction_is_ended_by_the_successor_and_never_seen(
        self, kafka_broker: KafkaBroker, make_panes: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sink, panes = fresh(kafka_broker), make_panes()
        dead = sink.open()
        with monkeypatch.context() as patch:

            def die(*_: object) -> None:
                raise SystemExit("killed before the commit")

            patch.setattr(TransactionSession, "commit", die)
            patch.setattr(TransactionSession, "abort", die)
            with pytest.raises(SystemExit):
                dead.write(panes, 0)
        successor = sink.open()
        successor.write(make_panes("ads", 5), 0)
        assert seen(kafka_broker, sink).total() == 5  # were it still open, nothing could be read
        successor.write(panes, 0)
        assert seen(kafka_broker, sink).total() == 10
        successor.close()

    def test_a_commit_whose_answer_was_lost_is_not_written_again(
        self, kafka_broker: KafkaBroker, make_panes: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sink, panes = fresh(kafka_broker), make_panes()
        writer = sink.open()
        commit = TransactionSession.commit

        def lose_answer(session: TransactionSession, written: Any, sent: Any) -> None:
            commit(session, written, sent)
            raise client_calls.timed_out()

        with monkeypatch.context() as patch:
            patch.setattr(TransactionSession, "commit", lose_answer)
            patch.setattr(client_calls, "PAUSE_S", 0.0)
            with pytest.raises(SinkUnavailableError):
                writer.write(panes, 0)
        writer.write(panes, 0)
        assert set(seen(kafka_broker, sink).values()) == {1}
        writer.close()

    def test_a_writer_that_was_succeeded_is_shut_out_for_good(
        self, kafka_broker: KafkaBroker, make_panes: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sink = fresh(kafka_broker)
        zombie = sink.open()
        zombie.write(make_panes("ads", 0), 0)
        monkeypatch.setattr(client_calls, "PAUSE_S", 0.0)
        successor = sink.open()
        with pytest.raises(SinkError):
            zombie.write(make_panes("ads", 1), 0)
        with pytest.raises(SinkError, match="another runtime has taken over"):
            zombie.write(make_panes("ads", 1), 0)
        successor.write(make_panes("ads", 1), 0)
        assert set(seen(kafka_broker, sink).values()) == {1}
        zombie.close()
        successor.close()

    def test_writers_of_different_names_share_a_topic(
        self, kafka_broker: KafkaBroker, make_panes: Make
    ) -> None:
        sink = fresh(kafka_broker)
        other = kafka_sink(kafka_broker.servers, sink.topic, writer=f"other-{sink.topic}")
        one, two = sink.open(), other.open()
        one.write(make_panes("ads", 0), 0)
        two.write(make_panes("shop", 0), 0)
        one.write(make_panes("ads", 1), 0)
        assert seen(kafka_broker, sink).total() == 15
        one.close()
        two.close()

    def test_a_pane_that_cannot_be_sent_holds_up_no_other(
        self, kafka_broker: KafkaBroker, make_panes: Make
    ) -> None:
        sink = fresh(kafka_broker)
        writer = sink.open()
        assert isinstance(writer, TransactionalWriter)
        good, bad = make_panes("ads", 0), make_panes("ads", 1, rows=1)
        huge = pa.array(["x" * 2_000_000])
        bad = bad.set_column(bad.schema.get_field_index("campaign"), "campaign", huge)
        turns = [_Turn(bad), _Turn(good)]
        writer._write_together(turns)
        assert turns[1].error is None
        with pytest.raises(SinkError, match=r"message.max.bytes .* resume"):
            raise turns[0].error or AssertionError("no error")
        assert seen(kafka_broker, sink).total() == 5
        writer.close()

    def test_upserts_keep_the_newest_pane_of_each_group(
        self, kafka_broker: KafkaBroker, make_panes: Make
    ) -> None:
        sink = fresh(kafka_broker, mode="upsert", key="campaign")
        for panes in (make_panes("ads", 0), make_panes("ads", 0, pane=1)):
            writer = sink.open()
            writer.write(panes, 0)
            writer.write(panes, 1)
            writer.close()
        crashed = sink.open()  # knows of no pane, and sends its last one again
        crashed.write(make_panes("ads", 0, pane=1), 0)
        crashed.close()
        newest = {r.key(): r.value() for r in read_topic(kafka_broker.servers, sink.topic)}
        rows = [json.loads(value or b"") for value in newest.values()]
        assert sorted((row["campaign"], row["pane"]) for row in rows) == [
            (f"c{number}", 1) for number in range(5)
        ]

    def test_upserts_remove_what_is_taken_back(
        self, kafka_broker: KafkaBroker, make_panes: Make
    ) -> None:
        sink = fresh(kafka_broker, mode="upsert", key="campaign")
        writer = sink.open()
        first, other = make_panes("ads", 0), make_panes("ads", 1, rows=2)
        writer.write(pa.concat_tables([first, other]), 0)
        writer.write(retracted(make_panes("ads", 0, pane=1, rows=1), None), 0)
        assert newest(kafka_broker, sink) == {("ads", 1, "c0"), ("ads", 1, "c1")}
        sessions = with_window_keys(first.schema, ["campaign"])
        one = retracted(make_panes("ads", 1, pane=1, rows=1), "c1")
        writer.write(one.cast(sessions), 0)
        assert newest(kafka_broker, sink) == {("ads", 1, "c0")}
        writer.close()

    def test_sessions_of_many_keys_are_remembered_by_their_emission(
        self, kafka_broker: KafkaBroker, make_panes: Make
    ) -> None:
        sink = fresh(kafka_broker, key="campaign")
        schema = with_window_keys(make_panes().schema, ["campaign"])
        steps = [
            pa.concat_tables([make_panes("ads", w, pane=n, rows=1) for w in range(3)]).cast(schema)
            for n in range(2)
        ]
        for step in steps:
            writer = sink.open()
            writer.write(step, 0)
            writer.close()
        writer = sink.open()
        writer.write(steps[1], 0)
        writer.close()
        assert set(seen(kafka_broker, sink).values()) == {1}
        assert seen(kafka_broker, sink).total() == 6
        notes = read_topic(kafka_broker.servers, f"{sink.topic}.panes")
        assert len({record.key() for record in notes}) == 2  # the owner, and the emission

    def test_upserts_refuse_a_key_that_names_two_rows(
        self, kafka_broker: KafkaBroker, make_panes: Make
    ) -> None:
        writer = fresh(kafka_broker, mode="upsert").open()
        with pytest.raises(SinkError, match=r"key=\[\] names several rows of one pane"):
            writer.write(make_panes(), 0)
        writer.close()
        writer = fresh(kafka_broker, mode="upsert").open()
        sessions = make_panes(rows=1).cast(with_window_keys(make_panes().schema, ["campaign"]))
        with pytest.raises(SinkError, match=r"lacks \['campaign'\].* name them in key="):
            writer.write(sessions, 0)
        writer.close()
        writer = fresh(kafka_broker, mode="upsert", key="nothing").open()
        with pytest.raises(SinkError, match=r"lack the columns \['nothing'\]"):
            writer.write(make_panes(), 0)
        writer.close()

    def test_a_topic_that_forgets_cannot_remember_panes(self, kafka_broker: KafkaBroker) -> None:
        sink = fresh(kafka_broker)
        kafka_broker.create_topic(f"{sink.topic}.panes", cleanup_policy="delete")
        with pytest.raises(SinkError, match=r"has cleanup.policy=delete, but must have compact"):
            sink.open()

    @pytest.mark.spark
    def test_a_large_pane_is_written_once_by_batches(
        self, spark: SparkSession, kafka_broker: KafkaBroker, make_panes: Make
    ) -> None:
        panes = make_panes("ads", 0, rows=12_000)
        frame = spark.createDataFrame(panes).repartition(3, "campaign")
        start_us = next(iter(_keys(panes)))[1]
        for mode in ("transactional", "upsert"):
            sink = fresh(kafka_broker, mode=mode, key="campaign")
            for _ in range(2):
                writer = sink.open()
                with writer.stage(0) as step:
                    assert step.add_frame(PaneId("ads", start_us, 0), frame) == 12_000
                    step.publish()
                writer.close()
            times = 1 if mode == "transactional" else 2
            assert set(seen(kafka_broker, sink).values()) == {times}
            assert seen(kafka_broker, sink).total() == 12_000 * times
