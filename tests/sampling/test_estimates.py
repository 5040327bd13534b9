from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.sampling.estimates import (
    ErrorFunction,
    MeanError,
    Spread,
    TotalError,
    VarianceError,
    intervals,
    spreads,
)
from slackwater.sampling.ranks import extreme, quantile
from slackwater.sampling.strata import Floats, Strata, totals, variance
from slackwater.sampling.targets import Target

TARGET = Target(0.05, 0.95)


def sums_of(values: list[Floats]) -> dict[str, Floats]:
    """Sum up one group's sampled values, stratum by stratum."""
    powers = {"n": 0, "s1": 1, "s2": 2}
    found = {name: np.array([[float((v**p).sum()) for v in values]]) for name, p in powers.items()}
    means = [v.mean() if len(v) else 0.0 for v in values]
    found["mean"] = np.array([means])
    for k in (2, 3, 4):
        found[f"m{k}"] = np.array(
            [[float(((v - m) ** k).sum()) for v, m in zip(values, means, strict=True)]]
        )
    return found


def drawn(
    rng: np.random.Generator, rates: list[float], shares: list[float], size: int
) -> tuple[Strata, list[Floats], Floats]:
    """Draw a population, let part of it arrive and part of that be sampled."""
    everything, sampled, arrived = [], [], []
    for rate, share in zip(rates, shares, strict=True):
        values = rng.gamma(3.0, 2.0, size)
        here = rng.random(size) < share
        taken = here & (rng.random(size) < rate)
        everything.append(values)
        arrived.append(float(here.sum()))
        sampled.append(values[taken])
    strata = Strata(
        np.array(arrived),
        np.array([float(len(s)) for s in sampled]),
        np.array(shares),
        np.zeros(len(shares)),
    )
    return strata, sampled, np.concatenate(everything)


FUNCTIONS: list[tuple[str, ErrorFunction]] = [
    ("count", TotalError(counts=True)),
    ("sum", TotalError()),
    ("mean", MeanError()),
    ("variance", VarianceError()),
    ("deviation", VarianceError(root=True)),
]
TRUTHS = {
    "count": len,
    "sum": np.sum,
    "mean": np.mean,
    "variance": lambda v: np.var(v, ddof=1),
    "deviation": lambda v: np.std(v, ddof=1),
}


@pytest.mark.parametrize(("name", "function"), FUNCTIONS)
def test_intervals_hold_the_truth_as_often_as_they_say(name: str, function: ErrorFunction) -> None:
    rng = np.random.default_rng(5)
    held, off = 0, []
    for _ in range(600):
        strata, sampled, everything = drawn(rng, [0.3, 0.5, 1.0], [1.0, 0.9, 0.6], 1_000)
        found = intervals(strata, function.linearise(strata, sums_of(sampled)), TARGET)
        truth = float(TRUTHS[name](everything))  # type: ignore[operator]
        held += bool(found.low[0] <= truth <= found.high[0])
        off.append(found.value[0] / truth - 1)
    assert 0.92 <= held / 600 <= 0.98
    assert abs(np.mean(off)) < 0.01


@pytest.mark.parametrize("p", [0.1, 0.5, 0.95])
def test_quantile_intervals_hold_the_truth_as_often_as_they_say(p: float) -> None:
    rng = np.random.default_rng(6)
    held = 0
    for _ in range(400):
        strata, sampled, everything = drawn(rng, [0.3, 0.6], [1.0, 0.8], 1_500)
        found, _ = quantile(strata, sampled, [np.ones(len(s)) for s in sampled], p, TARGET)
        held += bool(found.low[0] <= np.quantile(everything, p) <= found.high[0])
    assert 0.92 <= held / 400 <= 0.98


@pytest.mark.parametrize(("name", "function"), FUNCTIONS)
def test_a_complete_sample_is_exact(name: str, function: ErrorFunction) -> None:
    values = [np.array([1.0, 2.0, 4.0]), np.array([3.0, 8.0])]
    strata = Strata(np.array([3.0, 2.0]), np.array([3.0, 2.0]), np.ones(2), np.zeros(2))
    found = intervals(strata, function.linearise(strata, sums_of(values)), TARGET)
    truth = float(TRUTHS[name](np.concatenate(values)))  # type: ignore[operator]
    assert found.value[0] == pytest.approx(truth)
    assert found.low[0] == found.high[0] == found.value[0]


def test_a_plain_count_depends_on_stragglers_only() -> None:
    strata = Strata(np.array([800.0]), np.array([20.0]), np.array([0.8]), np.zeros(1))
    sums = {"n": np.array([[20.0]])}
    found = TotalError(counts=True).linearise(strata, sums)
    assert found.value[0] == pytest.approx(1_000)
    assert spreads(strata, found)[0].sampling == 0.0
    complete = Strata(strata.arrived, strata.sampled, np.ones(1), np.zeros(1))
    assert variance(complete, sums["n"], sums["n"])[0] == 0.0


def test_a_small_spread_around_a_large_mean_keeps_its_digits() -> None:
    values = [1e9 + np.array([0.0, 1.0, 2.0, 3.0]), 1e9 + np.array([1.0, 2.0])]
    strata = Strata(np.array([4.0, 2.0]), np.array([4.0, 2.0]), np.ones(2), np.zeros(2))
    found = VarianceError().linearise(strata, sums_of(values))
    assert found.value[0] == pytest.approx(np.var(np.concatenate(values), ddof=1), rel=1e-6)


def test_extremes_are_bounded_on_one_side_only() -> None:
    value = np.array([7.0])
    most = extreme(value, largest=True, complete=False)
    assert most.low[0] == 7.0
    assert np.isnan(most.high[0])
    assert most.relative()[0] == np.inf
    least = extreme(value, largest=False, complete=False)
    assert np.isnan(least.low[0])
    assert extreme(value, largest=True, complete=True).relative()[0] == 0.0


@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(0, 40), st.floats(0.1, 1.0)),
        min_size=1,
        max_size=8,
    )
)
def test_collapsing_keeps_population_and_sample(cells: list[tuple[int, int, float]]) -> None:
    arrived = np.array([float(a + m) for a, m, _ in cells])
    sampled = np.array([float(m) for _, m, _ in cells])
    share = np.array([s for _, _, s in cells])
    strata = Strata(arrived, sampled, share, np.zeros(len(cells)))
    folded, labels = strata.collapsed()
    assert folded.population == pytest.approx(strata.population)
    assert folded.sampled.sum() == sampled.sum()
    assert len(labels) == len(cells)
    if sampled.sum() >= 2:
        assert (folded.sampled >= 2).all()
    assert np.isfinite(totals(folded, folded.sampled[None, :])).all()


def test_what_is_enough_for_both_is_the_larger_spread() -> None:
    assert Spread(1.0, 4.0) | Spread(2.0, 3.0) == Spread(2.0, 4.0)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), min_size=1, max_size=15))
def test_strata_of_different_groups_are_never_put_together(cells: list[tuple[int, int]]) -> None:
    cells = sorted(cells, key=lambda cell: cell[0])
    family = np.array([kind for kind, _ in cells], dtype=np.int64)
    sampled = np.array([float(taken) for _, taken in cells])
    strata = Strata(sampled + 1.0, sampled, np.ones(len(cells)), np.zeros(len(cells)))
    folded, labels = strata.collapsed(family)
    assert folded.population == pytest.approx(strata.population)
    for place in range(len(folded.arrived)):
        (kind,) = set(family[labels == place].tolist())
        enough = folded.sampled[place] >= 2.0
        assert enough or sampled[family == kind].sum() < 2.0 or (labels == place).all()
