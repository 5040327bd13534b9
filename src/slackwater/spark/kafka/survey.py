"""What a cluster says of topics and offsets, asked again and again by one client, never waiting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from slackwater.spark.kafka.records import READ_COMMITTED, Partition
from slackwater.spark.kafka.settings import KafkaSettings

ENDS_S: Final = 0.2
LOWS_S: Final = 1.0
TOPICS_S: Final = 1.0
_ANSWER_S: Final = 2.0  # how long an answer may take
_ABSENT_TIMES: Final = 3
SILENT_S: Final = 4.0  # without any answer for so long, the cluster counts as away


@dataclass(frozen=True)
class TopicFacts:
    """Know a topic; one that is deleted and made again has another identity."""

    partitions: int
    identity: str


@dataclass
class _Question:
    """Remember when to ask, and what is not answered yet."""

    every_s: float
    ask: Callable[[], Mapping[Any, Future[Any]]]
    take: Callable[[Any, Any], None]
    due: float = 0.0
    asked: Mapping[Any, Future[Any]] = field(default_factory=dict)


class Survey:
    """Know topics, and the first and last offsets of their partitions, as of a moment ago.

    `ends` are those of committed records under `read_committed`. `turn` asks what is due and takes
    in what was answered; nothing here waits. Times are those of a clock that is passed along.
    """

    def __init__(self, settings: KafkaSettings, isolation: str, now: float) -> None:
        self.topics: dict[str, TopicFacts | None] = {}  # None: it does not exist
        self.ends: dict[Partition, int] = {}
        self.lows: dict[Partition, int] = {}
        self.heard: float | None = None
        self._begun = now
        self._failure = ""
        self._settings = settings
        self._admin = AdminClient(settings.client())
        self._level = (
            IsolationLevel.READ_COMMITTED
            if isolation == READ_COMMITTED
            else IsolationLevel.READ_UNCOMMITTED
        )
        self._wanted: set[str] = set()
        self._absent: Counter[str] = Counter()  # how often in a row a topic was not there
        self._questions = (
            _Question(TOPICS_S, self._ask_topics, self._take_topic),
            _Question(ENDS_S, self._ask_ends, self._take_end),
            _Question(LOWS_S, self._ask_lows, self._take_low),
        )

    def follow(self, topics: set[str]) -> None:
        """Say which topics to know about; news of them come soon."""
        if topics - self._wanted:
            for question in self._questions:
                question.due = 0.0
        self._wanted = set(topics)
        for known in set(self.topics) - topics:
            del self.topics[known]

    def turn(self, now: float) -> bool:
        """Ask what is due, take in what was answered; return whether there was any answer."""
        news = False
        for question in self._questions:
            if question.asked and all(future.done() for future in question.asked.values()):
                for key, future in question.asked.items():
                    news |= self._answered(question, key, future, now)
                question.asked = {}
            if not question.asked and now >= question.due:
                question.asked = question.ask()
                if question.asked:
                    question.due = now + question.every_s
        return news

    def silence(self, now: float) -> str | None:
        """Say what is wrong where nothing was heard for long; None where all is well."""
        if not self._wanted or now - (self.heard or self._begun) < SILENT_S:
            return None
        reason = f" ({self._failure})" if self._failure else ""
        return f"Kafka at {self._settings.servers} does not answer{reason}"

    def ask_timestamp(
        self, places: list[Partition], moment_ms: int
    ) -> Mapping[TopicPartition, Future[Any]]:
        """Ask for the first offsets at or after a moment; -1 stands for the end."""
        spec = OffsetSpec.for_timestamp(moment_ms)
        return self._admin.list_offsets(
            {TopicPartition(*place): spec for place in places}, request_timeout=_ANSWER_S
        )

    def _answered(self, question: _Question, key: Any, future: Future[Any], now: float) -> bool:
        try:
            answer = future.result()
        except KafkaException as failure:
            error = failure.args[0]
            if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
                if isinstance(key, str):
                    self._absent[key] += 1
                    # A broker that just started may not know all of its topics yet.
                    if self.topics.get(key) is None or self._absent[key] >= _ABSENT_TIMES:
                        self.topics[key] = None
                        self._forget_offsets(key)
                self.heard = now
                return True
            self._failure = self._settings.told(error)
            return False
        question.take(key, answer)
        self.heard, self._failure = now, ""
        return True

    def _ask_topics(self) -> Mapping[Any, Future[Any]]:
        if not self._wanted:
            return {}
        names = TopicCollection(sorted(self._wanted))
        return self._admin.describe_topics(names, request_timeout=_ANSWER_S)

    def _take_topic(self, name: str, answer: Any) -> None:
        facts = TopicFacts(len(answer.partitions), str(answer.topic_id))
        before = self.topics.get(name)
        if before is not None and before.identity != facts.identity:
            self._forget_offsets(name)
        if before != facts:
            self._questions[1].due = self._questions[2].due = 0.0
        self.topics[name] = facts
        self._absent[name] = 0

    def _forget_offsets(self, topic: str) -> None:
        """Drop what was known of a topic that is gone, or another one by now."""
        for known in (self.ends, self.lows):
            for place in [place for place in known if place[0] == topic]:
                del known[place]

    def _ask_ends(self) -> Mapping[Any, Future[Any]]:
        return self._ask_offsets(OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def _take_end(self, place: TopicPartition, answer: Any) -> None:
        self.ends[place.topic, place.partition] = answer.offset

    def _ask_lows(self) -> Mapping[Any, Future[Any]]:
        return self._ask_offsets(OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def _take_low(self, place: TopicPartition, answer: Any) -> None:
        self.lows[place.topic, place.partition] = answer.offset

    def _ask_offsets(self, spec: OffsetSpec) -> Mapping[Any, Future[Any]]:
        places = [
            TopicPartition(name, partition)
            for name, facts in self.topics.items()
            if facts is not None
            for partition in range(facts.partitions)
        ]
        if not places:
            return {}
        return self._admin.list_offsets(
            dict.fromkeys(places, spec), isolation_level=self._level, request_timeout=_ANSWER_S
        )
