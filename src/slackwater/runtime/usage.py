"""How much of what there is was used: slots of late, and memory now."""

from __future__ import annotations

import math
from collections.abc import Callable

from slackwater.scheduling.snapshot import MemoryFacts

_REMEMBERED_MS = 5_000.0
_ASK_EVERY_MS = 1_000.0


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


class MemoryGauge:
    """Add up window state in the driver and in Spark's storage memory, against a budget.

    Spark is asked now and then only: it takes a call to the JVM.
    """

    def __init__(self, budget_bytes: int, stored_bytes: Callable[[], int]) -> None:
        """Give the budget, and how to ask what Spark's block managers hold."""
        self._budget_bytes = budget_bytes
        self._stored_bytes = stored_bytes
        self._stored = 0
        self._asked_ms = -math.inf

    def facts(self, held_bytes: int, now_ms: float) -> MemoryFacts:
        """Return how full memory is, when the driver holds so much."""
        if now_ms >= self._asked_ms + _ASK_EVERY_MS:
            self._stored, self._asked_ms = self._stored_bytes(), now_ms
        return MemoryFacts(held_bytes + self._stored, self._budget_bytes)
