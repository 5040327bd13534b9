import json
from dataclasses import replace

import pytest

from slackwater.runtime.reports import PaneReport, StepReport, StepTimes
from slackwater_lab.bench.figures import (
    FURTHER_FIELDS,
    PROFILE_FIELDS,
    RESULT_FIELDS,
    Measured,
    figures,
    mean_times,
)
from slackwater_lab.bench.options import BenchOptions
from slackwater_lab.bench.ours import Collector
from slackwater_lab.workloads.due import Span

SPAN = Span(10_000, 20_000)
DUE = {("a", 12_000): 12_100.0, ("a", 15_000): 15_100.0, ("b", 13_000): 13_100.0}


def pane(query: str, end_ms: int, committed_ms: float, timing: str = "on_time") -> PaneReport:
    return PaneReport(query, end_ms - 3_000, end_ms, 0, timing, 100, None, committed_ms)


def step(committed_ms: float, *panes: PaneReport, run_ms: float = 40.0) -> StepReport:
    return StepReport(
        step=1,
        queries=tuple(sorted({pane.query for pane in panes})) or ("a",),
        template=0,
        events=3_000,
        prepared=True,
        panes=panes,
        times=StepTimes(run=run_ms),
        started_ms=committed_ms - 50,
        committed_ms=committed_ms,
    )


def measured(collector: Collector) -> Measured:
    return Measured(
        span=SPAN,
        due=DUE,
        out=collector.out,
        events=sum(report.events for report in collector.steps),
        steps=len(collector.steps),
        served=sum(len(report.queries) for report in collector.steps),
        late_rows=0,
        decide_ms=[1.0, 3.0],
        times=mean_times(collector.steps),
    )


def collected(*reports: StepReport) -> Collector:
    collector = Collector(dict(DUE), SPAN)
    for report in reports:
        collector.step_committed(report)
    return collector


def test_latency_counts_from_the_windows_end_and_propagation_from_its_watermark() -> None:
    both = step(12_300, pane("a", 12_000, 12_300)), step(13_500, pane("b", 13_000, 13_500))
    result = figures(BenchOptions(), "deadline", measured(collected(*both)))
    assert (result["mean_ms"], result["max_ms"], result["p50_ms"]) == (400.0, 500.0, 400.0)
    assert (result["propagation_mean_ms"], result["propagation_p50_ms"]) == (300.0, 300.0)


def test_a_window_that_never_fired_is_due_all_the_same() -> None:
    result = figures(
        BenchOptions(), "deadline", measured(collected(step(12_300, pane("a", 12_000, 12_300))))
    )
    assert (result["windows_fired"], result["windows_due"]) == (1, 3)


def test_a_window_that_is_due_may_fire_after_the_span() -> None:
    collector = collected(step(20_400, pane("a", 15_000, 20_400)))
    result = figures(BenchOptions(), "deadline", measured(collector))
    assert (result["windows_fired"], result["max_ms"]) == (1, 5_400.0)
    assert (result["steps"], result["events"]) == (0, 0)


def test_only_the_first_on_time_pane_of_a_window_counts() -> None:
    collector = collected(
        step(12_250, pane("a", 12_000, 12_250, timing="early")),
        step(12_300, pane("a", 12_000, 12_300)),
        step(12_900, pane("a", 12_000, 12_900, timing="late")),
        step(13_000, pane("a", 12_000, 13_000)),
    )
    assert collector.out == {("a", 12_000): 12_300}
    assert collector.missing == {("a", 15_000), ("b", 13_000)}


def test_windows_that_are_not_due_leave_no_trace_in_the_latencies() -> None:
    collector = collected(step(10_050, pane("a", 9_000, 10_050)))
    result = figures(BenchOptions(), "deadline", measured(collector))
    assert (result["windows_fired"], result["mean_ms"]) == (0, None)


def test_steps_of_the_warm_up_and_the_drain_are_left_out() -> None:
    together = step(12_300, pane("a", 12_000, 12_300), pane("b", 13_000, 12_300), run_ms=20.0)
    collector = collected(step(9_999), together, step(14_000), step(20_000))
    result = figures(BenchOptions(), "deadline", measured(collector))
    assert (result["steps"], result["events"], result["queries_per_step"]) == (2, 6_000, 1.5)
    assert result["events_per_s"] == 600.0
    assert result["times"]["run"] == 30.0


def test_overhead_is_the_share_of_time_spent_deciding() -> None:
    result = figures(BenchOptions(), "deadline", measured(collected()))
    assert result["overhead_share"] == pytest.approx(4.0 / 10_000)
    assert (result["decide_mean_ms"], result["decide_p99_ms"]) == (2.0, 2.98)


def test_results_have_exactly_the_fields_that_are_promised() -> None:
    seen = measured(collected(step(12_300, pane("a", 12_000, 12_300))))
    without = figures(BenchOptions(), "deadline", seen)
    assert tuple(without) == RESULT_FIELDS + FURTHER_FIELDS
    with_profile = figures(BenchOptions(profile=True), "deadline", seen)
    assert tuple(with_profile) == RESULT_FIELDS + FURTHER_FIELDS + PROFILE_FIELDS
    assert with_profile["latencies_ms"] == [300.0]
    assert json.loads(json.dumps(with_profile)) == with_profile


def test_a_profile_tells_of_each_window_when_it_was_due_and_how_late_it_was() -> None:
    both = step(13_500, pane("b", 13_000, 13_500)), step(12_300, pane("a", 12_000, 12_300))
    result = figures(BenchOptions(profile=True), "deadline", measured(collected(*both)))
    assert result["windows"] == [[12_100.0, 300.0, 200.0], [13_100.0, 500.0, 400.0]]


def test_slowdown_is_propagation_over_the_cost_of_a_step_of_ones_own() -> None:
    both = step(12_300, pane("a", 12_000, 12_300)), step(13_500, pane("b", 13_000, 13_500))
    seen = replace(measured(collected(*both)), own_step_ms={"a": 50.0, "b": 200.0})
    result = figures(BenchOptions(load=0.9), "deadline", seen)
    assert (result["slowdown_mean"], result["slowdown_p50"]) == (3.0, 3.0)  # 200 / 50, 400 / 200
    assert result["load"] == 0.9
    assert figures(BenchOptions(), "deadline", measured(collected(*both)))["slowdown_mean"] is None


def test_what_does_not_apply_is_null() -> None:
    seen = replace(measured(collected()), decide_ms=None, times=None, late_rows=None)
    result = figures(BenchOptions(), "stock", seen)
    for field in ("mean_ms", "overhead_share", "decide_mean_ms", "times", "swm_coverage"):
        assert result[field] is None
