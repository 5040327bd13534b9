"""Slack in closed form, against the paper's sum over cells of one scheduling cycle."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.scheduling.slack import expected_wait_ms, normal_hazard, overdue_slack_ms, slack_ms


def cell_sum_slack(
    mean_ms: float, deviation_ms: float, now_ms: float, cost_ms: float, cycle_ms: float
) -> float:
    """Add up `P(x <= w < x + r | w >= t) * ((x + r - t) - cost)`, cells before `t` left out."""

    def share_after(time_ms: float) -> float:
        return math.erfc((time_ms - mean_ms) / deviation_ms / math.sqrt(2)) / 2

    left = share_after(now_ms)
    end_ms = max(mean_ms, now_ms) + 12 * deviation_ms
    total, cell_ms = 0.0, now_ms
    while cell_ms < end_ms:
        share = (share_after(cell_ms) - share_after(cell_ms + cycle_ms)) / left
        total += share * (cell_ms + cycle_ms - now_ms - cost_ms)
        cell_ms += cycle_ms
    return total


@given(
    ahead_ms=st.floats(-400, 3_000),
    deviation_ms=st.floats(20, 500),
    cost_ms=st.floats(0, 500),
    cycle_ms=st.sampled_from([10.0, 120.0]),
)
def test_the_closed_form_agrees_with_the_sum_over_cells_to_within_one_cell(
    ahead_ms: float, deviation_ms: float, cost_ms: float, cycle_ms: float
) -> None:
    now_ms, mean_ms = 10_000.0, 10_000.0 + max(ahead_ms, -5 * deviation_ms)
    closed = slack_ms(np.array([mean_ms]), np.array([deviation_ms]), np.array([cost_ms]), now_ms)
    cells = cell_sum_slack(mean_ms, deviation_ms, now_ms, cost_ms, cycle_ms)
    assert 0 <= cells - float(closed[0]) + 1e-3 <= cycle_ms + 2e-3


def test_hazards_match_their_definition_and_go_on_beyond_the_table() -> None:
    for a in (-3.0, 0.0, 1.234, 5.0):
        exact = math.exp(-a * a / 2) / math.sqrt(2 * math.pi) / (math.erfc(a / math.sqrt(2)) / 2)
        assert normal_hazard(np.array([a]))[0] == pytest.approx(exact, abs=2e-5)
    beyond = normal_hazard(np.array([7.999, 8.001, 40.0]))
    assert beyond[1] - beyond[0] == pytest.approx(0.002, rel=0.2)
    assert beyond[2] == pytest.approx(40 + 1 / 40, abs=1e-3)


def test_a_watermark_that_is_late_is_expected_any_moment() -> None:
    waits = expected_wait_ms(np.full(4, 1_000.0), np.full(4, 100.0), now_ms=1_000.0)
    later = expected_wait_ms(np.full(4, 1_000.0), np.full(4, 100.0), now_ms=1_400.0)
    assert (later < waits).all()
    assert (later > 0).all()


def test_a_certain_watermark_is_waited_for_exactly_that_long() -> None:
    waits = expected_wait_ms(np.array([700.0, 300.0]), np.zeros(2), now_ms=500.0)
    assert waits.tolist() == [200, 0]


def test_what_is_due_has_been_overdue_since_its_watermark_came() -> None:
    assert overdue_slack_ms(900.0, 40.0, 1_000.0) == -140.0
