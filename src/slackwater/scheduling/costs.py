"""What a step will cost: fixed, per event and per query, learned from the steps that ran."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace

import numpy as np

from slackwater.scheduling.fitting import fitted

_PER_SIZE = 16  # durations kept for each class of sizes
_STALE_AFTER = 1_024  # a class that no step fell into for so many steps is forgotten
_HALVED_AFTER = 64  # and counts half as much for each so many
_TRUSTED_AFTER = 6
_REFIT_EVERY = 8
_UNTRUSTED_EVENTS = 100_000
_ERRORS = 128


@dataclass(frozen=True)
class StepCost:
    """Predict a step's duration: `fixed_ms + per_event_ms * events + per_query_ms * queries`.

    A step that closes windows (merges their state, writes the results) takes `close_ms` longer.
    """

    fixed_ms: float = 60.0
    per_event_ms: float = 0.0005
    observations: int = 0
    most_events: int = 0  # of any step seen
    close_ms: float = 0.0
    per_query_ms: float = 0.0

    def duration_ms(self, events: int, queries: int = 1, *, closes: bool = False) -> float:
        """Predict how long a step over so many events of so many queries takes."""
        closing_ms = self.close_ms if closes else 0.0
        return self.started_ms(queries) + self.per_event_ms * events + closing_ms

    def started_ms(self, queries: int = 1) -> float:
        """Predict what a step over so many queries takes before it has read an event."""
        return self.fixed_ms + self.per_query_ms * queries

    @property
    def trusted(self) -> bool:
        """Tell whether enough steps were seen to rely on the line."""
        return self.observations >= _TRUSTED_AFTER

    def events_within(self, budget_ms: float, queries: int = 1) -> int:
        """Return how many events of so many queries fit a budget.

        A line says little about sizes never seen, so the answer grows by steps: at most four times
        the largest step so far.
        """
        if not self.trusted:
            return _UNTRUSTED_EVENTS
        room_ms = max(budget_ms - self.started_ms(queries), budget_ms / 4)
        fitting = int(room_ms / max(self.per_event_ms, 1e-7))
        return max(1_000, min(fitting, 4 * max(self.most_events, _UNTRUSTED_EVENTS)))


@dataclass
class _SizeClass:
    """Hold the recent steps of about one size."""

    events: deque[float] = field(default_factory=lambda: deque(maxlen=_PER_SIZE))
    queries: deque[float] = field(default_factory=lambda: deque(maxlen=_PER_SIZE))
    took_ms: deque[float] = field(default_factory=lambda: deque(maxlen=_PER_SIZE))
    last_seen: int = 0


@dataclass
class CostLearner:
    """Fit a template's cost to its steps, ignoring the odd slow one.

    Warm-up and garbage collection make steps slow, never fast. So steps are sorted into classes by
    size (powers of two, of events and of queries), each class is represented by its median, and the
    cost is fitted to the medians (`fitted`). A class keeps its last few steps only, yet sizes that
    are rare are remembered beside the usual one, for a slope needs both; they count the less the
    longer ago they were seen.

    >>> learner = CostLearner()
    >>> for events in range(1_000, 21_000, 1_000):
    ...     learner.observe(events, 30 + events * 0.001)
    >>> round(learner.cost.fixed_ms), round(learner.cost.per_event_ms, 4)
    (30, 0.001)
    """

    cost: StepCost = field(default_factory=StepCost)
    _classes: dict[tuple[int, int], _SizeClass] = field(default_factory=dict)
    _closing_ms: deque[float] = field(default_factory=lambda: deque(maxlen=_PER_SIZE))
    _errors: deque[float] = field(default_factory=lambda: deque(maxlen=_ERRORS))

    def observe(
        self, events: int, duration_ms: float, closing_ms: float | None = None, *, queries: int = 1
    ) -> None:
        """Take in one finished step; `closing_ms` is how much of it went into closing windows.

        What cannot be a duration is not learned from.
        """
        if not 0 <= duration_ms < math.inf or not 0 <= (closing_ms or 0.0) < math.inf:
            return
        if self.cost.trusted and duration_ms > 0:
            predicted_ms = self.cost.duration_ms(events, queries, closes=closing_ms is not None)
            self._errors.append(abs(predicted_ms - duration_ms) / duration_ms)
        if closing_ms is not None:
            self._closing_ms.append(closing_ms)
        seen = self.cost.observations + 1
        key = max(events, 1).bit_length(), queries.bit_length()
        size = self._classes.setdefault(key, _SizeClass())
        size.events.append(float(events))
        size.queries.append(float(queries))
        size.took_ms.append(max(duration_ms - (closing_ms or 0.0), 0.0))
        size.last_seen = seen
        most = max(self.cost.most_events, events)
        self.cost = replace(self.cost, observations=seen, most_events=most)
        if seen <= _TRUSTED_AFTER or seen % _REFIT_EVERY == 0:
            self._fit()

    @property
    def error_share(self) -> float | None:
        """Return by how much predictions were off: the median over recent steps, None at first."""
        return float(np.median(self._errors)) if self._errors else None

    def _fit(self) -> None:
        seen = self.cost.observations
        for size in [
            s for s, held in self._classes.items() if seen - held.last_seen > _STALE_AFTER
        ]:
            del self._classes[size]
        held = list(self._classes.values())
        fixed_ms, per_event_ms, per_query_ms = fitted(
            np.array([np.median(one.events) for one in held]),
            np.array([np.median(one.queries) for one in held]),
            np.array([np.median(one.took_ms) for one in held]),
            np.array([len(one.events) * _fading(seen - one.last_seen) for one in held]),
        )
        self.cost = replace(
            self.cost,
            fixed_ms=fixed_ms,
            per_event_ms=per_event_ms,
            per_query_ms=per_query_ms,
            close_ms=float(np.median(self._closing_ms)) if self._closing_ms else 0.0,
        )


def _fading(age: int) -> float:
    return float(2.0 ** (-age / _HALVED_AFTER))
