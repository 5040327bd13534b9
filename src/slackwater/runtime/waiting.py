"""Steps that wait for what cannot be reached, each for a while and then longer."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, replace

from slackwater.errors import UnavailableError
from slackwater.runtime.planning import PlannedStep

logger = logging.getLogger("slackwater")

FIRST_MS = 500.0
LONGEST_MS = 15_000.0


@dataclass(frozen=True)
class _Waiting:
    step: PlannedStep
    until_ms: float


class WaitingSteps:
    """Keep steps until they are to be tried again. What they wait for is told once, not each time.

    Their queries keep their plans, and those of other sources and sinks go on meanwhile. All
    moments are those of a steady clock: a pause takes as long as it says, whatever time it is.
    """

    def __init__(self) -> None:
        self._waiting: list[_Waiting] = []
        self._since: dict[int, tuple[float, str]] = {}  # by query: since when, and for what

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def next_ms(self) -> float:
        """Tell when the next step is to be tried again; infinity where none waits."""
        return min((waiting.until_ms for waiting in self._waiting), default=math.inf)

    def put(self, step: PlannedStep, error: UnavailableError, steady_ms: float) -> None:
        """Let a step wait: half a second at first, then twice as long each time, up to 15 s."""
        pause_ms = min(LONGEST_MS, FIRST_MS * 2.0**step.waits)
        self._waiting.append(_Waiting(replace(step, waits=step.waits + 1), steady_ms + pause_ms))
        if not all(query.number in self._since for query in step.queries):
            names = ", ".join(query.state.name for query in step.queries)
            logger.warning("%s: %s; it is tried again until it works", names, error)
        for query in step.queries:
            since_ms, _ = self._since.get(query.number, (steady_ms, ""))
            self._since[query.number] = (since_ms, str(error))

    def due(self, steady_ms: float) -> list[PlannedStep]:
        """Take out the steps that are to be tried again."""
        due = [waiting.step for waiting in self._waiting if waiting.until_ms <= steady_ms]
        self._waiting = [waiting for waiting in self._waiting if waiting.until_ms > steady_ms]
        return due

    def over(self, step: PlannedStep, steady_ms: float) -> None:
        """Take note that the queries of a step need not wait any more."""
        waited = [q for q in step.queries if q.number in self._since]
        if waited:
            since_ms = min(self._since.pop(query.number)[0] for query in waited)
            names = ", ".join(query.state.name for query in waited)
            logger.warning("%s: goes on after %.0f s", names, (steady_ms - since_ms) / 1_000)

    def reason(self, query: int) -> str | None:
        """Tell what a query waits for, if it does."""
        found = self._since.get(query)
        return None if found is None else found[1]
