"""Drive topics as a scenario says: records made ahead, a second at a time, and sent when due."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from confluent_kafka import KafkaError, KafkaException, Producer

from slackwater.errors import SlackwaterError
from slackwater.spark.kafka.json_rows import json_objects
from slackwater.spark.kafka.topics import require_topic
from slackwater_lab.inject.scenario import Scenario, TopicPlan
from slackwater_lab.workloads.injected import EVENT_TIME, make_records

TICK_S: Final = 0.02
_AHEAD_RECORDS: Final = 4_096
_FLUSH_S: Final = 1.0
# A scenario may start in the past, and a topic with a retention would drop its records at once.
_KEPT: Final = {"retention.ms": "-1"}

Progress = Callable[["Sent"], None]
_Message = tuple[str, str, int]  # value, key, and arrival in milliseconds


@dataclass(frozen=True)
class SentTopic:
    """Say what one topic got; moments are milliseconds since 1970."""

    topic: str
    workload: str
    records: int
    bytes: int
    first_arrival_ms: int | None
    last_arrival_ms: int | None
    least_event_ms: int | None
    most_event_ms: int | None


@dataclass(frozen=True)
class Sent:
    """Say what a run has sent so far, and how far behind its scenario it was at most."""

    start_ms: int
    seconds: float
    behind_ms: float
    topics: tuple[SentTopic, ...]

    @property
    def records(self) -> int:
        """Count the records of all topics."""
        return sum(topic.records for topic in self.topics)

    def to_dict(self) -> dict[str, Any]:
        """Write it as JSON values."""
        return {**asdict(self), "records": self.records}


class _TopicFeed:
    """Hold the next records of one topic, ready to be sent."""

    def __init__(self, plan: TopicPlan, start_ms: int) -> None:
        self._plan = plan
        self._start_us = start_ms * 1_000
        self._made = 0
        self._messages: list[_Message] = []
        self._arrivals_us = np.empty(0, dtype=np.int64)
        self._place = 0
        self._bytes = self._sent = 0
        self._last_us: int | None = None
        self._events_us: tuple[int, int] | None = None

    @property
    def ended(self) -> bool:
        return self._place == len(self._messages) and self._made == self._plan.rates.records

    @property
    def next_us(self) -> int | None:
        """Tell when the next record is due."""
        self._refill()
        return None if self.ended else int(self._arrivals_us[self._place])

    def send(self, send: Callable[[str, list[_Message]], None], now_us: float) -> None:
        """Send what is due by now."""
        while True:
            self._refill()
            until = int(np.searchsorted(self._arrivals_us, now_us, side="right"))
            if until <= self._place:
                return
            messages = self._messages[self._place : until]
            send(self._plan.name, messages)
            self._sent += len(messages)
            self._bytes += sum(len(value) for value, _, _ in messages)
            self._last_us = int(self._arrivals_us[until - 1])
            self._place = until

    def _refill(self) -> None:
        """Make more records where all have been sent: enough that making them is cheap."""
        if self._place < len(self._messages) or self._made == self._plan.rates.records:
            return
        plan = self._plan
        until = min(plan.rates.records, self._made + _AHEAD_RECORDS)
        arrivals_us = self._start_us + plan.rates.arrivals_us(self._made, until)
        made = make_records(plan.workload, plan.delay, plan.seed, self._made, arrivals_us)
        values = json_objects(made.table).to_pylist()
        keys = made.table[plan.workload.key].cast("string").to_pylist()
        times_ms = (-(-arrivals_us // 1_000)).tolist()
        self._messages = list(zip(values, keys, times_ms, strict=True))
        events_us = made.table[EVENT_TIME].cast("int64").to_numpy()
        least, most = int(events_us.min()), int(events_us.max())
        if self._events_us is not None:
            least, most = min(least, self._events_us[0]), max(most, self._events_us[1])
        self._events_us = (least, most)
        self._arrivals_us, self._made, self._place = arrivals_us, until, 0

    def sent(self) -> SentTopic:
        """Say what has been sent."""
        none = self._sent == 0
        first_us = self._start_us + int(self._plan.rates.arrivals_us(0, 1)[0])
        return SentTopic(
            topic=self._plan.name,
            workload=self._plan.workload.name,
            records=self._sent,
            bytes=self._bytes,
            first_arrival_ms=None if none else -(-first_us // 1_000),
            last_arrival_ms=None if self._last_us is None else -(-self._last_us // 1_000),
            least_event_ms=None if self._events_us is None else self._events_us[0] // 1_000,
            most_event_ms=None if self._events_us is None else self._events_us[1] // 1_000,
        )


class Injector:
    """Send a scenario's records, all of them and each once, in order, however the broker fares."""

    def __init__(self, scenario: Scenario) -> None:
        """Make the topics that do not exist."""
        self._scenario = scenario
        self._failure: KafkaError | None = None
        try:
            for topic in scenario.topics:
                require_topic(scenario.settings, topic.name, _KEPT, topic.partitions)
            self._producer = Producer(
                scenario.settings.client(
                    enable_idempotence=True,
                    delivery_report_only_error=True,
                    message_timeout_ms=0,  # a broker that is away comes back
                    linger_ms=10,
                    partitioner="murmur2_random",
                )
            )
        except KafkaException as failure:
            raise self._error(failure) from failure

    def run(self, progress: Progress = lambda sent: None, every_s: float = 1.0) -> Sent:
        """Send all records, and return once the broker has them."""
        scenario = self._scenario
        start_ms = scenario.start_ms
        if start_ms is None:
            start_ms = int(time.time() * 1_000) + 100
        feeds = [_TopicFeed(plan, start_ms) for plan in scenario.topics]
        began, told, behind_ms = time.monotonic(), time.monotonic(), 0.0

        def sent() -> Sent:
            topics = tuple(feed.sent() for feed in feeds)
            return Sent(start_ms, round(time.monotonic() - began, 3), round(behind_ms, 1), topics)

        try:
            while not all(feed.ended for feed in feeds):
                now_us = time.time() * 1e6 if scenario.paced else float("inf")
                if scenario.paced:
                    dues = [due for feed in feeds if (due := feed.next_us) is not None]
                    behind_ms = max(behind_ms, (now_us - min(dues)) / 1_000)
                for feed in feeds:
                    feed.send(self._send, now_us)
                self._serve(0.0)
                if time.monotonic() - told >= every_s:
                    told = time.monotonic()
                    progress(sent())
                if scenario.paced:
                    time.sleep(max(0.0, TICK_S - (time.time() - now_us / 1e6)))
            while self._producer.flush(_FLUSH_S):
                self._check()
            self._check()
        except KafkaException as failure:
            raise self._error(failure) from failure
        return sent()

    def _send(self, topic: str, messages: list[_Message]) -> None:
        """Put records into the producer's queue; where that is full, let it send first."""
        produce, delivered = self._producer.produce, self._delivered
        for value, key, at_ms in messages:
            while True:
                try:
                    produce(topic, value, key, on_delivery=delivered, timestamp=at_ms)
                    break
                except BufferError:
                    self._serve()

    def _serve(self, wait_s: float = 0.05) -> None:
        self._producer.poll(wait_s)
        self._check()

    def _check(self) -> None:
        if self._failure is not None:
            raise KafkaException(self._failure)

    def _delivered(self, error: KafkaError | None, message: object) -> None:
        self._failure = self._failure or error

    def _error(self, failure: KafkaException) -> SlackwaterError:
        settings = self._scenario.settings
        told = settings.told(failure.args[0])
        return SlackwaterError(f"cannot write to {settings.servers}: {told}")


def inject(scenario: Scenario, progress: Progress = lambda sent: None) -> Sent:
    """Send all records of a scenario."""
    return Injector(scenario).run(progress)
