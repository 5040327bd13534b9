"""Steps that run for longer than they may: told of, cancelled, and in the end given up."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from slackwater.app.durations import show_ms
from slackwater.runtime.planning import PlannedStep
from slackwater.runtime.reports import StepReport

logger = logging.getLogger("slackwater")

GRACE_MS: Final = 10_000.0  # for a cancelled step to end; Spark ends a Python worker after 2 s
CANCEL_EVERY_MS: Final = 1_000.0  # again: a job that was about to begin is missed


@dataclass(frozen=True, eq=False)
class RunningStep:
    """Hold a step that is in a slot, since when (by the steady clock), and what will come of it."""

    step: PlannedStep
    slot: int
    future: Future[StepReport]
    since_ms: float

    @property
    def names(self) -> str:
        """Name the queries that it serves."""
        return ", ".join(query.state.name for query in self.step.queries)


@dataclass
class _Overdue:
    since_ms: float
    cancelled_ms: float
    place: str


class OverdueSteps:
    """Watch how long steps run. All moments are those of the steady clock."""

    def __init__(
        self,
        limit_ms: float,
        cancel: Callable[[int], None],
        place: Callable[[int], str],
        grace_ms: float = GRACE_MS,
    ) -> None:
        """Allow each so long; `cancel` ends a slot's Spark jobs, `place` tells where its thread is.

        `grace_ms` is how long a cancelled step has to end.
        """
        self._limit_ms = limit_ms
        self._cancel = cancel
        self._place = place
        self.grace_ms = grace_ms
        self._overdue: dict[RunningStep, _Overdue] = {}
        self._first_places: dict[int, str] = {}  # by query, until a step of it ends well

    def look(self, running: Sequence[RunningStep], steady_ms: float) -> list[RunningStep]:
        """Tell of overdue steps and cancel them; return those that did not end even then."""
        hopeless = []
        for each in running:
            if steady_ms - each.since_ms < self._limit_ms:
                continue
            known = self._overdue.get(each)
            if known is None:
                known = _Overdue(steady_ms, -math.inf, self._place(each.slot))
                self._overdue[each] = known
                logger.warning(
                    "a step of %s has been running for %s, longer than it may (step_limit): it is "
                    "cancelled. It is at %s",
                    each.names,
                    show_ms(round(steady_ms - each.since_ms)),
                    known.place,
                )
            if steady_ms - known.since_ms >= self.grace_ms:
                hopeless.append(each)
            elif steady_ms - known.cancelled_ms >= CANCEL_EVERY_MS:
                known.cancelled_ms = steady_ms
                self.cancel(each.slot)
        return hopeless

    def next_ms(self, running: Sequence[RunningStep]) -> float:
        """Tell when to look again."""
        moments = [
            each.since_ms + self._limit_ms
            if each not in self._overdue
            else self._overdue[each].cancelled_ms + CANCEL_EVERY_MS
            for each in running
        ]
        return min(moments, default=math.inf)

    def over(self, running: RunningStep) -> str | None:
        """Take note that a step is not running any more; say what of it, if it was overdue."""
        known = self._overdue.pop(running, None)
        if known is None:
            if self._first_places and running.future.done() and not running.future.exception():
                for query in running.step.plans:
                    self._first_places.pop(query, None)
            return None
        # A try after one that was given up may only wait for a lock that the other one has.
        places = [self._first_places.setdefault(q, known.place) for q in running.step.plans]
        place = known.place if known.place in places else f"{places[0]}, and then {known.place}"
        limit = show_ms(round(self._limit_ms))
        return f"its step took longer than step_limit={limit!r} allows, at {place}"

    def reason(self, query: int) -> str | None:
        """Tell what the overdue step of a query waits for, if it has one; any thread may ask."""
        for running, known in list(self._overdue.items()):
            if query in running.step.plans:
                return f"its step takes longer than step_limit allows, at {known.place}"
        return None

    def cancel(self, slot: int) -> None:
        """Cancel a slot's Spark jobs. Not by who asks: the JVM may be what hangs."""

        def cancel() -> None:
            try:
                self._cancel(slot)
            except Exception as error:
                logger.info("the jobs of a step could not be cancelled: %s", error)

        threading.Thread(target=cancel, name="slackwater-cancel", daemon=True).start()
