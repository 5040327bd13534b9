from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sampling_tables import Kept

from slackwater.errors import DescriptionError
from slackwater.runtime.sampler import QuerySampler
from slackwater_lab.bench.sampled import PlanningWatch, SampledRun, _errors
from slackwater_lab.simulate.sampled_workloads import SAMPLED_WORKLOADS

END = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=3)


def pane(campaign: int, views: float, low: float, high: float) -> dict[str, Any]:
    return {
        "query": "q",
        "window_end": END,
        "pane": 0,
        "accuracy": 0.25,
        "campaign_id": campaign,
        "views": views,
        "views_low": low,
        "views_high": high,
        "met": True,
    }


def test_the_total_counts_unless_groups_do() -> None:
    rows = [pane(1, 90.0, 80.0, 100.0), pane(2, 110.0, 101.0, 119.0)]
    truth = {("q", 3_000, 1): 100.0, ("q", 3_000, 2): 100.0}
    total = _errors(SampledRun(), "views", rows, truth)
    assert (total["results"], total["within"], total["error_max"]) == (1, 1.0, 0.0)
    assert total["bounds_held"] == 0.5
    assert total["sampled_share"] == 0.25
    groups = _errors(SampledRun(groups=0.1), "views", rows, truth)
    assert (groups["results"], groups["within"]) == (2, 0.0)
    assert groups["error_max"] == pytest.approx(0.1)


def test_a_window_without_result_is_an_error_of_all() -> None:
    truth = {("q", 3_000, 1): 100.0, ("q", 6_000, 1): 100.0}
    found = _errors(SampledRun(), "views", [pane(1, 100.0, 90.0, 110.0)], truth)
    assert (found["results"], found["within"], found["error_max"]) == (2, 0.5, 1.0)


def test_planning_is_watched_only_for_as_long_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def planned(sampler: object, rounds: int) -> int:
        return sum(range(rounds))

    monkeypatch.setattr(QuerySampler, "planned", planned)
    with PlanningWatch() as watch:
        found: Any = QuerySampler.planned
        assert found(None, 100_000) == 4_999_950_000
    assert watch.spent_ms > 0.0
    restored: Any = QuerySampler.planned
    assert restored is planned


@pytest.mark.parametrize(
    "settings",
    [
        {"workload": "lrb"},
        {"stream": "XX"},
        {"methods": ("early", "guess")},
        {"rate": 1.0},
        {"warmup": 1.0},
        {"queries": 0},
    ],
)
def test_what_cannot_be_measured_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(DescriptionError, match=next(iter(settings))):
        SampledRun(**settings)


def test_tables_count_results_and_doubt_them() -> None:
    replay = SAMPLED_WORKLOADS["ysb"].replay("EG", 500.0)
    kept = Kept.of(replay.run(30))
    assert kept.results == 30
    assert kept.within <= 30
    assert 0.0 <= kept.doubt <= 1.0
