"""A broker that does not answer, asked by one at a time: not every slot need wait for it."""

from __future__ import annotations

import threading
import time

from slackwater.errors import SinkUnavailableError
from slackwater.spark.kafka import client_calls


class Absence:
    """Remember that a broker was away, and let somebody look again every few seconds."""

    def __init__(self) -> None:
        self._error: SinkUnavailableError | None = None
        self._until = 0.0
        self._lock = threading.Lock()

    def admit(self) -> None:
        """Raise at once what others have found, unless it is time to look again."""
        with self._lock:
            if self._error is None:
                return
            now = time.monotonic()
            if now < self._until:
                raise SinkUnavailableError(str(self._error))
            # This one finds out for all: nobody else need wait until it knows.
            self._until = now + client_calls.CALL_S + client_calls.PAUSE_S

    def begins(self, error: SinkUnavailableError) -> None:
        """Take note that the broker did not answer."""
        with self._lock:
            self._error = error
            self._until = time.monotonic() + client_calls.PAUSE_S

    def ends(self) -> None:
        """Take note that it answers."""
        with self._lock:
            self._error = None
