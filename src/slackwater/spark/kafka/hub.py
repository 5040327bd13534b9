"""One connection to a cluster for all queries of this process that read from it.

A thread of its own fetches the newest records of every partition that is watched, and asks for
offsets. Whoever plans and schedules only looks at what it has found, and never waits for a broker.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, ClassVar, Final

from confluent_kafka import Consumer, TopicPartition

from slackwater.spark.kafka.fetching import TailFetcher, WatchedPartition
from slackwater.spark.kafka.records import Partition, Records, Span, new_consumer, read_spans
from slackwater.spark.kafka.settings import KafkaSettings
from slackwater.spark.kafka.survey import Survey, TopicFacts
from slackwater.spark.kafka.tails import Tail

logger = logging.getLogger("slackwater")

_TURN_S: Final = 0.015
_PATIENCE_S: Final = 15.0


class KafkaHub:
    """Fetch, and know offsets, for all readers of one cluster; `of` finds or makes it."""

    _hubs: ClassVar[dict[tuple[KafkaSettings, str], KafkaHub]] = {}
    _registry: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, settings: KafkaSettings, isolation: str) -> None:
        self.settings = settings
        self.isolation = isolation
        self._users = 0
        self._topics: dict[int, frozenset[str]] = {}
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._fetching = threading.Lock()
        self._fetcher: Consumer | None = None
        self._fetcher_age = 0  # as the tails' client: both are replaced when a topic is
        self._survey = Survey(settings, isolation, time.monotonic())
        self._tails = TailFetcher(settings, isolation, self._survey)
        self._watched = self._tails.watched
        self._closed = threading.Event()
        self._trouble: str | None = None
        self._thread = threading.Thread(
            target=self._run, name=f"slackwater-kafka-{settings.servers}", daemon=True
        )
        self._thread.start()

    @classmethod
    def of(cls, settings: KafkaSettings, isolation: str) -> KafkaHub:
        """Find the hub of a cluster, or make it; `release` it when done."""
        with cls._registry:
            hub = cls._hubs.get((settings, isolation))
            if hub is None:
                hub = cls._hubs[settings, isolation] = cls(settings, isolation)
            hub._users += 1
            return hub

    def release(self, reader: int) -> None:
        """Stop watching for a reader; the last one closes the connection."""
        with self._lock:
            self._topics.pop(reader, None)
            for watched in self._watched.values():
                watched.readers.pop(reader, None)
        with self._registry:
            self._users -= 1
            if self._users:
                return
            del self._hubs[self.settings, self.isolation]
        self._closed.set()
        self._thread.join()
        self._tails.close()
        with self._fetching:
            if self._fetcher is not None:
                self._fetcher.close()

    @property
    def trouble(self) -> str | None:
        """Say what keeps the cluster from answering; None where it does."""
        return self._trouble

    def follow(self, reader: int, topics: Iterable[str]) -> None:
        """Ask for news of these topics from now on."""
        with self._lock:
            self._topics[reader] = frozenset(topics)

    def topic(self, name: str) -> TopicFacts | None:
        """Return what is known of a topic; None where nothing is, or it does not exist."""
        with self._lock:
            return self._survey.topics.get(name)

    def missing(self, name: str) -> bool:
        """Tell whether the cluster says that a topic does not exist."""
        with self._lock:
            return name in self._survey.topics and self._survey.topics[name] is None

    def bounds(self, place: Partition) -> Span | None:
        """Return the first offset that is still there and the one after the last; None: unknown."""
        with self._lock:
            low, end = self._survey.lows.get(place), self._survey.ends.get(place)
            if low is None or end is None:
                return None
            watched = self._watched.get(place)
            if watched is not None and watched.tail.until > watched.tail.first:
                end = max(end, watched.tail.until)
            return low, end

    def readable(self, place: Partition, first: int, end: int) -> int:
        """Return up to where to plan from `first`, of what ends at `end`.

        That is what is held already, where the rest is on its way: nothing is read twice.
        """
        with self._lock:
            watched = self._watched.get(place)
            if (
                watched is None
                or not watched.fetching
                or not watched.tail.first <= first <= watched.tail.until
            ):
                return end
            return min(end, watched.tail.until)

    def ask_timestamp(
        self, places: list[Partition], moment_ms: int
    ) -> Mapping[TopicPartition, Future[Any]]:
        """Ask for the first offsets at or after a moment; the answers come later."""
        return self._survey.ask_timestamp(places, moment_ms)

    def watch(self, reader: int, place: Partition, at: int) -> None:
        """Hold records of a partition from `at` on for a reader, which has no need of earlier."""
        with self._lock:
            watched = self._watched.get(place)
            if watched is None:
                watched = self._watched[place] = WatchedPartition(Tail(at))
            watched.readers[reader] = at

    def fitting(self, place: Partition, span: Span, most: int) -> tuple[int, int] | None:
        """Return how far up to `most` records held here reach, and how many; None: not held."""
        first, end = span
        with self._lock:
            watched = self._watched.get(place)
            if watched is None or not watched.tail.first <= first < watched.tail.until:
                return None
            return watched.tail.fitting(first, end, most)

    def next_stamp_ms(self, place: Partition, offset: int) -> int | None:
        """Return the time of the first record at or after an offset; None where it is not held."""
        with self._lock:
            watched = self._watched.get(place)
            if watched is None or watched.tail.first > offset:
                return None
            return watched.tail.next_stamp_ms(offset)

    def mean_bytes(self, place: Partition) -> float:
        """Return about how large records are; 0 where none was seen."""
        with self._lock:
            watched = self._watched.get(place)
            return 0.0 if watched is None else watched.tail.mean_bytes

    def keeps_up(self, place: Partition) -> bool:
        """Tell whether all that is unread of a partition is held, or on its way here."""
        with self._lock:
            watched = self._watched.get(place)
            return watched is not None and watched.fetching

    def held(self, place: Partition, first: int, until: int) -> bool:
        """Tell whether all records of a range are held here."""
        with self._lock:
            watched = self._watched.get(place)
            return watched is not None and watched.tail.covers(first, until)

    def read(self, place: Partition, first: int, until: int, *, skip_lost: bool) -> Records:
        """Return the records of a range: those held, or fetched now."""
        with self._lock:
            watched = self._watched.get(place)
            if watched is not None and watched.tail.covers(first, until):
                return watched.tail.take(first, until)
        with self._fetching:
            if self._fetcher is not None and self._fetcher_age != self._tails.renewals:
                self._fetcher.close()
                self._fetcher = None
            if self._fetcher is None:
                self._fetcher_age = self._tails.renewals
                self._fetcher = new_consumer(self.settings, self.isolation)
            found = Records()
            spans = {place: (first, until)}
            for _, records in read_spans(
                self._fetcher, spans, patience_s=_PATIENCE_S, skip_lost=skip_lost
            ):
                found.extend(records)
            return found

    def wait_for(self, known: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until something is known, but not for long."""
        with self._changed:
            return self._changed.wait_for(known, timeout_s)

    def _run(self) -> None:
        """Fetch and ask until closed; whatever fails is tried again."""
        while not self._closed.is_set():
            try:
                self._turn()
            except Exception as failure:
                logger.warning("reading ahead from Kafka failed: %s", self.settings.told(failure))
                self._closed.wait(1.0)

    def _turn(self) -> None:
        with self._lock:
            self._survey.follow(set().union(*self._topics.values()))
            news = self._survey.turn(time.monotonic())
            active = self._tails.reconcile()
        messages = self._tails.fetch(_TURN_S) if active else []
        if not active:
            self._closed.wait(_TURN_S)
        with self._lock:
            self._tails.sort_in(messages)
            self._tell(self._survey.silence(time.monotonic()))
            if messages or news:
                self._changed.notify_all()

    def _tell(self, trouble: str | None) -> None:
        """Say once that the cluster is away, and once that it is back."""
        if trouble is not None and self._trouble is None:
            logger.warning("%s: its queries wait, and nothing is lost", trouble)
        elif trouble is None and self._trouble is not None:
            logger.warning("Kafka at %s answers again: going on", self.settings.servers)
        self._trouble = trouble
