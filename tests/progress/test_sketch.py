"""The window of lags: exact quantiles, exact forgetting, and merging in any order."""

from __future__ import annotations

import math
import statistics
from functools import reduce
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.errors import DescriptionError
from slackwater.progress.sketch import RecentLags

KEPT = 10
lag_lists = st.lists(st.integers(-50, 5_000).map(float), min_size=1, max_size=40)
timed = st.lists(
    st.tuples(st.integers(0, 60).map(float), st.integers(0, 500).map(float)), max_size=25
)


def window(pairs: list[tuple[float, float]]) -> RecentLags:
    lags = RecentLags(KEPT)
    for at_ms, lag_ms in sorted(pairs):
        lags.add(at_ms, lag_ms)
    return lags


@given(lag_lists, st.floats(0.01, 0.99))
def test_quantiles_are_exact_at_the_places_that_predict_the_next(
    lags_ms: list[float], p: float
) -> None:
    lags = window([(float(at_ms), lag_ms) for at_ms, lag_ms in enumerate(lags_ms)])
    expected = float(np.quantile(lags_ms[-KEPT:], p, method="weibull"))
    assert math.isclose(lags.quantile_ms(p), expected, rel_tol=1e-9, abs_tol=1e-6)


@given(lag_lists)
def test_moments_are_those_of_the_lags_kept(lags_ms: list[float]) -> None:
    lags = window([(float(at_ms), lag_ms) for at_ms, lag_ms in enumerate(lags_ms)])
    last = lags_ms[-KEPT:]
    assert [lag_ms for _, lag_ms in lags] == last
    assert lags.least_ms == min(last)
    assert math.isclose(lags.mean_ms, statistics.fmean(last), abs_tol=1e-6)
    deviation_ms = statistics.stdev(last) if len(last) > 1 else 0.0
    assert math.isclose(lags.deviation_ms, deviation_ms, abs_tol=1e-4)


@given(timed, timed, timed)
def test_merging_gives_the_newest_of_all_in_whatever_order(
    a: list[tuple[float, float]], b: list[tuple[float, float]], c: list[tuple[float, float]]
) -> None:
    whole = list(window(a + b + c))
    for order in permutations([a, b, c]):
        one, two, three = map(window, order)
        assert list(one.merged(two).merged(three)) == whole
        assert list(one.merged(two.merged(three))) == whole


def test_a_merged_window_forecasts_like_one_that_saw_everything() -> None:
    rng = np.random.default_rng(5)
    lags_ms = rng.exponential(240.0, 400).tolist()
    parts = [RecentLags() for _ in range(4)]
    whole = RecentLags()
    for at_ms, lag_ms in enumerate(lags_ms):
        parts[at_ms % 4].add(at_ms, lag_ms)
        whole.add(at_ms, lag_ms)
    merged = reduce(RecentLags.merged, parts)
    for p in (0.025, 0.5, 0.975):
        assert merged.quantile_ms(p) == whole.quantile_ms(p)
    assert math.isclose(merged.deviation_ms, whole.deviation_ms)


@given(st.integers(1, 60))
def test_where_a_new_lag_stands_is_evenly_spread(n: int) -> None:
    lags = window([(float(i), float(i)) for i in range(n)])
    n = min(n, KEPT)
    first = float(next(iter(lags))[1])
    shares = [lags.share_below(first + place - 0.5) for place in range(n + 1)]
    assert shares == pytest.approx([(place + 0.5) / (n + 1) for place in range(n + 1)])


def test_lags_that_never_change_stand_in_the_middle() -> None:
    lags = window([(float(i), 40.0) for i in range(7)])
    assert lags.share_below(40.0) == 0.5
    assert lags.deviation_ms == 0.0


def test_lags_of_years_keep_their_milliseconds() -> None:
    year_ms = 3.2e10
    lags = RecentLags()
    for at_ms in range(1_000):
        lags.add(at_ms, year_ms + at_ms % 2)
    assert math.isclose(lags.mean_ms, year_ms + 0.5)
    assert lags.deviation_ms == pytest.approx(0.5, rel=0.01)


def test_what_is_forgotten_leaves_no_trace() -> None:
    lags = window([(0.0, 900.0), (1.0, 20.0), (2.0, 10.0)])
    lags.keep_last(2)
    assert (list(lags), lags.quantile_ms(0.99)) == ([(1.0, 20.0), (2.0, 10.0)], 20.0)
    lags.keep_last(0)
    assert len(lags) == 0
    lags.add(3.0, 7.0)
    assert (lags.mean_ms, lags.deviation_ms) == (7.0, 0.0)


def test_no_lags_have_no_quantiles() -> None:
    with pytest.raises(DescriptionError, match="no lags"):
        RecentLags().quantile_ms(0.5)
