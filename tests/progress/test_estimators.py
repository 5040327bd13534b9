"""What every estimator promises, and what is particular to each."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.errors import DescriptionError
from slackwater.progress.epochs import DelayMoments
from slackwater.progress.estimators import (
    NormalEstimator,
    QuantileEstimator,
    RegressionEstimator,
    SweepEstimator,
)
from slackwater.progress.sweeps import SweepForecast, SweepGeneration

UNKNOWN = SweepGeneration.unknown()
every_estimator = pytest.mark.parametrize(
    "kind", [QuantileEstimator, NormalEstimator, RegressionEstimator]
)


def taught(kind: type[SweepEstimator], lags_ms: list[float], **options: float) -> SweepEstimator:
    estimator = kind(UNKNOWN, **options)  # type: ignore[arg-type]
    for window, lag_ms in enumerate(lags_ms):
        estimator.observe(1_000 * window, 1_000 * window + lag_ms)
    return estimator


def forecast(estimator: SweepEstimator, deadline_ms: int = 10_000_000) -> SweepForecast:
    found = estimator.forecast(deadline_ms)
    assert found is not None
    return found


@every_estimator
def test_nothing_is_forecast_before_anything_was_seen(kind: type[SweepEstimator]) -> None:
    assert kind(UNKNOWN).forecast(1_000) is None


@every_estimator
@given(lags_ms=st.lists(st.floats(-1e4, 1e6), min_size=1, max_size=60))
def test_any_lags_give_a_sound_forecast(kind: type[SweepEstimator], lags_ms: list[float]) -> None:
    estimator = taught(kind, lags_ms)
    found = forecast(estimator, 1_000 * len(lags_ms))
    assert found.low_ms <= found.high_ms
    assert all(map(math.isfinite, (found.low_ms, found.high_ms, found.mean_ms)))
    assert 1 <= found.epochs <= len(lags_ms)
    assert found.epochs == estimator.epochs


@every_estimator
def test_a_forecast_moves_with_the_instant_of_sending(kind: type[SweepEstimator]) -> None:
    """Send every 200 ms, 500 behind: deadlines 3,000 and 3,100 are swept by the same watermark."""
    estimator = kind(SweepGeneration.periodic(200, 500))
    for window in range(1, 30):
        estimator.observe(3_000 * window, 3_000 * window + 600 + window % 3)
    one, same, other = (forecast(estimator, 300_000 + after_ms) for after_ms in (0, 100, 200))
    if kind is not RegressionEstimator:  # its line leads elsewhere for every deadline
        assert one == same
        assert other.mean_ms - one.mean_ms == pytest.approx(200)
    assert one.mean_ms == pytest.approx(300_601, abs=2)


@every_estimator
def test_constant_lags_are_forecast_exactly(kind: type[SweepEstimator]) -> None:
    found = forecast(taught(kind, [40.0] * 50))
    assert (found.low_ms, found.mean_ms, found.high_ms) == pytest.approx([10_000_040] * 3)


@every_estimator
def test_the_old_regime_is_forgotten_when_all_lags_treble(kind: type[SweepEstimator]) -> None:
    before = [100.0 + 7 * window % 11 for window in range(200)]
    after = [300.0 + 7 * window % 11 for window in range(5)]
    estimator = taught(kind, before + after)
    assert estimator.changes == 1
    found = forecast(estimator, 1_000 * 205)
    assert found.epochs <= 6
    assert found.mean_ms - 205_000 == pytest.approx(305, abs=15)


@every_estimator
def test_only_the_history_asked_for_counts(kind: type[SweepEstimator]) -> None:
    assert taught(kind, [float(7 * w % 11) for w in range(90)], history=50).epochs == 50


@every_estimator
def test_more_confidence_is_a_wider_interval(kind: type[SweepEstimator]) -> None:
    lags_ms = [float(37 * window % 101) for window in range(300)]
    widths = [forecast(taught(kind, lags_ms, confidence=f)).width_ms for f in (0.5, 0.9, 0.99)]
    assert widths == sorted(set(widths))


@every_estimator
def test_a_confidence_that_is_no_share_is_refused(kind: type[SweepEstimator]) -> None:
    with pytest.raises(DescriptionError, match="confidence=95"):
        kind(UNKNOWN, confidence=95)


@every_estimator
def test_an_arrival_that_never_was_is_refused_and_leaves_no_trace(
    kind: type[SweepEstimator],
) -> None:
    estimator = taught(kind, [30.0, 40.0])
    before = forecast(estimator)
    with pytest.raises(DescriptionError, match="arrived_ms=nan"):
        estimator.observe(3_000, math.nan)
    assert forecast(estimator) == before


def test_few_epochs_make_the_forecast_wide_and_many_narrow() -> None:
    lags_ms = [200.0 + 37 * window % 101 for window in range(400)]
    widths = [forecast(taught(QuantileEstimator, lags_ms[:n])).width_ms for n in (2, 5, 20, 400)]
    assert widths[0] > widths[1] > widths[2] > widths[3] > 90


def test_no_sweep_is_expected_before_it_is_sent_unless_clocks_have_shown_otherwise() -> None:
    in_time = forecast(taught(QuantileEstimator, [1.0, 50.0, 9.0]), 5_000)
    ahead = forecast(taught(QuantileEstimator, [-30.0, 50.0, 9.0]), 5_000)
    assert (in_time.low_ms, ahead.low_ms) == (5_000.0, 4_970.0)


def test_skewed_lags_have_their_misses_behind_and_even_ones_on_both_sides() -> None:
    skewed = forecast(taught(QuantileEstimator, [(37 * w % 401) ** 2 / 100 for w in range(400)]))
    even = forecast(taught(QuantileEstimator, [900.0 + 37 * w % 401 for w in range(400)]))
    assert (skewed.early, skewed.low_ms) == (0.0, 10_000_000.0)
    assert skewed.late == pytest.approx(0.05)
    assert even.early == even.late == pytest.approx(0.025)


def test_an_estimator_that_absorbed_another_knows_all_that_it_had_seen() -> None:
    """Move an input from one node to another after 60 windows; the new one had seen one more."""
    lags_ms = [float(37 * window % 101) for window in range(61)]
    there, here = taught(QuantileEstimator, lags_ms[:60]), QuantileEstimator(UNKNOWN)
    here.observe(60_000, 60_000 + lags_ms[60])
    assert isinstance(there, QuantileEstimator)
    here.absorb(there.lags)
    both, all_here = forecast(here, 61_000), forecast(taught(QuantileEstimator, lags_ms), 61_000)
    assert (both.epochs, both.mean_ms) == (all_here.epochs, all_here.mean_ms)
    assert both.deviation_ms == all_here.deviation_ms


def test_the_normal_interval_follows_the_delays_of_records() -> None:
    estimator = NormalEstimator(UNKNOWN)
    for window in range(4):
        estimator.observe(1_000 * window, 1_000 * window + 15, DelayMoments.of([10.0, 30.0]))
    found = forecast(estimator, 50_000)
    assert found.mean_ms == 50_020.0
    assert found.deviation_ms == pytest.approx(math.sqrt(100 * (1 + 1 / 4)))
    assert found.high_ms - found.mean_ms == pytest.approx(1.96 * found.deviation_ms, rel=1e-3)


def test_an_epoch_without_records_is_told_by_its_watermark() -> None:
    estimator = NormalEstimator(UNKNOWN)
    estimator.observe(1_000, 1_015)
    estimator.observe(2_000, 2_025, DelayMoments(0, 0.0, 0.0))
    assert forecast(estimator, 3_000).mean_ms == 3_020.0


def test_regression_follows_a_drift() -> None:
    estimator = RegressionEstimator(UNKNOWN)
    for window in range(8):  # too few for the drift to be taken as a change
        estimator.observe(1_000 * window, 1_000 * window + 10 * window)
    assert estimator.changes == 0
    assert forecast(estimator, 8_000).mean_ms == pytest.approx(8_080.0)
