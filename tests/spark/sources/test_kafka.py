"""The reader against a real broker; what needs no rows needs no Spark either."""

from __future__ import annotations

import io
import json
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, cast

import fastavro
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import Row, SparkSession
from pyspark.sql.types import LongType, StringType, StructType, TimestampType

from slackwater.errors import DescriptionError, SourceError, UnavailableError
from slackwater.progress.times import END_OF_TIME_MS
from slackwater.spark.kafka import fetching
from slackwater.spark.latebound import fixed_specification
from slackwater.spark.sources.base import ARRIVAL, MALFORMED, OFFSET, PARTITION, QUERY, Range
from slackwater.spark.sources.kafka import Kafka, kafka
from slackwater.spark.sources.kafka_reader import UNKNOWN_PARTITION, KafkaReader
from slackwater.testing.kafka_broker import KafkaBroker

SCHEMA = StructType().add("ts", TimestampType()).add("k", StringType()).add("v", LongType())
NO_SPARK = cast(SparkSession, None)  # a schema that is not DDL needs no session
NOW_MS = time.time() * 1_000
AVRO = {
    "type": "record",
    "name": "event",
    "fields": [
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "k", "type": ["null", "string"]},
        {"name": "v", "type": "long"},
    ],
}

needs_broker = [pytest.mark.kafka, pytest.mark.slow]
pytestmark = needs_broker


class Topic:
    """A topic of its own, with what a test does to it."""

    def __init__(self, broker: KafkaBroker, partitions: int = 1, **config: Any) -> None:
        self.broker = broker
        self.name = f"t-{uuid.uuid4().hex[:8]}"
        broker.create_topic(self.name, partitions, **config)

    def send(self, *values: bytes | str | None, partition: int = 0, **more: Any) -> None:
        producer = Producer({"bootstrap.servers": self.broker.servers, "log_level": 0})
        for value in values:
            producer.produce(self.name, value, partition=partition, **more)
        assert producer.flush(30) == 0

    def send_in_transaction(self, *values: str, abort: bool = False) -> None:
        settings = {"bootstrap.servers": self.broker.servers, "log_level": 0}
        producer = Producer({**settings, "transactional.id": uuid.uuid4().hex})
        producer.init_transactions(30)
        producer.begin_transaction()
        for value in values:
            producer.produce(self.name, value, partition=0)
        producer.flush(30)
        if abort:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)

    def describe(self, **changes: Any) -> Kafka:
        settings: dict[str, Any] = {"schema": SCHEMA, "event_time": "ts"}
        return kafka(self.broker.servers, self.name, **{**settings, **changes})


def line(v: int) -> str:
    return json.dumps({"ts": "2024-05-01T10:00:00Z", "k": "a", "v": v})


@pytest.fixture
def topic(kafka_broker: KafkaBroker) -> Topic:
    return Topic(kafka_broker)


@pytest.fixture
def opened() -> Iterator[Callable[..., KafkaReader]]:
    """Open descriptions, restored from nothing or from what a former reader left."""
    readers: list[KafkaReader] = []

    def open_one(
        description: Kafka, committed: Any = None, state: Any = None, ranges: Sequence[Range] = ()
    ) -> KafkaReader:
        reader = description.open(NO_SPARK)
        readers.append(reader)
        reader.restore(committed or {}, state, ranges)
        return reader

    yield open_one
    for reader in readers:
        reader.close()


def until(condition: Callable[[], Any], what: str = "nothing happened") -> Any:
    """Wait for the broker, and return what the condition gave."""
    end = time.monotonic() + 30
    while not (found := condition()):
        assert time.monotonic() < end, what
        time.sleep(0.01)
    return found


def ends_at(reader: KafkaReader, offset: int) -> bool:
    """Tell whether everything up to an offset can be planned."""
    return any(piece.until == offset for piece in reader.plan({}, NOW_MS, 9))


def wait_for_end(reader: KafkaReader, offset: int) -> None:
    until(lambda: ends_at(reader, offset), f"never at {offset}")


def settled(reader: KafkaReader, count: int) -> None:
    until(lambda: reader.available_one(NOW_MS) >= count, f"never {count} available")


def read_all(reader: KafkaReader, count: int, most: int = 10**9) -> list[tuple[int, Range]]:
    """Plan until so many offsets are passed; return (rows, piece) of each non-empty range."""
    positions: dict[int, int] = {}
    found: list[tuple[int, Range]] = []
    passed = 0

    def plan() -> bool:
        nonlocal passed
        for piece in reader.plan(positions, NOW_MS, most):
            positions[piece.partition] = piece.until
            passed += piece.until - piece.first
            if piece.until > piece.first:
                found.append((len(rows_of(reader, piece)), piece))
        return passed >= count

    until(plan, f"only {passed} of {count} offsets")
    return found


def rows_of(reader: KafkaReader, piece: Range) -> list[tuple[int, str]]:
    entry = reader.entry_in_full(7, piece)
    return [
        (run["first"] + at, text) for run in entry["runs"] for at, text in enumerate(run["lines"])
    ]


def test_every_record_is_planned_once_whatever_the_step_size(
    kafka_broker: KafkaBroker, opened: Callable[..., KafkaReader]
) -> None:
    topic = Topic(kafka_broker, partitions=3)
    for partition in range(3):
        topic.send(*[line(v) for v in range(20 * partition)], partition=partition)
    for most in (1, 7, 1_000):
        reader = opened(topic.describe())
        settled(reader, 60)
        seen: dict[int, list[int]] = {0: [], 1: [], 2: []}
        for _, piece in read_all(reader, 60, most):
            assert piece.events <= most
            rows = rows_of(reader, piece)
            assert len(rows) == piece.events
            seen[piece.partition] += [json.loads(text)["v"] for _, text in rows]
        assert seen == {p: list(range(20 * p)) for p in range(3)}
        assert reader.available_one(NOW_MS) == 60
        assert reader.lags({0: 0, 1: 20, 2: 35}) == {
            f"{topic.name}/{p}": lag for p, lag in ((0, 0), (1, 0), (2, 5))
        }


def test_restored_reader_goes_on_where_the_journal_says(
    topic: Topic, opened: Callable[..., KafkaReader]
) -> None:
    topic.send(*map(line, range(10)))
    first = opened(topic.describe())
    settled(first, 10)
    state = first.state()
    (one,) = first.plan({}, NOW_MS, 4)
    (two,) = first.plan({0: one.until}, NOW_MS, 3)
    again = opened(topic.describe(start="latest"), {0: one.until}, state, [one, two])
    settled(again, 10)
    assert again.available_one(NOW_MS) == 10
    assert rows_of(again, two) == rows_of(first, two)
    (three,) = until(
        lambda: [p for p in again.plan({0: two.until}, NOW_MS, 99) if p.events == 3],
    )
    assert [offset for offset, _ in rows_of(again, three)] == [7, 8, 9]


def test_beginnings(topic: Topic, opened: Callable[..., KafkaReader]) -> None:
    topic.send(line(0), timestamp=1_000_000)
    topic.send(line(1), timestamp=2_000_000)
    topic.send(line(2), timestamp=3_000_000)
    moment = datetime.fromtimestamp(1_500, UTC)
    for start, first in (
        ("earliest", 0),
        ("latest", 3),
        ({0: 2}, 2),
        ({topic.name: {0: 1}}, 1),
        (moment, 1),
        ("2999-01-01T00:00:00Z", 3),
    ):
        reader = opened(topic.describe(start=start))
        wait_for_end(reader, 3)
        (piece,) = reader.plan({}, NOW_MS, 9)
        assert (piece.first, piece.until) == (first, 3), start
        assert reader.state()["starts"] == [(0, first)]
    for wrong in ("yesterday", "2024-01-01T00:00:00", {0: -1}, {0: "x"}):
        with pytest.raises(DescriptionError, match="start="):
            topic.describe(start=wrong)


def test_new_partitions_are_read_from_their_beginning(
    topic: Topic, opened: Callable[..., KafkaReader]
) -> None:
    topic.send(line(0))
    reader = opened(topic.describe(start="latest"))
    state = reader.state()
    topic.broker.add_partitions(topic.name, 2)
    topic.send(line(1), partition=1)
    settled(reader, 1)
    pieces = {piece.partition: piece for piece in reader.plan({0: 1}, NOW_MS, 9)}
    assert (pieces[1].first, pieces[1].until, pieces[1].idle) == (0, 1, False)
    later = opened(topic.describe(start="latest"), {0: 1}, state)
    assert later.state()["starts"] == [(0, 1), (1, 0)]


def test_gaps_of_transactions_are_neither_records_nor_backlog(
    topic: Topic, opened: Callable[..., KafkaReader]
) -> None:
    topic.send_in_transaction(line(0), line(1))
    topic.send_in_transaction(line(2), abort=True)
    topic.send(line(3))  # offsets 0 and 1, a marker, 3, a marker, 5
    reader = opened(topic.describe())
    settled(reader, 3)
    pieces = read_all(reader, 6)
    values = [json.loads(text)["v"] for _, piece in pieces for _, text in rows_of(reader, piece)]
    assert values == [0, 1, 3]
    assert sum(rows for rows, _ in pieces) == sum(piece.events for _, piece in pieces) == 3
    assert reader.available_one(NOW_MS) == 3
    assert reader.lags({0: 6}) == {f"{topic.name}/0": 0}


def test_open_transaction_is_not_read_until_committed(
    topic: Topic, opened: Callable[..., KafkaReader]
) -> None:
    settings = {"bootstrap.servers": topic.broker.servers, "log_level": 0}
    producer = Producer({**settings, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic.name, line(0), partition=0)
    producer.flush(30)
    topic.send(line(1))
    dirty = opened(topic.describe(isolation="read_uncommitted"))
    settled(dirty, 2)
    reader = opened(topic.describe())
    assert reader.available_one(NOW_MS) == 0
    producer.commit_transaction(30)
    assert sum(rows for rows, _ in read_all(reader, 3)) == 2


def test_only_a_partition_without_backlog_becomes_idle(
    kafka_broker: KafkaBroker, opened: Callable[..., KafkaReader]
) -> None:
    topic = Topic(kafka_broker, partitions=2)
    topic.send(line(0))
    reader = opened(topic.describe(idle_after="2 seconds"))
    settled(reader, 1)
    reader.available_one(NOW_MS)
    assert [p.idle for p in reader.plan({}, NOW_MS + 1_000, 9)] == [False, False]
    assert [p.idle for p in reader.plan({}, NOW_MS + 3_000, 9)] == [False, True]
    topic.send(line(1), partition=1)
    settled(reader, 2)
    assert [p.idle for p in reader.plan({0: 1}, NOW_MS + 9_000, 9)] == [True, False]


def test_lost_records_stop_the_query_or_are_counted(
    topic: Topic, opened: Callable[..., KafkaReader]
) -> None:
    topic.send(*map(line, range(10)))
    strict, lenient = opened(topic.describe()), opened(topic.describe(on_lost_data="skip"))
    settled(strict, 10)
    settled(lenient, 10)
    gone = topic.broker.admin.delete_records([TopicPartition(topic.name, 0, 6)])
    for future in gone.values():
        future.result(30)

    def complains() -> bool:
        try:
            strict.plan({0: 2}, NOW_MS, 99)
        except SourceError as error:
            message = str(error)
            return f"topic '{topic.name}', partition 0" in message and "offset 2 to 6" in message
        return False

    until(complains)
    pieces = until(lambda: [p for p in lenient.plan({0: 2}, NOW_MS, 99) if p.detail.get("lost")])
    assert (pieces[0].first, pieces[0].until, pieces[0].events) == (2, 10, 4)
    assert [offset for offset, _ in rows_of(lenient, pieces[0])] == [6, 7, 8, 9]
    assert lenient.lost == 4
    again = opened(topic.describe(on_lost_data="skip"), {0: 2}, None, pieces)
    assert again.lost == 4


def test_deleted_topic_stops_the_query_or_its_successor_is_read(
    topic: Topic, opened: Callable[..., KafkaReader]
) -> None:
    topic.send(*map(line, range(5)))
    strict, lenient = opened(topic.describe()), opened(topic.describe(on_lost_data="skip"))
    for reader in (strict, lenient):
        settled(reader, 5)
        reader.plan({}, NOW_MS, 3)
    topic.broker.delete_topic(topic.name)

    def complains() -> bool:
        try:
            strict.available_one(NOW_MS)
        except SourceError as error:
            return "was deleted" in str(error) and topic.name in str(error)
        return False

    until(complains)
    until(lambda: lenient.waits_for() == f"topic '{topic.name}' does not exist")
    topic.broker.create_topic(topic.name)
    topic.send(line(100))
    positions = {0: 3}
    values: list[int] = []

    def reads_on() -> bool:
        for piece in lenient.plan(positions, NOW_MS, 9):
            positions[piece.partition] = piece.until
            if piece.events:
                values.extend(json.loads(text)["v"] for _, text in rows_of(lenient, piece))
        return bool(values)

    until(reads_on)
    assert (values, positions) == ([100], {0: 1})
    assert lenient.lost == 2
    assert lenient.available_one(NOW_MS) == 4
    with pytest.raises(SourceError, match="does not exist"):
        opened(kafka(topic.broker.servers, "nowhere", schema=SCHEMA, event_time="ts"))


def test_input_without_follow_ends(topic: Topic, opened: Callable[..., KafkaReader]) -> None:
    topic.send_in_transaction(line(0), line(1))
    reader = opened(topic.describe(follow=False))
    topic.send(line(2))
    pieces = read_all(reader, 3)
    assert pieces[-1][1].watermark_ms == END_OF_TIME_MS
    assert reader.finished({0: 3}, NOW_MS)
    assert not reader.finished({0: 2}, NOW_MS)
    assert sum(rows for rows, _ in pieces) == 2


def test_group_shows_what_is_committed(topic: Topic, opened: Callable[..., KafkaReader]) -> None:
    topic.send(*map(line, range(3)))
    reader = topic.describe(group="watched").open(NO_SPARK)
    reader.restore({}, None, [])
    settled(reader, 3)
    reader.plan({0: 2}, NOW_MS, 9)
    reader.close()
    consumer = Consumer({"bootstrap.servers": topic.broker.servers, "group.id": "watched"})
    (found,) = consumer.committed([TopicPartition(topic.name, 0)], timeout=30)
    consumer.close()
    assert found.offset == 2


def test_broker_that_is_away_is_waited_for(
    kafka_jars: None, opened: Callable[..., KafkaReader], caplog: pytest.LogCaptureFixture
) -> None:
    broker = KafkaBroker()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("slackwater.spark.sources.kafka_reader._OPEN_S", 0.1)
        late = opened(kafka(broker.servers, "late", schema=SCHEMA, event_time="ts"))
    assert late.available_one(NOW_MS) == 0
    assert [p.partition for p in late.plan({}, NOW_MS, 9)] == [UNKNOWN_PARTITION]
    until(lambda: "does not answer" in (late.waits_for() or ""))
    with broker:
        broker.create_topic("late")
        topic = Topic.__new__(Topic)
        topic.broker, topic.name = broker, "late"
        topic.send(*map(line, range(4)))
        settled(late, 4)
        pieces = until(lambda: late.plan({UNKNOWN_PARTITION: 0}, NOW_MS, 2))
        assert [(p.partition, p.idle) for p in pieces] == [(0, False), (UNKNOWN_PARTITION, True)]
        until(lambda: late._hub.held(("late", 0), 0, 4))
        broker.kill()
        until(lambda: late.waits_for())
        assert len(rows_of(late, pieces[0])) == 2  # held, whatever became of the broker
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("slackwater.spark.kafka.hub._PATIENCE_S", 0.2)
            late._hub._watched[("late", 0)].tail.restart(4)
            with pytest.raises(UnavailableError):
                late.entry(0, pieces[0])
        broker.start()
        until(lambda: late.waits_for() is None)
        topic.send(line(4))
        settled(late, 5)
        assert len(rows_of(late, pieces[0])) == 2
    said = [r.getMessage() for r in caplog.records if "slackwater" in r.name]
    assert sum("does not answer" in text for text in said) == 2
    assert sum("answers again" in text for text in said) == 2


@pytest.mark.spark
def test_what_is_far_behind_is_left_to_executors_until_it_is_near(
    topic: Topic, opened: Callable[..., KafkaReader], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "TAILS_BYTES", 50_000)
    monkeypatch.setattr(fetching, "_LEAST_BYTES", 50_000)
    topic.send(*[line(v) for v in range(1_000)])
    reader = opened(topic.describe())
    settled(reader, 1_000)
    until(lambda: reader.most_records() is None, "what is far behind is still carried")
    (piece,) = reader.plan({}, NOW_MS, 900)
    assert (piece.first, piece.until) == (0, 900)
    until(lambda: bool(reader.plan({0: 960}, NOW_MS, 1)) and reader.most_records() is not None)
    until(lambda: reader._hub.held((topic.name, 0), 960, 1_000), "what is near is not held")


def test_steps_are_as_large_as_what_they_carry(
    topic: Topic, opened: Callable[..., KafkaReader]
) -> None:
    topic.send(*[line(v) for v in range(100)])
    size = len(line(10))
    reader = opened(topic.describe(inline_bytes=2_000_000))
    settled(reader, 100)
    assert 2_000_000 / (size + 2) <= (reader.most_records() or 0) <= 2_000_000 / (size - 2)
    # Where nothing is to be carried, or little, there is nothing to gain from small steps.
    assert opened(topic.describe(inline_bytes=0)).most_records() is None


@pytest.mark.parametrize("inline", [True, False], ids=["inline", "scan"])
def test_rows_of_all_formats(
    spark: SparkSession,
    kafka_broker: KafkaBroker,
    opened: Callable[..., KafkaReader],
    *,
    inline: bool,
) -> None:
    stamp_ms = 1_714_557_600_123
    headers = [("watermark", b"1714557600000"), ("none", None)]

    def rows(topic: Topic, **changes: Any) -> list[Row]:
        reader = opened(topic.describe(inline_bytes=10**6 if inline else 0, **changes))
        settled(reader, 3)
        (piece,) = until(lambda: [p for p in reader.plan({}, NOW_MS, 9) if p.events == 3])
        assert reader.suits([(4, piece)]) == inline
        if inline:
            cells = fixed_specification(spark, [[json.dumps([reader.entry(4, piece)])]])
            entries = cells.selectExpr(f"explode(from_json(s0, 'array<{reader.entry_type}>')) r")
            frame = reader.expand(entries)
        else:
            frame = reader.scan(spark, [(4, piece)])
        found = sorted(frame.collect(), key=lambda row: row[OFFSET])
        assert [row[OFFSET] for row in found] == [0, 1, 2]
        assert {(row[QUERY], row[PARTITION], row[ARRIVAL]) for row in found} == {(4, 0, stamp_ms)}
        return found

    text = Topic(kafka_broker)
    text.send(line(1), "no json", None, timestamp=stamp_ms, headers=headers, key=b"\x00k")
    found = rows(text, metadata="about")
    assert [(row["v"], row[MALFORMED]) for row in found] == [
        (1, None),
        (None, "no json"),
        (None, "null"),
    ]
    about = found[0]["about"]
    assert (about.topic, about.offset, bytes(about.key)) == (text.name, 0, b"\x00k")
    assert about.headers == {"watermark": "1714557600000", "none": None}
    assert about.timestamp.timestamp() * 1_000 == stamp_ms

    plain = rows(text, format="columns", schema=None, event_time=None)
    assert bytes(plain[1]["value"]) == b"no json"
    assert plain[2]["value"] is None
    assert [(h.key, h.value and bytes(h.value)) for h in plain[0]["headers"]] == headers
    assert plain[0]["timestamp"].timestamp() * 1_000 == stamp_ms

    binary = Topic(kafka_broker)
    written = io.BytesIO()
    moment = datetime.fromtimestamp(stamp_ms / 1_000, UTC)
    fastavro.schemaless_writer(written, AVRO, {"ts": moment, "k": None, "v": 5})
    whole = written.getvalue()
    binary.send(whole, whole + b"x", whole[:3], timestamp=stamp_ms)
    decoded = rows(binary, format="avro", schema=AVRO)
    assert [(row["v"], row["k"], row[MALFORMED] is None) for row in decoded] == [
        (5, None, True),
        (None, None, False),
        (None, None, False),
    ]
    assert decoded[0]["ts"].timestamp() * 1_000 == stamp_ms
