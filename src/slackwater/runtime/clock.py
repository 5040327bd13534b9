"""Time, as something that is given: the runtime never looks at a clock of its own."""

from __future__ import annotations

import threading
import time
from typing import Final, Protocol

_LONGEST_WAIT_S: Final = 1.0  # who sleeps for longer would not notice that the clock was set


class Clock(Protocol):
    """Tell the time, and wait.

    There are two kinds of time. What has to do with events is told by the clock on the wall, which
    may be set, back and forth. Pauses, limits and durations are told by a steady one.
    """

    def now_ms(self) -> float:
        """Return milliseconds since the epoch, as the machine's clock shows them."""
        ...

    def steady_ms(self) -> float:
        """Return milliseconds that pass as time does, whatever the machine's clock is set to."""
        ...

    def wait(self, signal: threading.Event, until_ms: float, *, busy: bool) -> None:
        """Return when `signal` is set, or at `until_ms` (of `now_ms`), or a while before.

        `busy` says that steps are running.
        """
        ...


class SystemClock:
    """Follow the machine's clock."""

    def now_ms(self) -> float:
        """Return milliseconds since the epoch."""
        return time.time() * 1_000

    def steady_ms(self) -> float:
        """Return milliseconds since some moment."""
        return time.monotonic() * 1_000

    def wait(self, signal: threading.Event, until_ms: float, *, busy: bool) -> None:
        """Sleep until the signal or the moment, whichever comes first, for a second at most."""
        signal.wait(min(max(0.0, (until_ms - self.now_ms()) / 1_000), _LONGEST_WAIT_S))


class ClockWatch:
    """Notice that the machine's clock was set: it then shows other than what has passed.

    Clocks that are corrected all the time, a little each, do not count.
    """

    def __init__(self, clock: Clock, least_ms: float = 1_000.0) -> None:
        """Begin to watch."""
        self._least_ms = least_ms
        self._ahead_ms = clock.now_ms() - clock.steady_ms()

    def set_by_ms(self, now_ms: float, steady_ms: float) -> float:
        """Return by how much the clock was set since it was asked last; 0 where it was not."""
        before_ms, self._ahead_ms = self._ahead_ms, now_ms - steady_ms
        by_ms = self._ahead_ms - before_ms
        return by_ms if abs(by_ms) >= self._least_ms else 0.0
