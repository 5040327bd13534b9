from __future__ import annotations

import numpy as np
import pytest

from slackwater.scheduling.costs import CostLearner, StepCost


def test_a_line_is_learned_through_noise_and_slow_outliers() -> None:
    random = np.random.default_rng(7)
    learner = CostLearner()
    for index in range(200):
        events = int(random.integers(1_000, 100_000))
        slow = 500.0 if index % 12 == 0 else 0.0
        learner.observe(events, 30 + 0.0004 * events + random.exponential(2.0) + slow)
    assert learner.cost.fixed_ms == pytest.approx(32, abs=6)
    assert learner.cost.per_event_ms == pytest.approx(0.0004, rel=0.2)


def test_costs_are_never_negative() -> None:
    learner = CostLearner()
    for events, took_ms in [(10, 100.0), (1_000, 50.0), (100_000, 20.0)] * 5:
        learner.observe(events, took_ms)
        assert learner.cost.fixed_ms >= 0
        assert learner.cost.per_event_ms >= 0


def test_few_observations_are_not_trusted() -> None:
    learner = CostLearner()
    learner.observe(10, 0.001)
    assert learner.cost.events_within(250) == 100_000


def test_a_step_grows_at_most_fourfold_beyond_what_was_seen() -> None:
    cost = StepCost(fixed_ms=1, per_event_ms=0.0, observations=100, most_events=200_000)
    assert cost.events_within(250) == 800_000


def test_an_expensive_event_still_lets_a_step_go_on() -> None:
    cost = StepCost(fixed_ms=500, per_event_ms=10.0, observations=100, most_events=50)
    assert cost.events_within(250) == 1_000
