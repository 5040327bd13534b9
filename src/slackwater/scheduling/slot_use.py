"""How much of all slots' time was used of late."""

from __future__ import annotations

import math

_REMEMBERED_MS = 5_000.0
_MOST_UTILISATION = 0.95  # beyond, the estimate is worth little


def felt_by_all(utilisation: float) -> float:
    """Return how much a millisecond of a slot is to all who queue behind it.

    >>> round(felt_by_all(0.0)), round(felt_by_all(0.9))
    (1, 10)
    """
    return 1 / (1 - min(utilisation, _MOST_UTILISATION))


class SlotUse:
    """Average the share of all slots' time that went into due windows, the last seconds most.

    >>> use = SlotUse(slots=2)
    >>> for second in range(1, 60):
    ...     use.passed(second * 1_000.0, busy=1)
    >>> round(use.share, 2)
    0.5
    """

    def __init__(self, slots: int) -> None:
        """Start unused."""
        self._slots = slots
        self._last_ms: float | None = None
        self.share = 0.0

    def passed(self, now_ms: float, busy: int) -> None:
        """Take in that so many slots were busy since the last call."""
        if self._last_ms is not None:
            weight = -math.expm1(-max(now_ms - self._last_ms, 0.0) / _REMEMBERED_MS)
            self.share += (busy / self._slots - self.share) * weight
        self._last_ms = now_ms
