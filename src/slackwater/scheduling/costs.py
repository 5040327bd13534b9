"""What a step will cost: a fixed part and a part per event, learned from the steps that ran."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

_HISTORY = 64
_TRUSTED_AFTER = 6
_REFIT_EVERY = 8
_UNTRUSTED_EVENTS = 100_000


@dataclass(frozen=True)
class StepCost:
    """Predict a step's duration: `fixed_ms + per_event_ms * events`."""

    fixed_ms: float = 60.0
    per_event_ms: float = 0.0005
    observations: int = 0
    most_events: int = 0  # of any step seen

    def duration_ms(self, events: int) -> float:
        """Predict how long a step over so many events takes."""
        return self.fixed_ms + self.per_event_ms * events

    @property
    def trusted(self) -> bool:
        """Tell whether enough steps were seen to rely on the line."""
        return self.observations >= _TRUSTED_AFTER

    def events_within(self, budget_ms: float) -> int:
        """Return how many events fit a budget.

        A line says little about sizes never seen, so the answer grows by steps: at most four times
        the largest step so far.
        """
        if not self.trusted:
            return _UNTRUSTED_EVENTS
        room_ms = max(budget_ms - self.fixed_ms, budget_ms / 4)
        fitting = int(room_ms / max(self.per_event_ms, 1e-7))
        return max(1_000, min(fitting, 4 * max(self.most_events, _UNTRUSTED_EVENTS)))


@dataclass
class CostLearner:
    """Fit a template's cost to its recent steps, ignoring the odd slow one.

    Warm-up and garbage collection make steps slow, never fast, so the fit follows the lower half:
    fit a line, drop what lies far above it, fit again.

    >>> learner = CostLearner()
    >>> for events in range(1_000, 21_000, 1_000):
    ...     learner.observe(events, 30 + events * 0.001)
    >>> round(learner.cost.fixed_ms), round(learner.cost.per_event_ms, 4)
    (30, 0.001)
    """

    cost: StepCost = field(default_factory=StepCost)
    _events: list[float] = field(default_factory=list)
    _durations_ms: list[float] = field(default_factory=list)

    def observe(self, events: int, duration_ms: float) -> None:
        """Take in one finished step."""
        self._events = [*self._events[-_HISTORY + 1 :], float(events)]
        self._durations_ms = [*self._durations_ms[-_HISTORY + 1 :], duration_ms]
        seen = self.cost.observations + 1
        most = max(self.cost.most_events, events)
        self.cost = replace(self.cost, observations=seen, most_events=most)
        if seen <= _TRUSTED_AFTER or seen % _REFIT_EVERY == 0:
            self._fit()

    def _fit(self) -> None:
        events, took_ms = np.array(self._events), np.array(self._durations_ms)
        fixed_ms, per_event_ms = _line(events, took_ms)
        excess_ms = took_ms - (fixed_ms + per_event_ms * events)
        usual = excess_ms <= 2 * np.median(np.abs(excess_ms)) + 1e-9
        if usual.sum() >= 3:
            fixed_ms, per_event_ms = _line(events[usual], took_ms[usual])
        self.cost = replace(self.cost, fixed_ms=fixed_ms, per_event_ms=per_event_ms)


def _line(events: np.ndarray, took_ms: np.ndarray) -> tuple[float, float]:
    """Fit a line with both coefficients non-negative."""
    spread = events - events.mean()
    variance = float((spread**2).sum())
    if variance == 0:
        return float(np.median(took_ms)), 0.0 if events[0] == 0 else 1e-6
    slope = max(float((spread * (took_ms - took_ms.mean())).sum()) / variance, 0.0)
    intercept = float(took_ms.mean() - slope * events.mean())
    if intercept < 0:
        return 0.0, float(took_ms.sum() / max(events.sum(), 1.0))
    return intercept, slope
