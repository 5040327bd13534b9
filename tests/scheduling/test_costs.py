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


def test_a_size_that_is_rare_is_remembered_beside_the_usual_one() -> None:
    """A slope needs two sizes, however long ago the other one was seen."""
    learner = CostLearner()
    for _ in range(8):
        learner.observe(200_000, 30 + 0.0005 * 200_000)
    for _ in range(400):
        learner.observe(1_000, 30 + 0.0005 * 1_000)
    assert learner.cost.per_event_ms == pytest.approx(0.0005, rel=0.01)


def test_a_size_that_no_step_has_any_more_is_forgotten_in_the_end() -> None:
    learner = CostLearner()
    for _ in range(8):
        learner.observe(200_000, 900.0)
    for _ in range(1_100):
        learner.observe(1_000, 30.0)
    assert learner.cost.duration_ms(1_000) == pytest.approx(30.0, abs=1.0)
    assert learner.cost.per_event_ms < 0.001


def test_what_each_query_costs_is_told_from_what_its_events_cost() -> None:
    """Queries of two rates share steps, a few or many at a time; one step in twelve is held up."""
    random = np.random.default_rng(3)
    learner = CostLearner()
    for index in range(400):
        queries = int(random.integers(1, 60))
        events = queries * int(random.choice([100, 4_000]))
        slow = 400.0 if index % 12 == 0 else 0.0
        took_ms = 30 + 0.0005 * events + 0.8 * queries + random.exponential(1.0) + slow
        learner.observe(events, took_ms, queries=queries)
    assert learner.cost.per_query_ms == pytest.approx(0.8, rel=0.2)
    assert learner.cost.per_event_ms == pytest.approx(0.0005, rel=0.2)
    assert learner.error_share is not None
    assert learner.error_share < 0.1


def test_where_queries_are_all_alike_events_get_the_cost() -> None:
    learner = CostLearner()
    for queries in list(range(1, 60)) * 3:
        learner.observe(3_000 * queries, 30 + 0.001 * 3_000 * queries, queries=queries)
    assert learner.cost.per_query_ms == 0
    assert learner.cost.duration_ms(90_000, 30) == pytest.approx(120, rel=0.02)


def test_large_steps_from_before_the_code_was_compiled_do_not_spoil_the_usual_ones() -> None:
    """A backlog at first, in a few cold steps of several sizes; then small ones for ever."""
    learner = CostLearner()
    for events, took_ms in [(2_000_000, 900.0), (900_000, 800.0), (300_000, 500.0)] * 3:
        learner.observe(events, took_ms)
    for index in range(400):
        learner.observe(30_000 + 30_000 * (index % 3 == 0), 38.0 + 2.0 * (index % 3 == 0))
    assert learner.error_share is not None
    assert learner.error_share < 0.05


def test_closing_windows_is_learned_apart_from_reading() -> None:
    learner = CostLearner()
    for index in range(40):
        closes = index % 2 == 0
        learner.observe(1_000, 50.0 if closes else 40.0, 10.0 if closes else None)
    assert learner.cost.close_ms == pytest.approx(10.0)
    assert learner.cost.duration_ms(1_000) == pytest.approx(40.0, abs=0.5)
    assert learner.cost.duration_ms(1_000, closes=True) == pytest.approx(50.0, abs=0.5)


def test_predictions_are_held_against_what_happened() -> None:
    learner = CostLearner()
    assert learner.error_share is None
    for _ in range(30):
        learner.observe(1_000, 40.0)
    assert learner.error_share == pytest.approx(0.0, abs=0.01)
    for _ in range(128):
        learner.observe(1_000, 80.0)
    assert learner.error_share is not None
    assert learner.error_share < 0.1  # it has learned the new cost meanwhile
