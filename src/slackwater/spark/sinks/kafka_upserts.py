"""Panes into a compacted topic, whose last record for a key is the newest: at least once."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from slackwater.errors import SinkError, SinkUnavailableError
from slackwater.spark.kafka import client_calls
from slackwater.spark.kafka.absence import Absence
from slackwater.spark.kafka.client_calls import produce, timed_out
from slackwater.spark.kafka.failures import sink_error
from slackwater.spark.kafka.reading_back import committed_records
from slackwater.spark.kafka.settings import KafkaSettings
from slackwater.spark.kafka.topics import COMPACTED, require_topic
from slackwater.spark.sinks.base import RETRACTED, SinkWriter, StepPanes
from slackwater.spark.sinks.kafka_records import (
    Headers,
    PaneRecord,
    header_moments,
    pane_records,
    require_columns,
    require_unique,
    require_unique_frame,
    require_window_keys,
)
from slackwater.spark.sinks.pane_tables import RecentPanes, window_keys
from slackwater.spark.sinks.spilled import SpilledPanes

logger = logging.getLogger("slackwater")


class UpsertWriter(SinkWriter):
    """Send each row under a key of its own, and wait until the brokers have it.

    A pane that is sent again after a crash, or after a failure halfway, puts the same records in
    the place of those that are there.
    """

    def __init__(self, settings: KafkaSettings, topic: str, key: tuple[str, ...]) -> None:
        self._settings = settings
        self._topic = topic
        self._key = key
        self._place = f"topic {topic}"
        self._recent = RecentPanes()
        self._producer: Producer | None = None
        self._closed = False
        self._failure: KafkaError | None = None
        self._lock = threading.Lock()
        self._absence = Absence()

    def connect(self) -> None:
        """See now, if the broker answers, whether the topic can be written."""
        with self._lock:
            try:
                self._connected()
            except SinkUnavailableError as failure:
                logger.warning("%s; panes wait for it", failure)

    def admit(self, schema: pa.Schema) -> None:
        """Refuse columns without those of the key."""
        require_columns(schema.names, self._key, self._place)
        require_window_keys(schema, self._key, self._place)

    def write(self, panes: pa.Table, lane: int) -> None:
        """Send the panes that this process has not sent yet."""
        self._absence.admit()
        require_columns(panes.column_names, self._key, self._place)
        require_unique(panes, self._key, self._place)
        self._publish(panes)

    def stage(self, lane: int) -> StepPanes:
        """Look at the keys of each piece by itself: no two pieces are of one window."""
        self._absence.admit()
        return SpilledPanes(
            self._publish,
            check=lambda panes: require_unique(panes, self._key, self._place),
            check_frame=lambda frame: require_unique_frame(frame, self._key, self._place),
        )

    def _publish(self, panes: pa.Table) -> None:
        with self._lock, self._watched():
            fresh, new, sent = self._recent.leave_out(panes)
            if new:
                for query, start in _windows_gone(fresh):
                    self._send(self._tombstones(query, start))
                self._send(pane_records(fresh, self._key, self._place, tombstones=True))
                self._recent.add(sent)

    def close(self) -> None:
        """Give the producer up."""
        with self._lock:
            self._closed = True
            self._discard()

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Take note of whether the broker answers."""
        try:
            yield
        except SinkUnavailableError as failure:
            self._absence.begins(failure)
            raise
        self._absence.ends()

    def _tombstones(self, query: str, start: str) -> list[PaneRecord]:
        """Find what there is of a window that has been taken back whole, in the topic itself."""
        self._connected()
        window: Headers = [("query", query.encode()), ("window_start", start.encode())]
        try:
            found = [
                record
                for record in committed_records(self._settings, self._topic)
                if list(record.headers() or [])[:2] == window
            ]
        except KafkaException as failure:
            raise sink_error(failure, self._settings, self._place) from failure
        last = {record.key() or b"": record for record in found}
        return [
            PaneRecord(key, None, [*window])
            for key, record in last.items()
            if record.value() is not None
        ]

    def _send(self, records: Iterable[PaneRecord]) -> None:
        """Send records, and return when all of them are durable."""
        producer = self._connected()
        self._failure = None
        try:
            for record in records:
                produce(
                    producer,
                    self._topic,
                    record.value,
                    record.key,
                    headers=record.headers,
                    on_delivery=self._delivered,
                )
            left = producer.flush(client_calls.CALL_S)
            if self._failure is not None:
                raise KafkaException(self._failure)
            if left:
                raise timed_out()
        except KafkaException as failure:
            # What is under way could be sent much later, behind newer panes: it must not be.
            self._discard()
            raise sink_error(failure, self._settings, self._place) from failure

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and self._failure is None:
            self._failure = error

    def _connected(self) -> Producer:
        if self._closed:
            raise SinkError(f"the writer of {self._place} is closed: open the sink again")
        if self._producer is None:
            try:
                require_topic(self._settings, self._topic, COMPACTED)
                self._producer = Producer(
                    self._settings.client(
                        enable_idempotence=True,
                        delivery_report_only_error=True,
                        partitioner="murmur2_random",  # as Java's clients do
                    )
                )
            except KafkaException as failure:
                raise sink_error(failure, self._settings, self._place) from failure
        return self._producer

    def _discard(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()


def _windows_gone(panes: pa.Table) -> list[tuple[str, str]]:
    """List the windows of which no row is left; those of single keys are told by their own rows."""
    if window_keys(panes.schema):
        return []
    gone = panes.filter(pc.equal(panes["timing"], RETRACTED))
    return list(zip(gone["query"].to_pylist(), header_moments(gone), strict=True))
