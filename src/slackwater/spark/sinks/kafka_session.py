"""One transactional producer, from taking a topic over from its predecessors to its own end."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from confluent_kafka import Producer

from slackwater.errors import SinkError
from slackwater.spark.kafka import client_calls
from slackwater.spark.kafka.client_calls import produce
from slackwater.spark.kafka.reading_back import committed_records
from slackwater.spark.kafka.settings import KafkaSettings
from slackwater.spark.kafka.topics import COMPACTED, require_config, require_topic
from slackwater.spark.sinks.kafka_records import PaneRecord
from slackwater.spark.sinks.kafka_written import OWNER, WrittenPanes
from slackwater.spark.sinks.pane_tables import PaneKey

# A dead writer's last transaction holds readers back for so long, unless it is started again.
TRANSACTION_S: Final = 120


class TransactionSession:
    """Write to a topic in transactions that also say, in a topic beside it, what they held.

    Opening it ends the unfinished transaction of whoever wrote under this name before, and shuts
    that one out. What the topic has is read only then, so nothing can be added behind our back.
    """

    def __init__(
        self, settings: KafkaSettings, topic: str, writer: str, *, owner: str, resumed: bool
    ) -> None:
        """Take over as `owner`; where that is `resumed`, only if nobody else has taken over since.

        A producer that was away too long is refused just like one that was shut out. Only the
        topic of panes can tell the two apart.
        """
        self._topic = topic
        self._control = f"{writer}.panes"
        self._settings = settings
        self._place = f"topic {self._control}"
        require_topic(settings, topic)
        if not require_topic(settings, self._control, COMPACTED, partitions=1):
            require_config(settings, self._control, COMPACTED)
        if resumed:
            self._require_owner(owner, writer)
        self._producer = Producer(
            settings.client(
                transactional_id=f"slackwater.{writer}",
                transaction_timeout_ms=TRANSACTION_S * 1_000,
                partitioner="murmur2_random",  # as Java's clients do
            )
        )
        self._producer.init_transactions(client_calls.CALL_S)
        self.written = self._read_back()
        self._producer.begin_transaction()
        self._producer.produce(self._control, owner.encode(), OWNER, 0)
        self._producer.commit_transaction(client_calls.CALL_S)

    def begin(self) -> None:
        """Begin a transaction."""
        self._producer.begin_transaction()

    def produce(self, records: Iterable[PaneRecord]) -> None:
        """Add records to the transaction."""
        for record in records:
            produce(self._producer, self._topic, record.value, record.key, headers=record.headers)

    def commit(self, panes: Collection[PaneKey], sent: Collection[PaneKey]) -> None:
        """End the transaction, with these panes in it; `sent` are also those it left out."""
        for key, value in self.written.records(panes, sent):
            produce(self._producer, self._control, value, key, partition=0)
        self._producer.commit_transaction(client_calls.CALL_S)
        self.written.add(panes, sent)

    def abort(self) -> None:
        """End the transaction as if it had never been."""
        self._producer.abort_transaction(client_calls.CALL_S)

    def close(self) -> None:
        """Give the producer up; a transaction that it leaves is ended by the next session."""
        self._producer.purge()

    def _require_owner(self, owner: str, writer: str) -> None:
        if self._read_back().owner != owner:
            raise SinkError(
                f"another runtime has taken over topic {self._topic}: stop one of the two, or "
                f"give each a name of its own (this one is writer={writer!r})"
            )

    def _read_back(self) -> WrittenPanes:
        """Read the whole topic of panes, as far as it is committed."""
        written = WrittenPanes()
        for record in committed_records(self._settings, self._control):
            written.read(record.key() or b"", record.value(), self._place)
        return written
