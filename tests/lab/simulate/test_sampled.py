"""How often promises are kept, over hundreds of windows drawn with fixed seeds."""

from __future__ import annotations

import numpy as np
import pytest

from slackwater.sampling.audits import binomial_tail
from slackwater_lab.simulate.sampled import ReplayedWindow
from slackwater_lab.simulate.sampled_workloads import SAMPLED_WORKLOADS

WINDOWS = 400


def shares(windows: list[ReplayedWindow], least: float = 0.0) -> tuple[int, float, float]:
    """Count results; return the shares within the error, and whose bounds held."""
    errors = np.concatenate([w.errors[w.shares >= least] for w in windows])
    held = np.concatenate([w.covered[w.shares >= least] for w in windows])
    return len(errors), float(np.mean(errors <= 0.05)), float(np.mean(held))


@pytest.mark.parametrize(
    ("name", "stream"),
    [("ysb", "CC"), ("ysb", "GG"), ("ysb", "EC"), ("ysb", "EG"), ("nyt", "EG"), ("kmeans", "GG")],
)
def test_totals_stay_within_the_error_and_bounds_hold(name: str, stream: str) -> None:
    windows = list(SAMPLED_WORKLOADS[name].replay(stream, 1_000.0).run(WINDOWS))
    count, within, held = shares(windows)
    assert count == WINDOWS
    assert all(window.early for window in windows)
    misses = round(count * (1 - within))
    assert binomial_tail(count, 0.05, misses) > 0.05
    assert held == pytest.approx(0.95, abs=0.03)
    assert np.mean([window.sampled_share for window in windows]) < 0.8


def test_every_group_above_the_share_stays_within_the_error() -> None:
    workload = SAMPLED_WORKLOADS["ysb by group"]
    windows = list(workload.replay("EG", 5_000.0, relative=0.1).run(100))
    least = workload.group_share or 0.0
    errors = np.concatenate([w.errors[w.shares >= least] for w in windows])
    _, _, held = shares(windows, least)
    assert len(errors) > 1_900
    assert np.mean(errors <= 0.1) >= 0.95
    assert held == pytest.approx(0.95, abs=0.02)


def test_bounds_recover_after_values_change_fourfold() -> None:
    windows = list(SAMPLED_WORKLOADS["shifting"].replay("EG", 1_000.0).run(WINDOWS))
    for first in range(0, WINDOWS, 100):
        _, within, held = shares(windows[first + 10 : first + 100])
        assert within >= 0.93
        assert held >= 0.9


def test_stragglers_that_differ_are_found_by_audits() -> None:
    workload = SAMPLED_WORKLOADS["stragglers differ"]
    unaudited = workload.replay("EG", 2_000.0, audit_every=10**6)
    _, _, held = shares(list(unaudited.run(100)))
    assert held < 0.5  # what the bounds rest on does not hold
    audited = workload.replay("EG", 2_000.0, audit_every=2)
    windows = list(audited.run(300))
    assert audited.audits.coverage is not None
    assert audited.audits.coverage < 0.95  # and is reported
    assert audited.audits.straggler_bias > 0.3
    assert windows[-1].wait_ms > 50  # it waits for more of them
    _, _, recovered = shares(windows[-100:])
    assert recovered > 0.9


def test_same_seed_same_windows() -> None:
    one, two = (
        [w.estimate.value.tolist() for w in SAMPLED_WORKLOADS["nyt"].replay("EG", 500.0).run(20)]
        for _ in range(2)
    )
    assert one == two
