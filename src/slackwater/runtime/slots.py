"""The threads that steps run in. One that hangs is given up, and another takes its place.

They are daemons: a step that nothing can end must not keep the process from ending.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import Any, Final, TypeVar

Answer = TypeVar("Answer")
_Task = tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]

_INNER: Final = ("slackwater", "pyspark", "py4j")  # packages whose lines tell a user little


class Worker:
    """Do one thing after the other in a thread of its own, which begins with the first."""

    def __init__(self, name: str, begin: Callable[[], None] = lambda: None) -> None:
        """Name the thread; `begin` is called in it before anything else."""
        self._begin = begin
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._started = False

    def submit(self, act: Callable[..., Answer], *given: Any) -> Future[Answer]:
        """Have something done after all that was submitted before."""
        future: Future[Answer] = Future()
        self._tasks.put((future, act, given))
        if not self._started:
            self._started = True
            self._thread.start()
        return future

    def end(self) -> None:
        """Let the thread end once it has done what was submitted."""
        self._tasks.put(None)

    def ended(self, limit_s: float) -> bool:
        """Wait for the thread's end, so long at most; tell whether it has."""
        if self._started:
            self._thread.join(None if math.isinf(limit_s) else max(limit_s, 0.0))
        return not self._thread.is_alive()

    def place(self) -> str:
        """Say where the thread is just now: the line of a user's file, if there is one."""
        frame = sys._current_frames().get(self._thread.ident or -1)
        return "nowhere" if frame is None else _shown(frame)

    def _work(self) -> None:
        begun = False
        while (task := self._tasks.get()) is not None:
            future, act, given = task
            try:
                if not begun:
                    self._begin()
                    begun = True
                result = act(*given)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
            del task, future, act, given  # a thread that waits holds on to nothing


def _shown(frame: FrameType) -> str:
    """Show the innermost line outside of Slackwater and Spark, and say so where they are inside."""
    inner: FrameType | None = frame
    while inner is not None:
        parts = Path(inner.f_code.co_filename).parts
        if not any(part in _INNER for part in parts) and not _of_python(inner):
            shown = f"{inner.f_code.co_filename}, line {inner.f_lineno}, in {inner.f_code.co_name}"
            return shown
        inner = inner.f_back
    in_spark = "py4j" in frame.f_code.co_filename or _calls_spark(frame)
    return "a Spark job" if in_spark else f"{frame.f_code.co_filename}, line {frame.f_lineno}"


def _calls_spark(frame: FrameType | None) -> bool:
    while frame is not None:
        if "py4j" in Path(frame.f_code.co_filename).parts:
            return True
        frame = frame.f_back
    return False


def _of_python(frame: FrameType) -> bool:
    """Tell whether a line is of Python's own library."""
    return frame.f_code.co_filename.startswith(_LIBRARY) or frame.f_code.co_filename.startswith("<")


_LIBRARY: Final = str(Path(threading.__file__).parent)


class Slots:
    """Number the places for steps; each has a thread."""

    def __init__(self, count: int, begin: Callable[[int], None] = lambda slot: None) -> None:
        """Have so many places; `begin` is called in each thread with its number."""
        self._begin = begin
        self._next = 0
        self._workers: dict[int, Worker] = {}
        self._given_up: dict[int, Worker] = {}
        self.free = [self._new() for _ in range(count)]

    def submit(self, slot: int, act: Callable[..., Answer], *given: Any) -> Future[Answer]:
        """Have something done in a slot that was taken from `free`."""
        return self._workers[slot].submit(act, *given)

    def place(self, slot: int) -> str:
        """Say where a slot's thread is just now."""
        return self._workers[slot].place()

    def give_up(self, slot: int) -> None:
        """Leave a slot to what hangs in it, and have a new one, of another number, in its place."""
        self._given_up[slot] = worker = self._workers.pop(slot)
        worker.end()
        self.free.append(self._new())

    def close(self, limit_s: float) -> bool:
        """End the threads; tell whether they have, those given up included."""
        for worker in self._workers.values():
            worker.end()
        until_s = time.monotonic() + limit_s
        ended = [worker.ended(until_s - time.monotonic()) for worker in self._workers.values()]
        return all(ended) and all(worker.ended(0.0) for worker in self._given_up.values())

    def _new(self) -> int:
        slot = self._next
        self._next += 1
        self._workers[slot] = Worker(f"slackwater-slot_{slot}", lambda: self._begin(slot))
        return slot
