from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.errors import DescriptionError
from slackwater.progress.epochs import DelayMoments, Epochs

delays = st.lists(st.floats(0, 1e5), min_size=1, max_size=8)


@given(st.lists(delays, min_size=1, max_size=30), st.integers(1, 12))
def test_running_totals_equal_the_averages_over_the_epochs_kept(
    run: list[list[float]], kept: int
) -> None:
    epochs = Epochs(kept)
    for delays_ms in run:
        epochs.add(DelayMoments.of(delays_ms))
    last = run[-kept:]
    mean = statistics.fmean(statistics.fmean(epoch) for epoch in last)
    square = statistics.fmean(statistics.fmean(d * d for d in epoch) for epoch in last)
    assert len(epochs) == len(last)
    assert math.isclose(epochs.mean_ms, mean, rel_tol=1e-9, abs_tol=1e-6)
    assert math.isclose(epochs.second_moment_ms2, square, rel_tol=1e-9, abs_tol=1e-3)
    assert epochs.variance_ms2 >= 0.0


@given(st.lists(delays, min_size=1, max_size=20), st.integers(0, 20))
def test_forgotten_epochs_leave_no_trace(run: list[list[float]], kept: int) -> None:
    epochs, fresh = Epochs(), Epochs()
    for delays_ms in run:
        epochs.add(DelayMoments.of(delays_ms))
    epochs.keep_last(kept)
    for delays_ms in run[max(len(run) - kept, 0) :]:
        fresh.add(DelayMoments.of(delays_ms))
    assert len(epochs) == len(fresh)
    assert math.isclose(epochs.mean_ms, fresh.mean_ms, rel_tol=1e-12)
    assert math.isclose(epochs.second_moment_ms2, fresh.second_moment_ms2, rel_tol=1e-12)


def test_every_epoch_counts_alike_however_many_records_it_had() -> None:
    epochs = Epochs()
    epochs.add(DelayMoments.of([100.0] * 1_000))
    epochs.add(DelayMoments.of([300.0]))
    assert epochs.mean_ms == 200.0


def test_an_epoch_without_records_says_nothing() -> None:
    epochs = Epochs()
    epochs.add(DelayMoments(0, 0.0, 0.0))
    assert (len(epochs), epochs.mean_ms, epochs.variance_ms2) == (0, 0.0, 0.0)


@given(delays, delays)
def test_moments_of_partitions_add_up(one: list[float], other: list[float]) -> None:
    pooled, whole = DelayMoments.of(one) + DelayMoments.of(other), DelayMoments.of(one + other)
    assert pooled.count == whole.count
    assert math.isclose(pooled.sum_ms, whole.sum_ms, rel_tol=1e-12)
    assert math.isclose(pooled.squares_ms2, whole.squares_ms2, rel_tol=1e-12)


def test_moments_that_cannot_be_are_refused() -> None:
    with pytest.raises(DescriptionError, match="count=-1"):
        DelayMoments(-1, 0.0, 0.0)
    with pytest.raises(DescriptionError, match="sum_ms=nan"):
        DelayMoments(1, math.nan, 0.0)
    with pytest.raises(DescriptionError, match="kept=0"):
        Epochs(0)
