from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.progress.distributions import ExponentialDelay, GammaDelay
from slackwater.sampling.delays import DelayCounts, bin_of

delays_ms = st.lists(st.floats(0, 1e5), min_size=1, max_size=200)


def counted(values: list[float]) -> DelayCounts:
    found: dict[int, tuple[float, float]] = {}
    for value in values:
        n, total = found.get(bin_of(value), (0.0, 0.0))
        found[bin_of(value)] = (n + 1, total + value)
    return DelayCounts.of(found)


@given(delays_ms, delays_ms)
def test_counts_add_up_in_any_order(one: list[float], other: list[float]) -> None:
    both, reverse = counted(one).plus(counted(other)), counted(other).plus(counted(one))
    assert reverse.counts == pytest.approx(both.counts)
    assert both.counts == pytest.approx(counted(one + other).counts)
    assert both.means_ms == pytest.approx(reverse.means_ms)


@given(delays_ms, st.floats(1, 5_000), st.floats(0, 5_000))
def test_more_has_arrived_the_later_it_is(
    values: list[float], length_ms: float, later_ms: float
) -> None:
    delays = counted(values)
    before = delays.arrived_share(0, length_ms, length_ms)
    after = delays.arrived_share(0, length_ms, length_ms + later_ms)
    assert 0.0 <= before <= after + 1e-9 <= 1.0 + 1e-8
    assert delays.arrived_share(0, length_ms, length_ms + 2e5) == pytest.approx(1.0)


@pytest.mark.parametrize("delay", [ExponentialDelay(240.0), GammaDelay(60.0, 4.0)])
def test_arrived_share_is_that_of_a_drawn_stream(delay: ExponentialDelay | GammaDelay) -> None:
    rng = np.random.default_rng(1)
    drawn = delay.draw(rng.random(20_000))
    at_ms = rng.random(20_000) * 600
    share = counted(drawn.tolist()).arrived_share(0, 600, now_ms=700)
    assert share == pytest.approx(np.mean(at_ms + drawn <= 700), abs=0.01)


def test_mean_delay_beyond_the_substream_leaves_a_share_not_a_negative_size() -> None:
    """The paper's eq. 4.7 gives a negative number of events here."""
    delays = counted([900.0] * 10 + [50.0] * 10)
    assert 0.0 < delays.arrived_share(0, 600, now_ms=600) < 0.5


def test_faded_delays_are_forgotten() -> None:
    old, new = counted([5_000.0] * 100), counted([10.0] * 100)
    for _ in range(300):
        old = old.plus(new, keep=0.95)
    assert old.longest_ms < 20


@given(delays_ms, delays_ms, st.floats(1e-4, 1.0))
def test_json_keeps_every_digit(one: list[float], other: list[float], keep: float) -> None:
    delays = counted(one).plus(counted(other), keep=keep)
    again = DelayCounts.from_json(json.loads(json.dumps(delays.to_json())))
    assert again == delays
    assert len(again.counts) == len(delays.counts)
    assert again.arrived_shares((0, 600, 1_200), 1_300) == delays.arrived_shares(
        (0, 600, 1_200), 1_300
    )


@given(delays_ms, st.floats(0.01, 1.0))
def test_quantiles_and_shares_agree(values: list[float], p: float) -> None:
    delays = counted(values)
    assert delays.within(delays.quantile_ms(p)) >= p - 1e-9
