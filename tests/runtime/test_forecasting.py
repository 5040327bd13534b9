"""The watch over sweeping watermarks: inputs by themselves, the window by the last of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from slackwater.progress.epochs import DelayMoments
from slackwater.progress.sweeps import SweepGeneration
from slackwater.runtime.forecasting import SweepWatch
from slackwater.runtime.memory_gauge import MemoryGauge
from slackwater.scheduling.slot_use import SlotUse


def watched(lags_ms: list[tuple[int, int]]) -> SweepWatch:
    watch = SweepWatch([SweepGeneration.unknown(), SweepGeneration.bounded(100)])
    for window, (one_ms, other_ms) in enumerate(lags_ms):
        deadline_ms = 3_000 * (window + 1)
        watch.expect(deadline_ms)
        arrived = {0: deadline_ms + float(one_ms), 1: deadline_ms + 100.0 + other_ms}
        watch.swept(deadline_ms, arrived)
    return watch


def test_nothing_is_forecast_before_anything_was_seen() -> None:
    assert watched([]).expect(3_000) is None


def test_a_window_over_two_inputs_closes_with_the_later_one() -> None:
    forecast = watched([(10, 400), (12, 410), (14, 390), (11, 400)]).expect(15_000)
    assert forecast is not None
    assert forecast.mean_ms == pytest.approx(15_500, abs=15)


def test_coverage_compares_forecasts_with_what_came() -> None:
    watch = watched([(10, 400)] * 30)
    assert watch.coverage.coverage.forecasts == 29  # the first window had no forecast
    assert watch.coverage.coverage.share == 1.0
    watch.expect(93_000)
    watch.swept(93_000, {0: 93_010.0, 1: 99_000.0})
    assert watch.coverage.coverage.held == 29


def test_delays_of_all_steps_of_an_epoch_belong_to_its_window() -> None:
    watch = watched([])
    watch.delayed(0, DelayMoments(2, 10.0, 60.0))
    watch.delayed(0, DelayMoments(1, 5.0, 25.0))
    watch.swept(3_000, {0: 3_010.0, 1: 3_110.0})
    assert watch.expect(6_000) is not None


def test_slots_that_were_busy_long_ago_are_forgotten() -> None:
    use = SlotUse(slots=2)
    for second in range(60):
        use.passed(second * 1_000.0, busy=2)
    assert use.share == pytest.approx(1.0, abs=0.01)
    use.passed(90_000.0, busy=0)
    assert use.share < 0.01


def test_memory_is_state_and_what_spark_stores_asked_now_and_then() -> None:
    asked: list[int] = []

    def stored() -> int:
        asked.append(1)
        return 500

    def at_once(ask: Callable[[], object]) -> None:
        ask()

    gauge = MemoryGauge(10_000, stored)
    assert gauge.facts(1_500).used_bytes == 1_500
    gauge.look(0.0, at_once)
    facts = gauge.facts(1_500)
    assert (facts.used_bytes, facts.budget_bytes, facts.share) == (2_000, 10_000, 0.2)
    gauge.look(999.0, at_once)
    assert len(asked) == 1
    gauge.look(1_000.0, at_once)
    assert len(asked) == 2


def test_memory_is_not_asked_for_again_while_an_answer_is_awaited() -> None:
    waiting: list[Callable[[], object]] = []
    gauge = MemoryGauge(10_000, lambda: 500)
    gauge.look(0.0, waiting.append)
    gauge.look(5_000.0, waiting.append)
    assert len(waiting) == 1
    waiting.pop()()
    gauge.look(5_001.0, waiting.append)
    assert len(waiting) == 1
