from __future__ import annotations

import json
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import slackwater as sw
from slackwater.errors import SlackwaterError
from slackwater.runtime.reports import PaneReport, StepReport, StepTimes
from slackwater_lab.bench.calibrating import Effort, calibrate
from slackwater_lab.bench.calibration import Calibration, Sample, TemplateCost, robust_line
from slackwater_lab.bench.options import BenchOptions
from slackwater_lab.bench.trials import SkippingClock, StepSampler
from slackwater_lab.workloads.ysb import Ysb


def calibration(*costs: tuple[float, float], slots: int = 2) -> Calibration:
    templates = tuple(
        TemplateCost(variant, fixed_ms, per_event_ms, (Sample(10, 1.0),))
        for variant, (fixed_ms, per_event_ms) in enumerate(costs)
    )
    return Calibration(slots, 3_000, templates)


@given(
    fixed_ms=st.floats(0.5, 200),
    per_event_ms=st.floats(1e-5, 1e-2),
    odd=st.integers(0, 9),
    seed=st.integers(0, 99),
)
def test_a_line_is_found_though_a_quarter_of_steps_are_far_off(
    fixed_ms: float, per_event_ms: float, odd: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    events = np.repeat([1_000.0, 10_000.0, 40_000.0, 160_000.0], 10)
    took_ms = fixed_ms + per_event_ms * events
    slow = random.choice(len(events), odd, replace=False)
    took_ms[slow] += random.uniform(100, 5_000, odd)
    found_fixed_ms, found_per_event_ms = robust_line(events, took_ms)
    assert found_per_event_ms == pytest.approx(per_event_ms, rel=0.01, abs=1e-8)
    assert found_fixed_ms == pytest.approx(fixed_ms, abs=0.01 * fixed_ms + 0.01)


def test_no_cost_is_negative() -> None:
    assert robust_line(np.array([1.0, 1_000.0]), np.array([50.0, 10.0])) == (30.0, 0.0)
    assert robust_line(np.array([1_000.0, 3_000.0]), np.array([1.0, 5.0]))[0] == 0.0


def test_steps_of_one_size_tell_nothing_of_the_cost_of_an_event() -> None:
    with pytest.raises(SlackwaterError, match="of one size"):
        robust_line(np.array([5.0, 5.0]), np.array([1.0, 2.0]))


def test_the_rate_makes_passes_take_the_load_of_all_slots() -> None:
    costs = calibration((30.0, 0.0002), (50.0, 0.0001), slots=2)
    rate = costs.rate_for(0.9, queries=20, distinct=4)
    passes_ms = sum(
        costs.cost_of(number % 4).step_ms(rate * costs.slide_ms / 1_000) for number in range(20)
    )
    assert passes_ms / costs.slide_ms == pytest.approx(0.9 * 2)
    own_ms = costs.own_step_ms(rate, distinct=4)
    assert own_ms == [costs.cost_of(v).step_ms(rate * 3) for v in range(4)]


def test_what_shared_steps_take_longer_falls_to_their_queries() -> None:
    samples = [Sample(events, 30 + 0.001 * events) for events in (1_000, 5_000, 20_000)]
    samples += [Sample(8_000, 30 + 8 + 7 * 1.5 + off_ms, queries=8) for off_ms in (0, 0, 90)]
    cost = TemplateCost.of(0, samples)
    assert (cost.fixed_ms, cost.per_event_ms, cost.per_query_ms) == (30.0, 0.001, 1.5)


def test_a_load_that_fixed_costs_exceed_is_refused_with_the_numbers() -> None:
    costs = calibration((60.0, 0.0001), slots=2)
    with pytest.raises(SlackwaterError, match=r"load=0\.5.*80 queries.*60\.0 ms.*0\.80 on 2 slots"):
        costs.rate_for(0.5, queries=80, distinct=1)
    with pytest.raises(SlackwaterError, match="give --rate"):
        calibration((60.0, 0.0)).rate_for(0.9, queries=2, distinct=1)


def test_costs_survive_their_journey_as_json() -> None:
    costs = calibration((60.0, 0.0001), (61.5, 0.0002))
    assert Calibration.from_dict(json.loads(json.dumps(costs.to_dict()))) == costs
    assert costs.to_dict()["templates"][0]["samples"] == [[10, 1.0, 1]]


def step(*, events: int = 500, prepared: bool = True, panes: int = 1) -> StepReport:
    pane = PaneReport("q", 0, 3_000, 0, "on_time", 1, None, 3_100.0)
    return StepReport(
        1, ("q",), 0, events, prepared, (pane,) * panes, StepTimes(), 3_000.0, 3_040.0
    )


def test_only_warm_prepared_passes_are_samples() -> None:
    sampler = StepSampler()
    for _ in range(3):
        sampler.step_committed(step())
    assert sampler.take() == {}
    for report in (step(), step(prepared=False), step(panes=0), step(events=0), step(events=9)):
        sampler.step_committed(report)
    assert sampler.take() == {"q": [Sample(500, 40.0), Sample(9, 40.0)]}
    assert sampler.take() == {}


def test_a_clock_that_skips_is_at_the_moment_at_once() -> None:
    clock, signal = SkippingClock(), threading.Event()
    until_ms = clock.now_ms() + 3_600_000
    clock.wait(signal, until_ms, busy=False)
    assert clock.now_ms() >= until_ms
    signal.set()
    clock.wait(signal, until_ms + 3_600_000, busy=False)
    clock.wait(signal, until_ms + 3_600_000, busy=True)
    assert clock.now_ms() < until_ms + 3_600_000


@pytest.mark.spark
def test_real_steps_of_several_sizes_are_measured_for_each_pipeline(
    spark: SparkSession, tmp_path: Path
) -> None:
    options = BenchOptions(queries=2, distinct=2, load=4.0, delay="none", sink="memory", slots=1)
    effort = Effort(warm_up_passes=2, passes=5, sizes=(500, 50_000), most_events=100_000)
    told: list[float] = []
    costs = calibrate(
        spark,
        options,
        tmp_path,
        effort=effort,
        progress=lambda text, share: told.append(share),
    )
    assert (costs.slots, costs.slide_ms) == (1, 3_000)
    assert [template.variant for template in costs.templates] == [0, 1]
    for template in costs.templates:
        sizes = {sample.events for sample in template.samples}
        assert min(sizes) < 600
        assert max(sizes) > 90_000
        assert len(sizes) > 2
        assert all(sample.took_ms > 0 for sample in template.samples)
        assert {sample.queries for sample in template.samples} == {1, 8}
    assert told == sorted(told)


@pytest.mark.spark
def test_a_query_that_fails_is_no_measurement(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> sw.App:
        app = sw.App("broken")
        rows = app.source("events").transform(lambda df: df.where("raise_error('it broke') = 1"))
        rows.window(sw.tumbling("3 s")).aggregate(n=sw.count()).to(sw.memory())
        return app

    monkeypatch.setattr(Ysb, "app", broken)
    options = BenchOptions(queries=1, load=1.0, slots=1)
    with pytest.raises(SlackwaterError, match=r"no cost could be measured: .*it broke"):
        calibrate(spark, options, tmp_path, effort=Effort(warm_up_passes=2))
