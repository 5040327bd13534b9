from __future__ import annotations

from slackwater.progress.coverage import RECENT, Coverage, CoverageCounter
from slackwater.progress.sweeps import SweepForecast

FORECAST = SweepForecast(100.0, 10.0, 80.0, 120.0, 0.95, 0.025, 40)


def test_both_ends_of_the_interval_belong_to_it() -> None:
    counter = CoverageCounter()
    for arrived_ms in (79.9, 80.0, 120.0, 120.1):
        counter.record(FORECAST, arrived_ms)
    assert counter.coverage == Coverage(4, 2, 4, 2, 160.0)
    assert counter.coverage.mean_width_ms == 40.0


def test_recent_misses_show_when_the_total_hides_them() -> None:
    counter = CoverageCounter()
    for _ in range(900):
        counter.record(FORECAST, 100.0)
    for _ in range(RECENT):
        counter.record(FORECAST, 500.0)
    assert counter.coverage.share == 0.9
    assert counter.coverage.recent_share == 0.0


def test_what_was_not_forecast_does_not_count() -> None:
    counter = CoverageCounter()
    counter.record(None, 100.0)
    assert counter.coverage == Coverage()
    assert counter.coverage.share is None
    assert counter.coverage.recent_share is None
    assert counter.coverage.mean_width_ms is None


def test_queries_add_up() -> None:
    total = Coverage.total([Coverage(4, 2, 4, 2, 160.0), Coverage(6, 6, 1, 1, 40.0), Coverage()])
    assert total == Coverage(10, 8, 5, 3, 200.0)
    assert total.share == 0.8
