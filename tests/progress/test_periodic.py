from __future__ import annotations

import pytest

from slackwater.progress.distributions import NAMED_DELAYS, ConstantDelay, DelayDistribution
from slackwater.progress.periodic import PeriodicWatermarks

START_MS = 1_700_000_000_050


def sent(delay: DelayDistribution, lag_ms: int = 250, salt: int = 3) -> PeriodicWatermarks:
    return PeriodicWatermarks(delay, salt=salt, period_ms=100, lag_ms=lag_ms, start_ms=START_MS)


@pytest.mark.parametrize("delay", NAMED_DELAYS.values(), ids=repr)
def test_a_sweep_is_announced_for_the_very_moment_it_happens(delay: DelayDistribution) -> None:
    watermarks = sent(delay)
    for deadline_ms in range(START_MS + 1_000, START_MS + 30_000, 370):
        swept_ms = watermarks.sweep_arrival_ms(deadline_ms)
        now, before = watermarks.at(swept_ms), watermarks.at(swept_ms - 1)
        assert now is not None
        assert now >= deadline_ms
        assert before is None or before < deadline_ms


@pytest.mark.parametrize("delay", NAMED_DELAYS.values(), ids=repr)
def test_watermarks_never_go_back(delay: DelayDistribution) -> None:
    watermarks = sent(delay)
    seen = [watermarks.at(START_MS + after_ms) or 0 for after_ms in range(0, 20_000, 7)]
    assert seen == sorted(seen)


def test_window_ends_on_the_grid_are_met_exactly() -> None:
    watermarks = sent(ConstantDelay(0), lag_ms=0)
    assert watermarks.sweep_arrival_ms(1_700_000_003_000) == 1_700_000_003_000


def test_nothing_is_announced_before_the_stream_starts() -> None:
    watermarks = sent(ConstantDelay(0))
    assert watermarks.at(START_MS) is None
    assert watermarks.at(START_MS + 50) == START_MS + 50 - 250


def test_watermarks_far_back_are_the_same_when_asked_again() -> None:
    watermarks = sent(NAMED_DELAYS["exp"])
    times_ms = [START_MS + 1_000 * second for second in range(1, 120)]
    first = [watermarks.at(now_ms) for now_ms in times_ms]
    assert [watermarks.at(now_ms) for now_ms in times_ms] == first
    assert [sent(NAMED_DELAYS["exp"]).at(now_ms) for now_ms in times_ms] == first
    assert [sent(NAMED_DELAYS["exp"], salt=4).at(now_ms) for now_ms in times_ms] != first
