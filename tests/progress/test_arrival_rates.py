from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.progress.arrival_rates import SPAN_MS, ArrivalRate


@given(
    rate=st.integers(1, 5_000),
    reads=st.lists(st.floats(0.0, 1.0), min_size=60, max_size=80),
    every_ms=st.sampled_from([100.0, 250.0, 500.0]),
)
def test_rate_does_not_depend_on_how_the_query_reads(
    rate: int, reads: list[float], every_ms: float
) -> None:
    estimate = ArrivalRate()
    consumed = 0
    for turn, share in enumerate(reads):
        now_ms = turn * every_ms
        arrived = int(now_ms * rate / 1_000)
        consumed += int((arrived - consumed) * share)
        estimate.observe(now_ms, consumed=consumed, lag=arrived - consumed)
    assert estimate.per_s == pytest.approx(rate, rel=0.03, abs=1.0)


def test_rate_follows_a_change_within_its_span() -> None:
    estimate = ArrivalRate()
    arrived = 0.0
    for now_ms in np.arange(0.0, 60_000.0, 250.0):
        arrived += 0.25 * (1_000 if now_ms < 30_000 else 3_000)
        estimate.observe(float(now_ms), consumed=int(arrived) // 2, lag=int(arrived + 1) // 2)
        if now_ms == 29_750.0:
            assert estimate.per_s == pytest.approx(1_000, rel=0.01)
    assert estimate.per_s == pytest.approx(3_000, rel=0.01)


def test_observations_close_together_do_not_pile_up() -> None:
    estimate = ArrivalRate()
    for now_ms in range(0, 30_000, 5):
        estimate.observe(float(now_ms), consumed=now_ms, lag=0)
    assert estimate.per_s == pytest.approx(1_000, rel=0.01)
    assert len(estimate._seen) <= SPAN_MS / 200.0 + 3


def test_nothing_is_known_from_one_moment() -> None:
    estimate = ArrivalRate()
    estimate.observe(5.0, consumed=1, lag=1)
    estimate.observe(5.0, consumed=9, lag=9)
    estimate.observe(4.0, consumed=9, lag=9)
    assert estimate.per_s is None
