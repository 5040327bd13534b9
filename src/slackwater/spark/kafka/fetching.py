"""Fetch the newest records of partitions ahead of their queries, into tails."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from slackwater.spark.kafka.records import Partition, Records, new_consumer
from slackwater.spark.kafka.settings import KafkaSettings
from slackwater.spark.kafka.survey import Survey
from slackwater.spark.kafka.tails import Tail

TAILS_BYTES: Final = 268_435_456  # held in the driver, for all partitions of a cluster together
_LEAST_BYTES: Final = 1_048_576  # for each partition, however many there are
_BATCH: Final = 10_000
_PREFETCH_KB: Final = 16_384
_FETCH_BYTES: Final = 262_144  # or 20 ms: an answer for every few records would cost the broker


@dataclass
class WatchedPartition:
    """Know who reads a partition, each from where, and what is held of it."""

    tail: Tail
    readers: dict[int, int] = field(default_factory=dict)  # reader -> next offset it needs
    assigned: bool = False
    paused: bool = False
    stalled: bool = False  # the client found no record at the offset it was told
    far: bool = False  # there is more than can be held: executors read it, and nobody twice
    identity: str = ""  # of the topic that the tail is of

    @property
    def fetching(self) -> bool:
        """Tell whether more is on its way, or is about to be."""
        return not self.paused and not self.stalled and not self.far


class TailFetcher:
    """Keep one client assigned to what is watched. `fetch` waits; all else returns at once."""

    def __init__(self, settings: KafkaSettings, isolation: str, survey: Survey) -> None:
        self.watched: dict[Partition, WatchedPartition] = {}
        self.renewals = 0  # how often the client had to be replaced
        self._settings = settings
        self._isolation = isolation
        self._survey = survey
        self._consumer = self._new_consumer()

    def fetch(self, timeout_s: float) -> list[Message]:
        """Wait for what comes in, but not for long."""
        return self._consumer.consume(_BATCH, timeout_s)

    def sort_in(self, messages: list[Message]) -> None:
        """Put what came in into the tails."""
        found: defaultdict[Partition, Records] = defaultdict(Records)
        for message in messages:
            place = (message.topic() or "", message.partition() or 0)
            error = message.error()
            if error is None:
                found[place].take_over(message)
                continue
            watched = self.watched.get(place)
            if watched is None:
                continue
            if error.code() == KafkaError._PARTITION_EOF:
                self._extend(place, found.pop(place, Records()))
                if message.offset() is not None and not watched.stalled:
                    watched.tail.reached(message.offset() or 0)
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                watched.stalled = True
        for place, records in found.items():
            self._extend(place, records)

    def reconcile(self) -> bool:
        """Bring the client in line with what is wanted; tell whether it has anything to fetch."""
        if any(self._replaced(place, watched) for place, watched in self.watched.items()):
            self._begin_anew()
        room = max(_LEAST_BYTES, TAILS_BYTES // max(1, len(self.watched)))
        for place, watched in list(self.watched.items()):
            if not watched.readers:
                self._unassign(place, watched)
                del self.watched[place]
            else:
                self._reconcile_one(place, watched, room)
        return any(watched.assigned for watched in self.watched.values())

    def close(self) -> None:
        """Disconnect."""
        self._consumer.close()

    def _reconcile_one(self, place: Partition, watched: WatchedPartition, room: int) -> None:
        facts = self._survey.topics.get(place[0])
        tail, needed = watched.tail, min(watched.readers.values())
        tail.drop_below(needed)
        misplaced = needed > tail.until or needed < tail.first == tail.until
        if watched.stalled:  # until its reader has seen that records are gone
            misplaced = self._there(place, needed)
        if misplaced:
            self._unassign(place, watched)
            tail.restart(needed)
            watched.paused = watched.stalled = False
        if facts is None:
            return
        watched.identity = facts.identity
        behind = self._survey.ends.get(place, 0) - max(needed, tail.until)
        size = behind * tail.stored_bytes + tail.held_bytes
        watched.far = size > (room // 2 if watched.far else room)
        if watched.far:
            self._unassign(place, watched)
            return
        if not watched.assigned:
            self._consumer.incremental_assign([TopicPartition(*place, tail.until)])
            watched.assigned = True
        full = tail.held_bytes > (room // 2 if watched.paused else room)
        if watched.paused != full:
            change = self._consumer.pause if full else self._consumer.resume
            change([TopicPartition(*place)])
            watched.paused = full

    def _extend(self, place: Partition, records: Records) -> None:
        watched = self.watched.get(place)
        if watched is not None and watched.assigned:
            watched.tail.extend(records)

    def _unassign(self, place: Partition, watched: WatchedPartition) -> None:
        if watched.assigned:
            self._consumer.incremental_unassign([TopicPartition(*place)])
            watched.assigned = False

    def _replaced(self, place: Partition, watched: WatchedPartition) -> bool:
        facts = self._survey.topics.get(place[0])
        return facts is not None and watched.identity not in ("", facts.identity)

    def _begin_anew(self) -> None:
        """Connect anew: a client holds on to what it knew of a topic that is another one by now."""
        self._consumer.close()
        self._consumer = self._new_consumer()
        self.renewals += 1
        for watched in self.watched.values():
            watched.tail.restart(min(watched.readers.values(), default=watched.tail.first))
            watched.identity, watched.assigned = "", False
            watched.paused = watched.stalled = watched.far = False

    def _there(self, place: Partition, offset: int) -> bool:
        low, end = self._survey.lows.get(place), self._survey.ends.get(place)
        return low is not None and end is not None and low <= offset <= end

    def _new_consumer(self) -> Consumer:
        return new_consumer(
            self._settings,
            self._isolation,
            queued_max_messages_kbytes=_PREFETCH_KB,
            fetch_min_bytes=_FETCH_BYTES,
        )
