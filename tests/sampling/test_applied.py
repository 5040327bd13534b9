from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.errors import DescriptionError
from slackwater.sampling.applied import NumberBounds, SampledWindow, judged
from slackwater.sampling.estimates import MeanError, Spread, TotalError, intervals
from slackwater.sampling.strata import Floats, Strata
from slackwater.sampling.targets import Target

TARGET = Target(0.05, 0.95)


def sampled(
    arrived: list[int], stratum: list[int], shares: list[float] | None = None, result: Any = ()
) -> SampledWindow:
    counts = np.bincount(stratum, minlength=len(arrived)).astype(np.float64)
    strata = Strata(
        np.maximum(np.array(arrived, np.float64), counts),
        counts,
        np.array(shares or [1.0] * len(arrived)),
        np.zeros(len(arrived)),
    )
    rows = list(range(len(stratum)))
    return SampledWindow(rows, result, strata, np.array(stratum, np.intp), TARGET)


values_of_strata = st.lists(
    st.tuples(st.integers(0, 2), st.floats(0.5, 100.0)), min_size=4, max_size=40
)


@given(values_of_strata, st.lists(st.floats(0.3, 1.0), min_size=3, max_size=3))
def test_values_of_rows_are_bounded_as_an_aggregate_of_them_is(
    rows: list[tuple[int, float]], shares: list[float]
) -> None:
    window = sampled([100, 200, 300], [place for place, _ in rows], shares)
    values = np.array([value for _, value in rows])
    sums = {
        name: np.bincount(window.stratum, values**power, 3).astype(np.float64)[None, :]
        for name, power in (("n", 0), ("s1", 1), ("s2", 2))
    }
    for found, function in (
        (window.mean(values), MeanError()),
        (window.total(values), TotalError()),
    ):
        wanted = intervals(window.strata, function.linearise(window.strata, sums), TARGET)
        assert found.value == pytest.approx(wanted.value)
        assert found.low == pytest.approx(wanted.low)
        assert found.high == pytest.approx(wanted.high)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=50))
def test_a_whole_window_leaves_nothing_open(values: list[float]) -> None:
    window = SampledWindow.whole(values, (), TARGET)
    mean, total = window.mean(values), window.total(values)
    assert mean.value == pytest.approx(np.mean(values), abs=1e-6)
    assert total.value == pytest.approx(np.sum(values), abs=1e-6)
    for found in (mean, total):
        assert found.low == pytest.approx(found.value) == found.high


@given(st.floats(2.0, 900.0), st.integers(1_000, 100_000))
def test_records_stated_to_be_enough_are_those_that_are_planned(
    needed: float, population: int
) -> None:
    window = sampled([population], [0] * 10)
    found = window.stated(1.0, 0.9, 1.1, needed=needed)
    assert window.enough(found.spread) == pytest.approx(needed, rel=1e-6)


@given(values_of_strata, st.integers(2, 5))
def test_rows_of_a_result_are_bounded_by_their_own_rows(
    rows: list[tuple[int, float]], groups: int
) -> None:
    window = sampled([100, 200, 300], [place for place, _ in rows], result=range(groups))
    values = np.array([value for _, value in rows])
    of = np.arange(len(rows)) % groups
    each, every = window.total(values, of=of), window.total(values)
    assert len(each.value) == groups
    assert np.nansum(each.value) == pytest.approx(every.value[0])
    assert np.isnan(each.value).tolist() == [group not in of for group in range(groups)]


def test_bounds_hold_as_often_as_they_say() -> None:
    rng, held = np.random.default_rng(11), 0
    for _ in range(400):
        whole = rng.gamma(3.0, 2.0, 4_000)
        taken = rng.random(4_000) < 0.1
        window = sampled([4_000], [0] * int(taken.sum()))
        found = window.mean(whole[taken])
        held += bool(found.low[0] <= whole.mean() <= found.high[0])
    assert 0.92 <= held / 400 <= 0.98


def test_a_scaled_number_takes_its_bounds_along() -> None:
    found = NumberBounds(np.array([2.0]), np.array([1.0]), np.array([4.0]), Spread(1.0, 1.0))
    twice = found.scaled(2.0)
    assert [each.item() for each in (twice.value, twice.low, twice.high)] == [4.0, 2.0, 8.0]
    assert twice.relative() == found.relative() == 1.0


def some(count: int) -> Floats:
    return np.ones(count)


@pytest.mark.parametrize(
    ("message", "function"),
    [
        ("returns float", lambda window: 0.5),
        ("3 numbers", lambda window: window.stated(some(3), some(3), some(3), needed=5)),
        ("one for each row", lambda window: window.mean(some(3))),
        ("needed=0", lambda window: window.stated(1.0, 1.0, 1.0, needed=0)),
    ],
)
def test_what_says_nothing_of_the_result_is_refused(message: str, function: Any) -> None:
    window = sampled([10], [0] * 5, result=range(2))
    with pytest.raises(DescriptionError, match=message):
        judged(window, {"cost": function}, 2)
