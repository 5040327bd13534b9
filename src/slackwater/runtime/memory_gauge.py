"""How much memory window state takes, of what it may."""

from __future__ import annotations

import math
from collections.abc import Callable

from slackwater.scheduling.snapshot import MemoryFacts

_ASK_EVERY_MS = 1_000.0


class MemoryGauge:
    """Add up window state in the driver and in Spark's storage memory, against a budget.

    Spark is asked now and then only, and not by who decides: it takes a call to the JVM.
    """

    def __init__(self, budget_bytes: int, stored_bytes: Callable[[], int]) -> None:
        """Give the budget, and how to ask what Spark's block managers hold."""
        self._budget_bytes = budget_bytes
        self._stored_bytes = stored_bytes
        self._stored = 0
        self._look_ms = -math.inf
        self._asking = False

    def look(self, steady_ms: float, submit: Callable[[Callable[[], object]], object]) -> None:
        """Ask Spark if it is time; asking is given to `submit`, to be done elsewhere."""
        if steady_ms >= self._look_ms and not self._asking:
            self._look_ms = steady_ms + _ASK_EVERY_MS
            self._asking = True
            submit(self._ask)

    def _ask(self) -> None:
        try:
            self._stored = self._stored_bytes()
        finally:
            self._asking = False

    def facts(self, held_bytes: int) -> MemoryFacts:
        """Return how full memory is, when the driver holds so much."""
        return MemoryFacts(held_bytes + self._stored, self._budget_bytes)
