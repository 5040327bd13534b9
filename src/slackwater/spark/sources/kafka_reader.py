"""Plan what to read of topics, by what the hub knows of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from slackwater.progress.times import END_OF_TIME_MS
from slackwater.scheduling.choosing import fair_shares
from slackwater.spark.kafka.groups import GroupOffsets
from slackwater.spark.kafka.records import GUESSED_BYTES
from slackwater.spark.sources.base import (
    Range,
)
from slackwater.spark.sources.inline import JsonRecords
from slackwater.spark.sources.kafka_offsets import PlannedOffsets
from slackwater.spark.sources.kafka_places import KafkaPlaces, Unread
from slackwater.spark.sources.kafka_rows import FETCHED_BYTES, KafkaRows

if TYPE_CHECKING:
    from slackwater.spark.sources.kafka import Kafka

UNKNOWN_PARTITION: Final = -1  # stands for all of a topic that nothing is known of yet
_OPEN_S: Final = 5.0
_numbers = itertools.count()


class KafkaReader(KafkaRows):
    """Plan what to read of one or more topics."""

    def __init__(self, description: Kafka, records: JsonRecords) -> None:
        """Connect, and wait a little for the cluster's answer; it may also come later."""
        super().__init__(description, records)
        self._number = next(_numbers)
        self._planned = PlannedOffsets()
        self._quiet: dict[int, float] = {}  # since when a partition has nothing unread
        self._noticed: dict[int, float] = {}  # since when one has something that is not held
        self._hub.follow(self._number, description.topics)
        self._places = KafkaPlaces(description, self._hub, self._planned)
        self._group = (
            None
            if description.group is None
            else GroupOffsets(description.settings, description.group)
        )
        try:
            self._hub.wait_for(self._places.discover, _OPEN_S)
            self._places.require_topics()
        except BaseException:
            self.close()
            raise

    @property
    def lost(self) -> int:
        """Count the records that were gone before they could be read."""
        return self._planned.lost

    def waits_for(self) -> str | None:
        """Say what keeps the input away; None where nothing does."""
        return self._hub.trouble or self._places.waits_for()

    def restore(self, committed: Mapping[int, int], state: Any, ranges: Sequence[Range]) -> None:
        """Go on behind what was planned; what is pending is read again."""
        self._planned.restore(state, ranges)
        self._places.restore(committed, state)
        self._watch(committed, self._places.known)

    def state(self) -> Any:
        """Return the planned offsets, also those where reading is to begin."""
        return self._planned.state() | {"starts": sorted(self._places.starts.items())}

    def lags(self, positions: Mapping[int, int]) -> dict[str, int]:
        """Return how many offsets each partition is behind."""
        found = {}
        for index, (topic, partition) in self._places.known.items():
            found[f"{topic}/{partition}"] = self._places.unread(index, positions).count
        return found

    def origin(self, partition: int) -> tuple[str, int]:
        """Return the topic and partition behind a number."""
        return self._description.place(partition)

    def plan(self, positions: Mapping[int, int], now_ms: float, max_events: int) -> list[Range]:
        """Plan what has arrived: what is held in the driver exactly, more by its offsets."""
        self._places.discover()
        self._moved(positions)
        unread = {index: self._places.plannable(index, positions) for index in self._places.known}
        shares = fair_shares([each.count for each in unread.values()], max_events)
        pieces = [
            self._piece(index, each, share, now_ms)
            for (index, each), share in zip(unread.items(), shares, strict=True)
        ]
        for piece in pieces:
            self._planned.plan(piece)
        if not self._places.complete:
            pieces.append(Range(UNKNOWN_PARTITION, 0, 0, 0))
        elif UNKNOWN_PARTITION in positions:
            pieces.append(Range(UNKNOWN_PARTITION, 0, 0, 0, idle=True))
        return pieces

    def _piece(self, index: int, unread: Unread, share: int, now_ms: float) -> Range:
        place = self._places.known[index]
        until, events = unread.first + share, share
        span = (unread.first, unread.end)
        fitting = self._hub.fitting(place, span, share) if share else None
        if fitting is not None and (fitting[1] >= share or fitting[0] >= unread.end):
            until, events = fitting  # these are counted, not estimated
        detail: dict[str, Any] = {"topic": place[0], "partition": place[1], "now": int(now_ms)}
        if unread.lost:
            detail |= {"lost": unread.lost, "from": unread.first}
        if unread.identity is not None:
            detail["identity"] = unread.identity
        return Range(
            partition=index,
            first=unread.position,
            until=until,
            events=events,
            watermark_ms=END_OF_TIME_MS if self._places.ended(index, until) else None,
            idle=not unread.count and not unread.more and self._is_quiet(index, now_ms),
            detail=detail,
        )

    def oldest_arrival_ms(self, positions: Mapping[int, int], now_ms: float) -> float | None:
        """Return the time of the oldest record that is held, or when more was first noticed."""
        self._moved(positions)
        waiting: list[float] = []
        for index, place in self._places.known.items():
            unread = self._places.unread(index, positions)
            if not unread.count:
                self._noticed.pop(index, None)
                continue
            stamp_ms = self._hub.next_stamp_ms(place, unread.first)
            since_ms = self._noticed.setdefault(index, now_ms)
            waiting.append(since_ms if stamp_ms is None else min(float(stamp_ms), now_ms))
        return min(waiting, default=None)

    def available_one(self, now_ms: float) -> int:
        """Count the records planned, and the offsets that wait."""
        before = set(self._places.known)
        self._places.discover()
        if len(self._places.known) > len(before):
            self._watch(self._planned.at, self._places.known.keys() - before)
        waiting = 0
        for index in self._places.known:
            waiting += self._places.plannable(index, self._planned.at).count
            if self._places.unread(index, self._planned.at).count:
                self._quiet.pop(index, None)
            else:
                self._quiet.setdefault(index, now_ms)
        return self._planned.records + waiting

    def finished(self, positions: Mapping[int, int], now_ms: float) -> bool:
        """Tell whether all that was there is read, where nothing else was asked for."""
        return self._places.complete and all(
            self._places.ended(index, positions.get(index, -1)) for index in self._places.known
        )

    def clock_set(self, by_ms: float) -> None:
        """Take note that the machine's clock was set: no partition is quiet for longer by that."""
        for since_ms in (self._quiet, self._noticed):
            for index in since_ms:
                since_ms[index] += by_ms

    def most_records(self) -> int | None:
        """Return how many records fit a specification, while all that is unread will be held."""
        places, room = self._places.known.values(), self._description.inline_bytes
        if room < FETCHED_BYTES or not all(map(self._hub.keeps_up, places)):
            return None
        largest = max(map(self._hub.mean_bytes, places), default=0.0) or GUESSED_BYTES
        return max(1, int(room / largest))

    def close(self) -> None:
        """Let go of the cluster."""
        if self._group is not None:
            self._group.close()
        self._hub.release(self._number)

    def _moved(self, positions: Mapping[int, int]) -> None:
        """Take note of what is committed: it need not be held any more."""
        self._watch(positions, self._places.known)
        if self._group is not None:
            for index, place in self._places.known.items():
                if index in positions:
                    self._group.note(place, positions[index])

    def _watch(self, positions: Mapping[int, int], indexes: Iterable[int]) -> None:
        """Have records held from where the query stands."""
        for index in indexes:
            first = self._places.unread(index, positions).first
            self._hub.watch(self._number, self._places.known[index], first)

    def _is_quiet(self, index: int, now_ms: float) -> bool:
        if self._hub.trouble is not None:
            return False  # nobody can say that there is nothing
        since_ms = self._quiet.setdefault(index, now_ms)
        return now_ms - since_ms >= self._description.idle_after_ms
