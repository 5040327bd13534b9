"""Records as they come from Kafka, and reading exactly the ranges that were planned."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, Message, TopicPartition

from slackwater.errors import SourceError, UnavailableError
from slackwater.spark.kafka.settings import KafkaSettings

READ_COMMITTED: Final = "read_committed"
BATCH: Final = 5_000
_WAIT_S: Final = 0.02
NO_STAMP_MS: Final = -1
GUESSED_BYTES: Final = 300.0  # of a record, before the first was seen

Partition = tuple[str, int]  # (topic, partition)
Span = tuple[int, int]  # first offset, and the one after the last


Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(slots=True)
class Records:
    """Hold records of one partition column by column, by offset: plain values, quick to walk."""

    offsets: list[int] = field(default_factory=list)
    stamps_ms: list[int] = field(default_factory=list)  # as the producer or the broker gave them
    values: list[bytes | None] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)

    def __len__(self) -> int:
        """Count the records."""
        return len(self.offsets)

    @property
    def size(self) -> int:
        """Return about how many bytes they take."""
        return sum(map(len, filter(None, self.values))) + sum(map(len, filter(None, self.keys)))

    def take_over(self, message: Message) -> None:
        """Add what a client delivered."""
        kind, stamp_ms = message.timestamp()
        headers: Any = message.headers()
        self.offsets.append(message.offset() or 0)
        self.stamps_ms.append(NO_STAMP_MS if kind == TIMESTAMP_NOT_AVAILABLE else stamp_ms)
        self.values.append(message.value())
        self.keys.append(message.key())
        self.headers.append(() if not headers else tuple(headers))

    def extend(self, others: Records) -> None:
        """Add what comes behind."""
        self.offsets += others.offsets
        self.stamps_ms += others.stamps_ms
        self.values += others.values
        self.keys += others.keys
        self.headers += others.headers

    def rows(self) -> Iterator[tuple[int, int, bytes | None, bytes | None, Headers]]:
        """Walk over the records, one by one."""
        return zip(self.offsets, self.stamps_ms, self.values, self.keys, self.headers, strict=True)

    def between(self, begin: int, end: int) -> Records:
        """Return the records from one place to another."""
        return Records(
            self.offsets[begin:end],
            self.stamps_ms[begin:end],
            self.values[begin:end],
            self.keys[begin:end],
            self.headers[begin:end],
        )


def new_consumer(settings: KafkaSettings, isolation: str, **more: Any) -> Consumer:
    """Make a client that is told what to read, and never joins a group."""
    wanted: dict[str, Any] = {
        "group_id": "slackwater",  # must be given, and is not joined
        "isolation_level": isolation,
        "enable_auto_commit": False,
        "enable_auto_offset_store": False,
        "enable_partition_eof": True,
        "auto_offset_reset": "error",  # records that are gone must be noticed, not jumped over
        "fetch_wait_max_ms": 20,
    }
    return Consumer(settings.client(**{**wanted, **more}))


def read_spans(
    consumer: Consumer,
    spans: Mapping[Partition, Span],
    *,
    patience_s: float,
    skip_lost: bool,
) -> Iterator[tuple[Partition, Records]]:
    """Read exactly these records, partitions mixed, each partition in order.

    A span has ended when a record behind it comes, or the end of its partition: offsets may have
    gaps (transactions, compaction). Raises where records are gone or the broker is silent.
    """
    left = {place: span for place, span in spans.items() if span[0] < span[1]}
    consumer.assign([TopicPartition(*place, first) for place, (first, _) in left.items()])
    heard = time.monotonic()
    while left:
        # It waits until it has so many: not for more than there can be.
        most = min(BATCH, sum(until - first for first, until in left.values()))
        messages = consumer.consume(most, _WAIT_S)
        if messages:
            heard = time.monotonic()
        elif time.monotonic() - heard > patience_s:
            raise UnavailableError(f"Kafka does not deliver {_listed(left)}")
        found: defaultdict[Partition, Records] = defaultdict(Records)
        for message in messages:
            place = (message.topic() or "", message.partition() or 0)
            span = left.get(place)
            if span is None:
                continue  # read to its end already
            error = message.error()
            if error is None:
                following = (message.offset() or 0) + 1
                if following <= span[1]:
                    found[place].take_over(message)
                if following >= span[1]:
                    _finish(consumer, left, place)
                else:
                    left[place] = (following, span[1])
            elif error.code() == KafkaError._PARTITION_EOF:
                if (message.offset() or 0) >= span[1]:
                    _finish(consumer, left, place)
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                _begin_later(consumer, left, place, skip_lost=skip_lost)
            elif not error.retriable():
                raise SourceError(f"{_listed([place])} cannot be read: {error.str()}")
        yield from found.items()


def _finish(consumer: Consumer, left: dict[Partition, Span], place: Partition) -> None:
    del left[place]
    if left:
        consumer.incremental_unassign([TopicPartition(*place)])
    else:
        consumer.unassign()


def _begin_later(
    consumer: Consumer, left: dict[Partition, Span], place: Partition, *, skip_lost: bool
) -> None:
    first, until = left[place]
    if not skip_lost:
        raise lost_error(place, first, until)
    low, _ = consumer.get_watermark_offsets(TopicPartition(*place), timeout=10) or (until, until)
    consumer.incremental_unassign([TopicPartition(*place)])
    if low >= until or low <= first:
        del left[place]  # all gone, or the topic is another one by now
    else:
        left[place] = (low, until)
        consumer.incremental_assign([TopicPartition(*place, low)])


def lost_error(place: Partition, first: int, until: int) -> SourceError:
    """Say that records are gone before they were read, and what can be done."""
    topic, partition = place
    return SourceError(
        f"topic {topic!r}, partition {partition}: the records from offset {first} to {until} are "
        "gone (deleted, or past their retention) before they were read: bring them back, or go on "
        "without them with kafka(..., on_lost_data='skip')"
    )


def _listed(places: Iterable[Partition]) -> str:
    return ", ".join(f"{topic}/{partition}" for topic, partition in places)
