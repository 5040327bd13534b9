"""One owner: while the loop runs, its thread alone changes the fleet. Others ask it to.

Slots, transfers and users' threads hand over what is to be done, and may wait for the answer. While
nothing runs, whoever comes does it himself, one after the other.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from slackwater.errors import SlackwaterError

Answer = TypeVar("Answer")


class Inbox:
    """Hand work over to the thread that owns the fleet."""

    def __init__(self, wake: Callable[[], None] = lambda: None) -> None:
        """Begin without an owner; `wake` is called when there is work for it."""
        self.wake = wake
        self._lock = threading.RLock()  # held by who works while there is no owner
        self._owner: threading.Thread | None = None
        self._work: deque[Callable[[], None]] = deque()

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Let this thread be the owner meanwhile; it has to `work` off what comes in."""
        with self._lock:
            if self._owner is not None:
                raise SlackwaterError(
                    f"run() is running already, in the thread {self._owner.name!r}: stop() it first"
                )
            self._owner = threading.current_thread()
        try:
            yield
        finally:
            with self._lock:
                try:
                    self.work()
                finally:
                    self._owner = None

    def ended(self, limit_s: float) -> bool:
        """Wait until there is no owner, or for so long; tell whether there is none."""
        owner = self._owner
        if owner is None:
            return True
        if owner is threading.current_thread():
            raise SlackwaterError(
                "close() cannot be called by what run() calls: call stop(), and close() after it"
            )
        pause, waited_s = threading.Event(), 0.0
        while self._owner is not None and waited_s < limit_s:
            pause.wait(0.02)
            waited_s += 0.02
        return self._owner is None

    def work(self) -> None:
        """Do what was handed over so far. For the owner."""
        while self._work:
            self._work.popleft()()

    def post(self, act: Callable[[], object]) -> None:
        """Have something done, soon."""
        with self._lock:
            if self._mine():
                act()
                return
            self._work.append(lambda: (act(), None)[1])
        self.wake()

    def ask(self, act: Callable[[], Answer]) -> Answer:
        """Have something done, and wait for what it returns or raises."""
        answer: Future[Any] = Future()

        def work() -> None:
            try:
                answer.set_result(act())
            except BaseException as error:
                answer.set_exception(error)

        with self._lock:
            if self._mine():
                return act()
            self._work.append(work)
        self.wake()
        found: Answer = answer.result()
        return found

    def at_once(self, act: Callable[[], Answer]) -> Answer | None:
        """Do something here and now; None where it is for another thread to do."""
        if self._owner is not None and self._owner is not threading.current_thread():
            return None
        with self._lock:
            return act() if self._mine() else None

    def require_owner(self) -> None:
        """Refuse a thread that comes in by another way: that is a mistake in Slackwater."""
        owner = self._owner
        if owner is not None and owner is not threading.current_thread():
            raise RuntimeError(
                f"the thread {threading.current_thread().name!r} changes the fleet, which is for "
                f"{owner.name!r} alone to do: hand it over by the inbox"
            )

    def _mine(self) -> bool:
        return self._owner is None or self._owner is threading.current_thread()
