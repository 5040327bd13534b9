"""Committed offsets of a consumer group, for tools that watch lag; nothing ever reads them back."""

from __future__ import annotations

import logging
import time
from typing import Final

from confluent_kafka import KafkaException, TopicPartition

from slackwater.spark.kafka.records import READ_COMMITTED, Partition, new_consumer
from slackwater.spark.kafka.settings import KafkaSettings

logger = logging.getLogger("slackwater")

_EVERY_S: Final = 2.0


class GroupOffsets:
    """Tell a group's offsets to the broker now and then, without waiting for it."""

    def __init__(self, settings: KafkaSettings, group: str) -> None:
        self._settings = settings
        self._group = group
        self._consumer = new_consumer(settings, READ_COMMITTED, group_id=group)
        self._noted: dict[Partition, int] = {}
        self._told: dict[Partition, int] = {}
        self._due = 0.0

    def note(self, place: Partition, offset: int) -> None:
        """Remember where reading stands; it is told within seconds, or at the end."""
        self._noted[place] = offset
        if time.monotonic() >= self._due:
            self._tell(wait=False)

    def close(self) -> None:
        """Tell the last offsets."""
        self._tell(wait=True)
        self._consumer.close()

    def _tell(self, *, wait: bool) -> None:
        self._due = time.monotonic() + _EVERY_S
        news = [
            TopicPartition(*place, offset)
            for place, offset in self._noted.items()
            if self._told.get(place) != offset
        ]
        if not news:
            return
        try:
            if wait:
                self._consumer.commit(offsets=news, asynchronous=False)
            else:
                self._consumer.commit(offsets=news, asynchronous=True)
            self._told = dict(self._noted)
        except KafkaException as failure:
            logger.info(
                "the offsets of group %s could not be told: %s",
                self._group,
                self._settings.told(failure.args[0]),
            )
