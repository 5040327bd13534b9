"""The figures that the staleness trigger and predictive cleanup are held to."""

from __future__ import annotations

import pytest
from lateness_tables import kept_table
from lateness_trials import (
    BOUNDS,
    SHAPES,
    fewest_executions,
    run_cover,
    run_online,
)


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("name", SHAPES)
def test_staleness_is_kept_with_no_more_executions_than_any_baseline(
    name: str, bound: float
) -> None:
    found = fewest_executions(name, bound)
    assert found.stalest <= bound
    assert found.by_time is None or found.ours <= found.by_time
    assert found.by_events is None or found.ours <= found.by_events


def test_lognormal_lateness_takes_a_third_of_the_executions_and_less() -> None:
    found = fewest_executions("lognormal", 0.05)
    assert found.by_time is not None
    assert found.by_events is not None
    assert found.ours <= 0.31 * found.by_time
    assert found.ours <= 0.27 * found.by_events
    strict = fewest_executions("lognormal", 0.01)
    assert strict.by_time is None or strict.by_time > 30
    assert strict.by_events is None or strict.by_events > 30


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("name", SHAPES)
def test_the_learned_trigger_keeps_the_bound_with_hardly_more_executions(
    name: str, bound: float
) -> None:
    found = run_online(name, bound, windows=3)
    assert found.stalest <= bound
    assert found.executions <= found.fewest + 1


@pytest.mark.parametrize("name", SHAPES)
def test_learned_bounds_cover_the_share_within_half_a_point(name: str) -> None:
    found = run_cover(name, 0.99, runs=3)
    least, _, most = found.covered
    assert 0.985 <= least <= most <= 0.995
    assert found.doubled[0] >= 0.985


def test_tables_are_markdown() -> None:
    lines = kept_table().splitlines()
    assert len({line.count("|") for line in lines}) == 1
    assert "(31 %)" in lines[3]
