"""The replay: the same scenario gives the same figures, nothing is lost, and orders hold."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from slackwater.errors import DescriptionError
from slackwater.scheduling.costs import StepCost
from slackwater.scheduling.policies import POLICIES, policy_named
from slackwater_lab.simulate.clairvoyant import clairvoyant, least_ms
from slackwater_lab.simulate.model import Scenario, StepNoise, rate_for_load, uniform_queries
from slackwater_lab.simulate.published import WORKLOADS, paper_scenario
from slackwater_lab.simulate.recorded import recorded_costs
from slackwater_lab.simulate.replay import replay

CALM = StepNoise(spread=0.0, one_in=10**9, pause_ms=0.0)


def scenario(
    *,
    load: float = 0.9,
    queries: int = 12,
    distinct: int = 3,
    seconds: float = 12.0,
    slots: int = 2,
    noise: StepNoise | None = None,
    bytes_per_row: float = 0.0,
    memory_budget_bytes: float = math.inf,
    delay: str = "uniform",
    per_event_ms: float = 0.02,
    size_ms: int = 1_500,
) -> Scenario:
    cost = StepCost(30.0, per_event_ms, observations=100, most_events=10**7)
    costs = (cost,) * distinct
    rate = rate_for_load(load, costs, queries=queries, slide_ms=1_500, slots=slots)
    made = uniform_queries(
        count=queries,
        distinct=distinct,
        size_ms=size_ms,
        slide_ms=1_500,
        rate=rate,
        delay=delay,
        bytes_per_row=bytes_per_row,
    )
    return Scenario(
        made,
        costs,
        slots,
        seconds,
        warmup_s=6.0,
        noise=noise or StepNoise(),
        memory_budget_bytes=memory_budget_bytes,
    )


@pytest.mark.parametrize("name", ["default", "klink"])
def test_buffered_input_is_read_when_it_is_handed_over(name: str) -> None:
    calm = scenario(load=0.3, noise=CALM)
    buffered = replace(calm, buffer_ms=250.0)
    at_once, later = (replay(each, policy_named(name)) for each in (calm, buffered))
    assert later.unfired == 0
    assert len(later.latencies_ms) == pytest.approx(len(at_once.latencies_ms), abs=12)
    assert later.served <= 12 * (4 * calm.seconds + 1)
    assert later.events == pytest.approx(at_once.events, rel=0.05)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_window_comes_out_under_every_policy(name: str) -> None:
    outcome = replay(scenario(load=0.7), policy_named(name))
    assert outcome.unfired == 0
    assert len(outcome.propagations_ms) == pytest.approx(12 * 12_000 / 1_500, abs=12)
    assert min(outcome.propagations_ms) >= 0


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_the_same_scenario_gives_the_same_figures(name: str) -> None:
    one, two = (replay(scenario(), policy_named(name)) for _ in range(2))
    assert one.propagations_ms == two.propagations_ms


@pytest.mark.parametrize("name", sorted(set(POLICIES) - {"highest_rate"}))
def test_nobody_starves_under_overload(name: str) -> None:
    """Every query gets windows out although there is more to do than slots can."""
    overloaded = scenario(load=1.3, seconds=30.0)
    outcome = replay(overloaded, policy_named(name))
    assert len(outcome.propagations_ms) > 60
    assert outcome.unfired <= 12


def test_least_slack_first_beats_turns_and_is_near_foresight() -> None:
    """The order that the design rests on; figures are in the docs."""
    small = scenario(seconds=9.0, queries=8, distinct=4)
    means = {
        name: replay(small, policy_named(name)).mean_ms for name in ("default", "fcfs", "klink")
    }
    best = clairvoyant(small).mean_ms
    assert means["klink"] < means["fcfs"] < means["default"]
    assert least_ms(small) <= best <= means["klink"] * 1.05


def test_without_noise_a_lone_query_takes_exactly_its_own_step() -> None:
    lone = scenario(queries=1, distinct=1, load=0.05, slots=1, noise=CALM, delay="none")
    outcome = replay(lone, policy_named("klink_no_memory"))
    step_ms = lone.costs[0].duration_ms(int(lone.queries[0].rate_per_ms * 1_500))
    assert max(outcome.propagations_ms) <= step_ms + 1
    assert min(outcome.propagations_ms) >= lone.costs[0].fixed_ms


def test_the_memory_policy_lowers_the_peak_and_loses_no_window() -> None:
    def peak(name: str, budget: float) -> tuple[int, int]:
        held = scenario(load=0.6, seconds=30.0, bytes_per_row=100.0, memory_budget_bytes=budget)
        outcome = replay(held, policy_named(name))
        return outcome.peak_bytes, outcome.unfired

    free, unfired = peak("klink_no_memory", math.inf)
    bounded, unfired_bounded = peak("klink", free * 0.8)
    assert unfired == unfired_bounded == 0
    assert bounded <= 0.75 * free


def test_watermarks_come_in_when_they_are_expected() -> None:
    outcome = replay(scenario(seconds=120.0, load=0.7), policy_named("klink"))
    assert outcome.coverage.share == pytest.approx(0.95, abs=0.03)


def test_the_papers_scenario_fills_its_slots() -> None:
    outcome = replay(paper_scenario(WORKLOADS[0], 0.8, minutes=0.05), policy_named("deadline"))
    assert outcome.busy_ms / (outcome.span_ms * 24) == pytest.approx(0.8, abs=0.15)


def test_recorded_steps_give_costs_and_noise() -> None:
    samples = [{"events": 1_000, "took_ms": 41.0 * factor} for factor in [0.9, 1.1] * 20 + [3.0]]
    template = {"fixed_ms": 40.0, "per_event_ms": 0.001, "samples": samples}
    (cost,), noise = recorded_costs({"templates": [template]})
    assert (cost.fixed_ms, cost.per_event_ms) == (40.0, 0.001)
    assert noise.spread == pytest.approx(0.1, abs=0.01)
    assert noise.one_in == 41


def test_what_is_no_calibration_is_refused_with_the_remedy() -> None:
    with pytest.raises(DescriptionError, match="--load"):
        recorded_costs({"templates": [{"fixed_ms": 1}]})
