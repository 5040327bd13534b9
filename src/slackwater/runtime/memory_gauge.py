"""How much memory window state takes, of what it may."""

from __future__ import annotations

import math
from collections.abc import Callable

from slackwater.scheduling.snapshot import MemoryFacts

_ASK_EVERY_MS = 1_000.0


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
