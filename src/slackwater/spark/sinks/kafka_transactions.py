"""Panes into a topic in transactions: readers under read_committed see each exactly once."""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from slackwater.errors import SinkError, SinkUnavailableError
from slackwater.spark.kafka.absence import Absence
from slackwater.spark.kafka.failures import sink_error, unreachable, unsure
from slackwater.spark.kafka.settings import KafkaSettings
from slackwater.spark.sinks.base import SinkWriter
from slackwater.spark.sinks.kafka_records import pane_records, require_columns
from slackwater.spark.sinks.kafka_session import TransactionSession
from slackwater.spark.sinks.kafka_written import WrittenPanes, remembered
from slackwater.spark.sinks.pane_tables import PaneKey, fresh_panes, window_keys

logger = logging.getLogger("slackwater")


class _Turn:
    """Hold one call's panes until they are in a transaction."""

    def __init__(self, panes: pa.Table) -> None:
        self.panes = panes
        self.done = False
        self.error: BaseException | None = None


class TransactionalWriter(SinkWriter):
    """Write panes in transactions, one at a time; what waits meanwhile goes into the next together.

    There is one producer, whatever the number of lanes: so whoever starts next shuts out all of
    its predecessor. A failure that leaves a transaction in doubt ends the session, and the next
    write begins as after a crash: by reading which panes are there.
    """

    def __init__(
        self, settings: KafkaSettings, topic: str, key: tuple[str, ...], writer: str
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._key = key
        self._writer = writer
        self._place = f"topic {topic}"
        self._session: TransactionSession | None = None
        self._name = uuid.uuid4().hex
        self._owned = False
        self._closed = False
        self._producing = threading.Lock()
        self._queueing = threading.Lock()
        self._waiting: list[_Turn] = []
        self._absence = Absence()

    def connect(self) -> None:
        """Open the session now, if the broker answers, so that the first pane need not wait."""
        with self._producing:
            try:
                self._connected()
            except SinkUnavailableError as failure:
                logger.warning("%s; panes wait for it", failure)

    def write(self, panes: pa.Table, lane: int) -> None:
        """Write the panes that are not there yet, in one transaction."""
        self._absence.admit()
        turn = _Turn(panes)
        with self._queueing:
            self._waiting.append(turn)
        with self._producing:
            if not turn.done:
                with self._queueing:
                    turns, self._waiting = self._waiting, []
                self._write_together(turns)
        if turn.error is not None:
            raise turn.error

    def admit(self, schema: pa.Schema) -> None:
        """Refuse columns without those of the key."""
        require_columns(schema.names, self._key, self._place)

    def close(self) -> None:
        """Give the topic up."""
        with self._producing:
            self._closed = True
            self._end_session()

    def _write_together(self, turns: list[_Turn]) -> None:
        """Commit several calls at once; where that fails for what one holds, each by itself."""
        try:
            self._commit([turn.panes for turn in turns])
            self._absence.ends()
        except SinkUnavailableError as failure:
            self._absence.begins(failure)
            for turn in turns:
                turn.error = failure
        except BaseException as failure:
            if len(turns) > 1:
                for turn in turns:
                    self._write_together([turn])
            else:
                turns[0].error = failure
        for turn in turns:
            turn.done = True

    def _commit(self, tables: Iterable[pa.Table]) -> None:
        session = self._connected()
        written: set[PaneKey] = set()
        sent: set[PaneKey] = set()
        new: list[pa.Table] = []
        for table in tables:
            name = partial(remembered, window_keys=window_keys(table.schema))
            fresh, names, all_names = fresh_panes(
                table, _known(name, session.written, frozenset(written))
            )
            new.append(fresh)
            written.update(map(name, names))
            sent.update(map(name, all_names))
        if not written:
            return
        with self._transaction(session):
            for fresh in new:
                session.produce(pane_records(fresh, self._key, self._place))
            session.commit(written, sent)

    @contextlib.contextmanager
    def _transaction(self, session: TransactionSession) -> Iterator[None]:
        """Begin a transaction, and see to it that it never stays open."""
        try:
            session.begin()
            yield
        except KafkaException as failure:
            self._recover(session, failure)
            raise sink_error(failure, self._settings, self._place) from failure
        except BaseException:
            self._abort(session)
            raise

    def _recover(self, session: TransactionSession, failure: KafkaException) -> None:
        """Keep the session where the transaction can surely be taken back."""
        error = failure.args[0]
        if isinstance(error, KafkaError) and not (
            error.fatal() or unreachable(error) or unsure(error)
        ):
            self._abort(session)
        else:
            self._end_session()

    def _abort(self, session: TransactionSession) -> None:
        try:
            session.abort()
        except KafkaException:
            self._end_session()

    def _connected(self) -> TransactionSession:
        if self._closed:
            raise SinkError(f"the writer of {self._place} is closed: open the sink again")
        if self._session is None:
            try:
                self._session = TransactionSession(
                    self._settings,
                    self._topic,
                    self._writer,
                    owner=self._name,
                    resumed=self._owned,
                )
            except KafkaException as failure:
                raise sink_error(failure, self._settings, self._place) from failure
            self._owned = True
        return self._session

    def _end_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()


def _known(
    name: Callable[[PaneKey], PaneKey], written: WrittenPanes, about_to_be: frozenset[PaneKey]
) -> Callable[[PaneKey], bool]:
    """Make a test of whether a pane is written, by the name that it is remembered under."""
    return lambda pane: written.has(name(pane)) or name(pane) in about_to_be
