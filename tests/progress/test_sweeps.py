from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.errors import DescriptionError
from slackwater.progress.distributions import ConstantDelay
from slackwater.progress.periodic import PeriodicWatermarks
from slackwater.progress.sweeps import SweepForecast, SweepGeneration, combined


def forecast(
    mean_ms: float, reach_ms: float, confidence: float = 0.95, epochs: int = 40
) -> SweepForecast:
    early = (1 - confidence) / 2
    return SweepForecast(
        mean_ms, reach_ms / 2, mean_ms - reach_ms, mean_ms + reach_ms, confidence, early, epochs
    )


@given(
    st.integers(1, 5_000), st.integers(0, 3_000), st.integers(-4_000, 4_000), st.integers(0, 10**13)
)
def test_a_periodic_sweep_is_sent_at_the_first_instant_that_reaches_the_deadline(
    period_ms: int, lag_ms: int, phase_ms: int, deadline_ms: int
) -> None:
    sent_ms = SweepGeneration.periodic(period_ms, lag_ms, phase_ms).generated_ms(deadline_ms)
    assert (sent_ms - phase_ms) % period_ms == 0
    assert sent_ms - lag_ms >= deadline_ms
    assert sent_ms - period_ms - lag_ms < deadline_ms


@given(st.integers(1, 700), st.integers(0, 900), st.integers(1, 20_000))
def test_without_delay_the_sweep_comes_in_when_it_is_sent(
    period_ms: int, lag_ms: int, after_ms: int
) -> None:
    sent = PeriodicWatermarks(
        ConstantDelay(0), salt=1, period_ms=period_ms, lag_ms=lag_ms, start_ms=0
    )
    generation = SweepGeneration.periodic(period_ms, lag_ms)
    assert sent.sweep_arrival_ms(after_ms) == generation.generated_ms(after_ms)


def test_what_is_not_known_is_left_to_the_lag() -> None:
    assert SweepGeneration.unknown().generated_ms(3_000) == 3_000
    assert SweepGeneration.bounded(500).generated_ms(3_000) == 3_500


def test_a_joined_window_waits_for_the_input_that_is_clearly_last() -> None:
    last = forecast(900.0, 40.0, epochs=7)
    both = combined([forecast(100.0, 50.0), last])
    assert both is not None
    assert (both.low_ms, both.epochs) == (last.low_ms, 7)
    assert both.high_ms == pytest.approx(last.high_ms, abs=0.2)
    assert both.mean_ms == pytest.approx(last.mean_ms)
    assert both.deviation_ms == pytest.approx(last.deviation_ms)


def test_moments_of_the_later_of_two_are_those_of_a_simulation() -> None:
    rng = np.random.default_rng(2)
    later = np.maximum(rng.normal(100, 20, 400_000), rng.normal(110, 10, 400_000))
    both = combined([forecast(100.0, 40.0), forecast(110.0, 20.0)])
    assert both is not None
    assert both.mean_ms == pytest.approx(later.mean(), abs=0.2)
    assert both.deviation_ms == pytest.approx(later.std(), abs=0.2)


def test_times_of_today_lose_no_precision() -> None:
    base_ms = 1.7e12
    early = combined([forecast(100.0, 40.0), forecast(110.0, 20.0)])
    today = combined([forecast(base_ms + 100.0, 40.0), forecast(base_ms + 110.0, 20.0)])
    assert early is not None
    assert today is not None
    assert today.mean_ms - base_ms == pytest.approx(early.mean_ms, abs=0.01)
    assert today.deviation_ms == pytest.approx(early.deviation_ms, rel=1e-6)


def test_certain_inputs_combine_to_the_last_of_them() -> None:
    sure = combined([forecast(100.0, 0.0), forecast(130.0, 0.0)])
    assert sure is not None
    assert (sure.mean_ms, sure.low_ms, sure.high_ms, sure.deviation_ms) == (130, 130, 130, 0)


def test_an_unknown_input_leaves_the_whole_unknown() -> None:
    assert combined([]) is None
    assert combined([forecast(1.0, 1.0), None]) is None
    assert combined([None, forecast(1.0, 1.0)]) is None


def test_forecasts_that_cannot_be_are_refused() -> None:
    with pytest.raises(DescriptionError, match=r"confidence=1\.5"):
        forecast(1.0, 1.0, confidence=1.5)
    with pytest.raises(DescriptionError, match="low_ms="):
        forecast(1.0, -1.0)
    with pytest.raises(DescriptionError, match=r"early=0\.5"):
        SweepForecast(1.0, 1.0, 0.0, 2.0, 0.95, 0.5, 3)
    with pytest.raises(DescriptionError, match="low_ms=nan"):
        SweepForecast(1.0, 1.0, math.nan, 2.0, 0.95, 0.0, 3)
    with pytest.raises(DescriptionError, match="the same"):
        combined([forecast(1.0, 1.0), forecast(1.0, 1.0, confidence=0.9)])
    with pytest.raises(DescriptionError, match="period_ms=0"):
        SweepGeneration.periodic(0, 0)
