"""Time, as something that is given: the runtime never looks at a clock of its own."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Tell the time, and wait."""

    def now_ms(self) -> float:
        """Return milliseconds since the epoch."""
        ...

    def wait(self, signal: threading.Event, until_ms: float, *, busy: bool) -> None:
        """Return when `signal` is set, or at `until_ms`; `busy` says that steps are running."""
        ...


class SystemClock:
    """Follow the machine's clock."""

    def now_ms(self) -> float:
        """Return milliseconds since the epoch."""
        return time.time() * 1_000

    def wait(self, signal: threading.Event, until_ms: float, *, busy: bool) -> None:
        """Sleep until the signal or the moment, whichever comes first."""
        signal.wait(max(0.0, (until_ms - self.now_ms()) / 1_000))
