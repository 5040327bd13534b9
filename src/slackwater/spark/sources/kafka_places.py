"""Which partitions a Kafka input has, where reading begins in each, and what is gone."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from slackwater.errors import SourceError
from slackwater.spark.kafka.hub import KafkaHub
from slackwater.spark.kafka.records import Partition, lost_error
from slackwater.spark.sources.kafka_offsets import PlannedOffsets

if TYPE_CHECKING:
    from slackwater.spark.sources.kafka import Kafka


@dataclass(frozen=True)
class Unread:
    """Say what of a partition is to be read: from `first` (`position`, or later after a loss)."""

    position: int
    first: int
    end: int
    lost: int = 0
    identity: str | None = None  # of a topic that took the place of a deleted one
    more: bool = False  # there is more behind the end

    @property
    def count(self) -> int:
        """Return how many offsets wait."""
        return max(0, self.end - self.first)


class KafkaPlaces:
    """Know the partitions of a description's topics, by the source's own numbers for them."""

    def __init__(self, description: Kafka, hub: KafkaHub, planned: PlannedOffsets) -> None:
        self.known: dict[int, Partition] = {}
        self.starts: dict[int, int] = {}
        self._description = description
        self._hub = hub
        self._planned = planned
        self._stops: dict[int, int] = {}  # where `follow=False` ends
        self._ends: dict[int, int] = {}  # as last seen
        self._partitions: dict[str, int] = {}
        self._asked: dict[str, Mapping[Any, Future[Any]]] = {}  # offsets by time

    @property
    def complete(self) -> bool:
        """Tell whether all topics are known."""
        return len(self._partitions) == len(self._description.topics)

    def discover(self) -> bool:
        """Take in partitions that are new; tell whether all topics are known."""
        for topic in self._description.topics:
            facts = self._hub.topic(topic)
            if facts is not None and facts.partitions > self._partitions.get(topic, 0):
                self._discover_topic(topic, facts.partitions, facts.identity)
        return self.complete

    def restore(self, committed: Mapping[int, int], state: Any) -> None:
        """Begin where a journal says; partitions that it does not know are new."""
        remembered = {} if state is None else dict(state["starts"])
        self.starts.update(remembered)
        before = {*remembered, *committed, *self._planned.at} - {-1}
        topics = {self._description.place(index)[0] for index in before}
        for index, place in self.known.items():
            if place[0] in topics and index not in before:
                bounds = self._hub.bounds(place)
                self.starts[index] = 0 if bounds is None else bounds[0]
        for topic in topics:
            self._partitions.setdefault(topic, 0)
            known = sum(1 for place in self.known.values() if place[0] == topic)
            self._partitions[topic] = known
        self.discover()

    def require_topics(self) -> None:
        """Refuse topics that the cluster does not have."""
        for topic in self._description.topics:
            if self._hub.missing(topic) and not self._expects(topic):
                raise SourceError(
                    f"topic {topic!r} does not exist at {self._description.settings.servers}: "
                    "create it, then deploy or resume the query"
                )

    def waits_for(self) -> str | None:
        """Say which topic is not there."""
        absent = [topic for topic in self._description.topics if self._hub.missing(topic)]
        return f"topic {absent[0]!r} does not exist" if absent else None

    def unread(self, index: int, positions: Mapping[int, int]) -> Unread:
        """Say what is to be read of a partition; raise where records are gone and missed."""
        place = self.known[index]
        position = positions.get(index, self.starts.get(index, 0))
        facts, bounds = self._hub.topic(place[0]), self._hub.bounds(place)
        if facts is None:
            self._require_skipping(place, position)
            return Unread(position, position, position)
        identity = self._planned.identities.setdefault(place[0], facts.identity)
        if identity != facts.identity:
            self._require_skipping(place, position)
            low, end = bounds or (0, 0)
            lost = max(0, self._ends.get(index, position) - position)
            return Unread(low, low, end, lost, facts.identity)
        if bounds is None:
            return Unread(position, position, position)
        low, end = bounds
        self._ends[index] = end
        end = min(end, self._stops.get(index, end))
        if low <= position:
            return Unread(position, position, end)
        if self._description.on_lost_data == "fail":
            raise lost_error(place, position, low)
        return Unread(position, low, max(end, low), low - position)

    def plannable(self, index: int, positions: Mapping[int, int]) -> Unread:
        """Say what of the unread can be planned now: the newest may be on its way still."""
        unread = self.unread(index, positions)
        end = self._hub.readable(self.known[index], unread.first, unread.end)
        return replace(unread, end=end, more=end < unread.end)

    def ended(self, index: int, until: int) -> bool:
        """Tell whether nothing is wanted behind an offset."""
        return index in self._stops and until >= self._stops[index]

    def _require_skipping(self, place: Partition, position: int) -> None:
        if self._description.on_lost_data == "fail":
            raise SourceError(
                f"topic {place[0]!r} was deleted: what it held from offset {position} on of "
                f"partition {place[1]} is gone: bring it back, or go on without it, and with what "
                "a topic of that name will hold, with kafka(..., on_lost_data='skip')"
            )

    def _expects(self, topic: str) -> bool:
        return self._description.on_lost_data == "skip" and topic in self._planned.identities

    def _discover_topic(self, topic: str, partitions: int, identity: str) -> None:
        """Take in a topic, or its new partitions, once all their offsets are known."""
        places = [(topic, partition) for partition in range(partitions)]
        bounds = {place: self._hub.bounds(place) for place in places}
        if any(bound is None for bound in bounds.values()):
            return
        lows = {place: bound[0] for place, bound in bounds.items() if bound is not None}
        ends = {place: bound[1] for place, bound in bounds.items() if bound is not None}
        new = topic not in self._partitions
        starts = self._first_starts(topic, lows, ends) if new else lows
        if starts is None:
            return
        self._planned.identities.setdefault(topic, identity)
        for place in places:
            index = self._description.index(place)
            if index not in self.known:
                self.known[index] = place
                self.starts.setdefault(index, starts[place])
                self._ends[index] = ends[place]
                if not self._description.follow:
                    self._stops[index] = ends[place]
        self._partitions[topic] = partitions

    def _first_starts(
        self, topic: str, lows: Mapping[Partition, int], ends: Mapping[Partition, int]
    ) -> Mapping[Partition, int] | None:
        """Say where to begin in a topic that was never read; None while that is being asked."""
        start = self._description.start
        if start == "earliest":
            return lows
        if start == "latest":
            return ends
        if isinstance(start, int):
            return self._starts_by_time(topic, start, ends)
        given = {self._description.place(index): offset for index, offset in start}
        return {place: given.get(place, low) for place, low in lows.items()}

    def _starts_by_time(
        self, topic: str, moment_ms: int, ends: Mapping[Partition, int]
    ) -> Mapping[Partition, int] | None:
        asked = self._asked.get(topic)
        if asked is None:
            self._asked[topic] = self._hub.ask_timestamp(list(ends), moment_ms)
            return None
        if not all(future.done() for future in asked.values()):
            return None
        found = {}
        for place, future in asked.items():
            if future.exception() is not None:
                del self._asked[topic]  # ask again
                return None
            offset = future.result().offset
            found[place.topic, place.partition] = offset
        return {place: at if (at := found[place]) >= 0 else end for place, end in ends.items()}
