from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from slackwater.errors import DescriptionError
from slackwater.progress.distributions import (
    NAMED_DELAYS,
    BurstDelay,
    ConstantDelay,
    DelayDistribution,
    ExponentialDelay,
    GammaDelay,
    LateDelay,
    LogNormalDelay,
    NormalDelay,
    UniformDelay,
    ZipfDelay,
    delay_named,
)
from slackwater.progress.tables import AliasTable, zipf_shares

# The middles of a million equal bins: what an ideal sample would hold.
EVEN = (np.arange(1_000_000) + 0.5) / 1_000_000
LATE = [
    NormalDelay(100, 30),
    NormalDelay(20, 30),  # a quarter of it would be negative
    BurstDelay((20, 80, 180), 4),
    LateDelay(0.2, LogNormalDelay(20_000, 1)),
    LateDelay(1.0, BurstDelay((20, 80), 4)),
]
ALL = [*NAMED_DELAYS.values(), ConstantDelay(50), UniformDelay(10, 20), GammaDelay(2, 5), *LATE]


@pytest.mark.parametrize("delay", ALL, ids=repr)
def test_draws_have_the_mean_they_promise(delay: DelayDistribution) -> None:
    assert delay.draw(EVEN).mean() == pytest.approx(delay.mean_ms, rel=2e-3)


@pytest.mark.parametrize("delay", ALL, ids=repr)
@pytest.mark.parametrize("p", [0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 0.9999])
def test_draws_have_the_quantiles_they_promise(delay: DelayDistribution, p: float) -> None:
    drawn = np.sort(delay.draw(EVEN))[int(p * len(EVEN))]
    assert drawn == pytest.approx(delay.quantile(p), rel=5e-3, abs=0.05)


@pytest.mark.parametrize("delay", ALL, ids=repr)
def test_no_delay_is_negative_or_infinite(delay: DelayDistribution) -> None:
    extremes = delay.draw(np.array([0.0, 2.0**-32, 0.5, 1 - 2.0**-32]))
    assert np.isfinite(extremes).all()
    assert (extremes >= 0).all()
    assert delay.quantile(0.0) >= 0


def test_spread_follows_theory() -> None:
    assert ExponentialDelay(240).draw(EVEN).std() == pytest.approx(240, rel=0.01)
    assert GammaDelay(60, 4).draw(EVEN).std() == pytest.approx(4 * math.sqrt(60), rel=0.01)
    assert GammaDelay(2, 5).draw(EVEN).std() == pytest.approx(5 * math.sqrt(2), rel=0.01)
    logs = np.log(LogNormalDelay(200, 1).draw(EVEN))
    assert (logs.mean(), logs.std()) == pytest.approx((math.log(200), 1), rel=0.01)


def test_gamma_quantiles_follow_the_erlang_law() -> None:
    for p in (0.001, 0.1, 0.5, 0.9, 0.999):
        x = GammaDelay(2, 1).quantile(p)
        assert 1 - math.exp(-x) * (1 + x) == pytest.approx(p, abs=1e-6)


def test_zipf_gives_each_millisecond_its_share() -> None:
    values, counts = np.unique(ZipfDelay(0.99, 1_000).draw(EVEN), return_counts=True)
    assert values.tolist() == list(range(1, 1_001))
    assert counts / len(EVEN) == pytest.approx(zipf_shares(1_000, 0.99), abs=1e-5)


def test_alias_cells_add_up_to_the_shares_exactly() -> None:
    shares = zipf_shares(1_000, 0.99)
    table = AliasTable.of(shares)
    found = table.chances + np.bincount(table.others, 1 - table.chances, minlength=1_000)
    assert found / 1_000 == pytest.approx(shares, abs=1e-9)


@pytest.mark.parametrize("shares", [[1.0], [0.5, 0.5], [0.1, 0.2, 0.7], [0.0, 1.0]])
def test_alias_table_gives_each_outcome_its_share(shares: list[float]) -> None:
    drawn = AliasTable.of(np.array(shares)).draw(EVEN)
    counts = np.bincount(drawn, minlength=len(shares))
    assert counts / len(EVEN) == pytest.approx(shares, abs=1e-5)


def test_equal_distributions_are_equal_and_hash_alike() -> None:
    assert hash(GammaDelay(60.0, 4.0)) == hash(delay_named("gamma"))
    assert GammaDelay(60.0, 4.0) == delay_named("gamma")


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(DescriptionError, match=r"delay='weibull'.*lognormal"):
        delay_named("weibull")


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: ConstantDelay(-1), "delay_ms"),
        (lambda: ConstantDelay(math.inf), "delay_ms"),
        (lambda: UniformDelay(5, 5), "high_ms"),
        (lambda: ZipfDelay(0.99, 0), "max_ms"),
        (lambda: ExponentialDelay(0), "scale_ms"),
        (lambda: GammaDelay(0.5, 1), "shape"),
        (lambda: LogNormalDelay(1, 0), "sigma"),
        (lambda: ConstantDelay(1).quantile(1.0), "p=1.0"),
    ],
)
def test_impossible_parameters_are_named(make: object, field: str) -> None:
    assert callable(make)
    with pytest.raises(DescriptionError, match=field):
        make()


def test_bursts_come_about_their_moments() -> None:
    drawn = BurstDelay((20, 80, 180), 4).draw(EVEN)
    for centre_ms in (20, 80, 180):
        near = drawn[np.abs(drawn - centre_ms) < 20]
        assert len(near) / len(drawn) == pytest.approx(1 / 3, abs=3e-3)
        assert (near.mean(), near.std()) == pytest.approx((centre_ms, 4), rel=0.05)


def test_watermarks_wait_for_records_but_not_for_late_ones() -> None:
    late = LateDelay(0.2, LogNormalDelay(20_000, 1))
    assert late.waited_for_ms == 0
    assert (late.draw(EVEN) == 0).mean() == pytest.approx(0.8, abs=1e-6)
    assert ExponentialDelay(240).waited_for_ms == ExponentialDelay(240).quantile(0.999)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: NormalDelay(-1, 1), "centre_ms=-1"),
        (lambda: NormalDelay(1, 0), "deviation_ms=0"),
        (lambda: BurstDelay((), 1), "centres_ms"),
        (lambda: BurstDelay((5, -5), 1), "centres_ms=-5"),
        (lambda: LateDelay(0, NormalDelay(1, 1)), "share=0"),
        (lambda: LateDelay(1.5, NormalDelay(1, 1)), "share=1.5"),
    ],
)
def test_late_delays_that_cannot_be_are_refused(
    make: Callable[[], DelayDistribution], said: str
) -> None:
    with pytest.raises(DescriptionError, match=said):
        make()
