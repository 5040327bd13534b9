"""A clock that moves only when nothing else can happen."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

from slackwater.errors import DescriptionError


class ManualClock:
    """Stand still while steps run; jump to the next moment of interest when all is idle.

    >>> clock = ManualClock("2024-01-01T00:00:00")
    >>> clock.wait(threading.Event(), clock.now_ms() + 60_000, busy=False)
    >>> clock.now().isoformat()
    '2024-01-01T00:01:00+00:00'
    """

    def __init__(self, start: str | datetime | float = 0.0) -> None:
        """Start at a moment: ISO text or a datetime (UTC unless it says otherwise), or epoch ms."""
        self._now_ms = moment_ms(start)
        self._set_by_ms = 0.0

    def now_ms(self) -> float:
        """Return milliseconds since the epoch."""
        return self._now_ms

    def steady_ms(self) -> float:
        """Return milliseconds that pass with this clock, and stay when it is set."""
        return self._now_ms - self._set_by_ms

    def now(self) -> datetime:
        """Return the moment as a datetime."""
        return datetime.fromtimestamp(self._now_ms / 1_000, UTC)

    def advance_to(self, moment: str | datetime | float) -> None:
        """Move to a later moment."""
        self._now_ms = max(self._now_ms, moment_ms(moment))

    def set_to(self, moment: str | datetime | float) -> None:
        """Set the clock, back or forth, as an administrator sets a machine's: no time passes."""
        before_ms, self._now_ms = self._now_ms, moment_ms(moment)
        self._set_by_ms += self._now_ms - before_ms

    def wait(self, signal: threading.Event, until_ms: float, *, busy: bool) -> None:
        """Wait for running steps in real time; otherwise jump."""
        if busy:
            signal.wait()
        elif not signal.is_set():
            self._now_ms = max(self._now_ms, until_ms)


def moment_ms(moment: str | datetime | float) -> float:
    """Read a moment: ISO text or a datetime (UTC unless it says otherwise), or epoch ms.

    >>> moment_ms("1970-01-01 00:00:01.5")
    1500.0
    """
    try:
        if isinstance(moment, str):
            moment = datetime.fromisoformat(moment)
        if isinstance(moment, datetime):
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            return moment.timestamp() * 1_000
        return float(moment)
    except (TypeError, ValueError):
        raise DescriptionError(
            f"{moment!r} is no moment: write ISO text such as '2024-01-01 10:00:01' (UTC unless it "
            "says otherwise), a datetime, or milliseconds since 1970"
        ) from None
