from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.progress.misses import AllowedMisses


@given(st.lists(st.booleans(), max_size=200), st.sampled_from([0.01, 0.05, 0.2]))
def test_the_aim_is_always_a_share_near_what_is_allowed(missed: list[bool], allowed: float) -> None:
    misses = AllowedMisses(allowed)
    for one in missed:
        misses.observe(missed=one)
        assert 0.0 <= misses.share <= 1.4 * allowed


def test_as_many_misses_as_are_allowed_leave_the_aim_where_it_is() -> None:
    misses = AllowedMisses(0.05)
    for place in range(2_000):
        misses.observe(missed=place % 20 == 0)
    assert misses.share == pytest.approx(0.05, abs=0.021)


def test_two_misses_on_end_allow_no_more() -> None:
    misses = AllowedMisses(0.05)
    misses.observe(missed=True)
    assert misses.share > 0.0
    misses.observe(missed=True)
    assert misses.share == 0.0


def test_an_interval_that_holds_again_is_soon_as_wide_as_before() -> None:
    misses = AllowedMisses(0.05)
    for _ in range(50):
        misses.observe(missed=True)
    for _ in range(60):
        misses.observe(missed=False)
    assert misses.share >= 0.05
