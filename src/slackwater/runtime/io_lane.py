"""One lane for all transfers of window state between memory and storage, in order of urgency.

A transfer has three parts. Encoding (*prepare*) and decoding (*finish*) need processors and run
side by side; the *transfer* itself needs the storage, and one after the other goes through the
lane: what a function waits for first, what frees memory later. So a large destaging is not in the
way of a small staging for longer than one file.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from enum import IntEnum
from typing import Any

logger = logging.getLogger("slackwater")


class Urgency(IntEnum):
    """Say which transfers go first."""

    PRESTAGE = 0
    LATE_WRITE = 1
    DESTAGE = 2
    COMPACT = 3


class _Transfer:
    def __init__(
        self,
        prepare: Callable[[], Any],
        transfer: Callable[[Any], Any],
        finish: Callable[[Any], None],
    ) -> None:
        self.prepare, self.transfer, self.finish = prepare, transfer, finish
        self.value: Any = None
        self.future: Future[None] = Future()


_Entry = tuple[int, int, _Transfer]  # urgency, number, what


class IoLane:
    """Carry out transfers. `lanes` above 1 gives up the order, for comparison."""

    def __init__(self, *, workers: int = 2, lanes: int = 1) -> None:
        """Start the threads."""
        self._ordered = lanes == 1
        self._changed = threading.Condition()
        self._numbers = itertools.count()
        self._waiting: list[_Entry] = []
        self._prepared: list[_Entry] = []
        self._transferred: list[_Entry] = []
        self._preparing = self._open = 0
        self._room = workers + lanes  # encoded content that waits takes memory too
        self._closing = False
        self._threads = [
            threading.Thread(target=target, name=f"slackwater-{name}", daemon=True)
            for target, name, count in (
                (self._work, "codec", workers),
                (self._carry, "lane", lanes),
            )
            for _ in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def submit(
        self,
        urgency: Urgency,
        prepare: Callable[[], Any],
        transfer: Callable[[Any], Any],
        finish: Callable[[Any], None],
    ) -> Future[None]:
        """Queue a transfer; each part gets what the one before returned."""
        rank = int(urgency) if self._ordered else len(Urgency)
        entry = (rank, next(self._numbers), _Transfer(prepare, transfer, finish))
        with self._changed:
            if self._closing:
                entry[2].future.cancel()
                return entry[2].future
            self._open += 1
            heapq.heappush(self._waiting, entry)
            self._changed.notify_all()
        return entry[2].future

    @property
    def backlog(self) -> int:
        """Count the transfers that have not ended."""
        return self._open

    @property
    def ready(self) -> int:
        """Count the transfers that wait for nothing but the lane."""
        return len(self._prepared)

    def settle(self) -> None:
        """Return once nothing is under way."""
        with self._changed:
            self._changed.wait_for(lambda: self._open == 0)

    def close(self, limit_s: float = math.inf) -> bool:
        """End after the transfers that have begun; those that only wait are given up.

        Wait for them so long at most, and tell whether all have ended.
        """
        with self._changed:
            self._closing = True
            for _, _, transfer in self._waiting:
                transfer.future.cancel()
            self._open -= len(self._waiting)
            self._waiting.clear()
            self._changed.notify_all()
        until_s = time.monotonic() + limit_s
        for thread in self._threads:
            thread.join(None if math.isinf(limit_s) else max(until_s - time.monotonic(), 0.0))
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        """Encode and decode; decoding first, for somebody may wait for it."""
        while True:
            with self._changed:
                self._changed.wait_for(self._has_work)
                if self._transferred:
                    entry, finishing = heapq.heappop(self._transferred), True
                elif self._can_prepare():
                    entry, finishing = heapq.heappop(self._waiting), False
                    self._preparing += 1
                else:
                    return
            urgency, number, transfer = entry
            if finishing:
                self._run(transfer, transfer.finish, transfer.value)
                self._end(transfer)
                continue
            done = self._run(transfer, transfer.prepare)
            with self._changed:
                self._preparing -= 1
                if done:
                    heapq.heappush(self._prepared, (urgency, number, transfer))
                self._changed.notify_all()
            if not done:
                self._end(transfer)

    def _carry(self) -> None:
        """Transfer what is prepared, the most urgent first."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._prepared or self._is_over())
                if not self._prepared:
                    return
                entry = heapq.heappop(self._prepared)
                self._preparing += 1  # still counted, until it is handed on
            transfer = entry[2]
            done = self._run(transfer, transfer.transfer, transfer.value)
            with self._changed:
                self._preparing -= 1
                if done:
                    heapq.heappush(self._transferred, entry)
                self._changed.notify_all()
            if not done:
                self._end(transfer)

    def _can_prepare(self) -> bool:
        under_way = self._preparing + len(self._prepared) + len(self._transferred)
        # What is most urgent never waits for room that less urgent content takes.
        urgent = bool(self._waiting) and self._waiting[0][0] == Urgency.PRESTAGE
        return bool(self._waiting) and (urgent or under_way < self._room)

    def _has_work(self) -> bool:
        return bool(self._transferred) or self._can_prepare() or self._is_over()

    def _is_over(self) -> bool:
        return self._closing and self._open == 0

    def _run(self, transfer: _Transfer, part: Callable[..., Any], *given: Any) -> bool:
        try:
            transfer.value = part(*given)
        except BaseException as error:
            transfer.future.set_exception(error)
            return False
        return True

    def _end(self, transfer: _Transfer) -> None:
        if not transfer.future.done():
            transfer.future.set_result(None)
        with self._changed:
            self._open -= 1
            self._changed.notify_all()
