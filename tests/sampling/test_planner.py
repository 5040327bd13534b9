from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from slackwater.sampling.audits import Audits, audited, binomial_tail
from slackwater.sampling.delays import DelayCounts, bin_of
from slackwater.sampling.estimates import Spread
from slackwater.sampling.monitor import LEARNING, GroupShare, Monitor, SubstreamCount
from slackwater.sampling.planner import Planner, SamplePlan, substream_ms
from slackwater.sampling.sizes import (
    LEAST_SAMPLED,
    Stretch,
    arrival_variance,
    mean_sample_size,
    rates_for,
    sampled_share,
)
from slackwater.sampling.targets import Target

TARGET = Target(0.05, 0.95)
stretches = st.lists(
    st.builds(Stretch, st.floats(100, 1e5), st.floats(0.2, 1.0)), min_size=1, max_size=8
)


def predicted(parts: list[Stretch], spread: Spread, share: float) -> float:
    """Work out the relative variance of sampling so much of each sub-stream, from first terms."""
    whole = sum(part.expected for part in parts)
    found = arrival_variance(parts, spread) * whole**2
    for part in parts:
        rate = min(1.0, share / part.share)
        found += part.expected * spread.sampling * (1 - rate) / (rate * part.share)
    return found / whole**2


@given(stretches, st.floats(0.01, 100), st.floats(0.01, 100), st.floats(1e-5, 1e-2))
def test_share_is_the_least_that_keeps_the_error(
    parts: list[Stretch], sampling: float, arrival: float, allowed: float
) -> None:
    spread = Spread(sampling, arrival)
    share = sampled_share(parts, spread, allowed)
    if share is None:
        assert arrival_variance(parts, spread) >= allowed
        return
    assert predicted(parts, spread, share) <= allowed * (1 + 1e-6)
    if share < 0.999:
        assert predicted(parts, spread, share * 0.99) > allowed * (1 - 1e-9)


@given(st.floats(0.1, 50), st.floats(0.1, 50), st.integers(100, 10**6))
def test_share_of_a_mean_is_the_papers_sample_size(
    mean: float, deviation: float, population: int
) -> None:
    size = mean_sample_size(
        relative=0.05, deviations=1.96, mean=mean, deviation=deviation, population=population
    )
    spread = Spread((deviation / mean) ** 2, 0.0)
    share = sampled_share([Stretch(population, 1.0)], spread, (0.05 / 1.96) ** 2)
    assert share is not None
    assert share * population == pytest.approx(size, rel=1e-6)


@given(stretches, st.floats(0, 1))
def test_rates_are_rates_and_take_a_few_of_each(parts: list[Stretch], share: float) -> None:
    for part, rate in zip(parts, rates_for(parts, share), strict=True):
        assert 0.0 < rate <= 1.0
        assert (
            rate * part.expected * part.share
            >= min(LEAST_SAMPLED, part.expected * part.share) - 1e-6
        )


USUAL = Spread(2.0, 3.0)


def monitor_of(*, delay_ms: float = 100.0, per_ms: float = 5.0, spread: Spread = USUAL) -> Monitor:
    counted = DelayCounts.of(
        {bin_of(d): (1_000.0, 1_000.0 * d) for d in (delay_ms, 2 * delay_ms, 4 * delay_ms)}
    )
    monitor = Monitor().delayed(counted)
    for _ in range(LEARNING):
        sizes = [SubstreamCount(0, 600, 600 * per_ms) for _ in range(5)]
        monitor = monitor.closed(sizes, {"n": spread})
    return monitor


def test_nothing_is_sampled_before_enough_is_known() -> None:
    planner = Planner(TARGET, 600, seed=1)
    plan = planner.plan(Monitor(), 0, 3_000, closed_ms=0, as_of_ms=3_000)
    assert set(plan.rates) == {1.0}
    assert plan.closes_ms is None
    assert planner.closes_at_ms(Monitor(), 0, 3_000) is None


def test_window_closes_at_its_deadline_where_enough_arrives() -> None:
    planner = Planner(TARGET, 600, seed=1)
    monitor = monitor_of()
    assert planner.closes_at_ms(monitor, 0, 3_000) == 3_000
    plan = planner.plan(monitor, 0, 3_000, closed_ms=0, as_of_ms=3_000)
    assert plan.closes_ms == 3_000
    assert plan.rates[-1] > plan.rates[0]  # less of the last sub-stream has arrived
    assert max(plan.rates) < 1.0


def test_window_waits_the_least_time_where_too_little_arrives() -> None:
    planner = Planner(TARGET, 600, seed=1)
    monitor = monitor_of(delay_ms=400.0, spread=Spread(400.0, 400.0))
    closes_ms = planner.closes_at_ms(monitor, 0, 3_000)
    assert closes_ms is not None
    assert closes_ms > 3_000
    early = planner.plan(monitor, 0, 3_000, closed_ms=0, as_of_ms=closes_ms - 50)
    assert early.closes_ms is None
    assert planner.plan(monitor, 0, 3_000, closed_ms=0, as_of_ms=closes_ms).closes_ms == 3_000


def test_old_data_read_again_is_left_to_its_source() -> None:
    monitor = monitor_of(delay_ms=3e10)
    planner = Planner(TARGET, 600, seed=1)
    assert planner.closes_at_ms(monitor, 0, 3_000) is None
    plan = planner.plan(monitor, 0, 3_000, closed_ms=0, as_of_ms=3e10)
    assert plan.closes_ms is None
    assert max(plan.rates) < 1.0  # sampled all the same


def test_rates_use_each_substreams_share_not_the_whole_sample() -> None:
    """The paper's eq. 4.8 asks of each sub-stream the sample of the whole window."""
    plan = Planner(TARGET, 600, seed=1).plan(monitor_of(), 0, 3_000, closed_ms=0, as_of_ms=10_000)
    wish = (0.9 * 0.05 / TARGET.deviations) ** 2
    whole = 15_000 / (1 + 15_000 * wish / 2.0)
    assert sum(rate * 3_000 for rate in plan.rates) == pytest.approx(whole, rel=0.01)


def test_patience_waits_for_the_source_and_slack_takes_everything() -> None:
    monitor = monitor_of()
    patient = Planner(TARGET, 600, 1, "patient")
    assert patient.closes_at_ms(monitor, 0, 3_000) is None
    assert patient.plan(monitor, 0, 3_000, closed_ms=0, as_of_ms=9e3).closes_ms is None
    slack = Planner(TARGET, 600, 1, "slack")
    at_ms = slack.closes_at_ms(monitor, 0, 3_000)
    assert at_ms is not None
    plan = slack.plan(monitor, 0, 3_000, closed_ms=0, as_of_ms=at_ms)
    assert set(plan.rates) == {1.0}
    shares = monitor.delays.arrived_shares(range(0, 3_001, 600), at_ms)
    assert 1 - sum(shares) / 5 <= 0.05


@given(st.integers(1, 20_000), st.integers(1, 20_000))
def test_substreams_divide_all_edges_of_windows(size_ms: int, slide_ms: int) -> None:
    width_ms = substream_ms(size_ms, slide_ms)
    assert size_ms % width_ms == 0
    assert slide_ms % width_ms == 0


@given(st.integers(0, 10**9), st.lists(st.floats(0, 1), max_size=6), st.floats(0, 1e13))
def test_plans_survive_json(seed: int, rates: list[float], as_of_ms: float) -> None:
    plan = SamplePlan(seed, 5, 600, tuple(rates), tuple(rates), 0.5, 5, as_of_ms, None)
    assert SamplePlan.from_json(plan.to_json()) == plan
    grouped = replace(plan, groups=((2**52, 0.25), (7, 1.0)), others=0.5)
    assert SamplePlan.from_json(grouped.to_json()) == grouped


groups_of_windows = st.lists(
    st.tuples(st.floats(0.01, 0.2), st.floats(0.0, 10.0)), min_size=1, max_size=5
)


@given(groups_of_windows, st.floats(0.0, 600.0))
def test_every_group_has_the_sample_that_it_alone_would_need(
    parts: list[tuple[float, float]], delay_ms: float
) -> None:
    known = {
        number: GroupShare(part, Spread(spread, spread))
        for number, (part, spread) in enumerate(parts, start=1)
    }
    monitor = replace(monitor_of(delay_ms=delay_ms), groups=known)
    planner = Planner(TARGET, 600, seed=1)
    now_ms = planner.closes_at_ms(monitor, 0, 3_000) or 3_000.0
    plan = planner.plan(monitor, 0, 3_000, closed_ms=0, as_of_ms=now_ms)
    assert [place for place, _ in plan.groups] == sorted(known)
    assert plan.others == max(share for _, share in plan.groups)
    stretches_now = planner.stretches(monitor, 0, 3_000, now_ms)
    allowed = (0.9 * TARGET.relative / TARGET.deviations) ** 2
    for place, factor in plan.groups:
        rates = [min(1.0, rate * factor) for rate in plan.rates]
        assert max(rates) <= plan.top + 1e-9
        mine = [Stretch(each.expected * known[place].share, each.share) for each in stretches_now]
        whole = sum(part.expected for part in mine)
        variance = arrival_variance(mine, known[place].spread) * whole**2
        for part, rate in zip(mine, rates, strict=True):
            variance += (
                part.expected * known[place].spread.sampling * (1 - rate) / rate / part.share
            )
        assert factor == 1.0 or variance / whole**2 <= allowed * (1 + 1e-3)
        taken = sum(r * part.expected * part.share for r, part in zip(rates, mine, strict=True))
        arrived = sum(part.expected * part.share for part in mine)
        assert taken >= min(LEAST_SAMPLED, arrived) * 0.99


def test_groups_are_learned_and_forgotten_with_the_windows_that_have_them() -> None:
    monitor = monitor_of()
    sizes = [SubstreamCount(0, 600, 3_000.0)]
    seen = GroupShare(0.1, Spread(1.0, 1.0))
    once = monitor.closed(sizes, {"n": USUAL}, groups={5: seen})
    again = once.closed(sizes, {"n": USUAL}, groups={5: GroupShare(0.2, Spread(2.0, 2.0))})
    assert once.groups == {5: seen}
    assert 0.1 < again.groups[5].share < 0.2
    assert 1.0 < again.groups[5].spread.sampling < 2.0
    assert Monitor.from_json(again.to_json()).groups == again.groups
    assert not again.closed(sizes, {"n": USUAL}).groups


def test_monitor_survives_json() -> None:
    monitor = monitor_of()
    again = Monitor.from_json(monitor.to_json())
    assert again.to_json() == monitor.to_json()
    planner = Planner(TARGET, 600, seed=1)
    assert planner.plan(again, 0, 3_000, closed_ms=0, as_of_ms=3e3) == planner.plan(
        monitor, 0, 3_000, closed_ms=0, as_of_ms=3e3
    )
    assert Monitor.from_json(None) == Monitor()


def test_spreads_grow_fast_and_shrink_slowly() -> None:
    sizes = [SubstreamCount(0, 600, 3_000)]
    before = monitor_of(spread=Spread(1.0, 1.0))
    grown = before.closed(sizes, {"n": Spread(16.0, 16.0)}).closed(sizes, {"n": Spread(16.0, 16.0)})
    assert grown.spread.sampling > 14.0
    shrunk = grown.closed(sizes, {"n": Spread(1.0, 1.0)})
    assert shrunk.spread.sampling > 9.0


def test_infinite_spread_of_a_zero_result_teaches_nothing() -> None:
    monitor = monitor_of().closed([], {"n": Spread(math.inf, math.inf)})
    assert math.isfinite(monitor.spread.sampling)


@given(st.lists(st.booleans(), max_size=200))
def test_caution_grows_only_with_misses_and_stays_in_bounds(held: list[bool]) -> None:
    audits = Audits()
    for each in held:
        after = audits.after(held=each, within=each, confidence=0.95)
        assert 1.0 <= after.caution <= 4.0
        assert after.caution <= audits.caution or not each
        audits = after
    assert audits.audited == len(held)
    assert audits.held == sum(held)
    assert Audits.from_json(audits.to_json()) == audits


def test_broken_promises_make_the_planner_sample_more() -> None:
    monitor, audits = monitor_of(), Audits()
    for number in range(30):
        audits = audits.after(held=number % 3 > 0, within=True, confidence=0.95)
    assert audits.caution > 1.2
    cautious = Monitor.from_json({**monitor.to_json(), "audits": audits.to_json()})
    planner = Planner(TARGET, 600, seed=1)
    careless = planner.plan(monitor, 0, 3_000, closed_ms=0, as_of_ms=3e3)
    careful = planner.plan(cautious, 0, 3_000, closed_ms=0, as_of_ms=3e3)
    assert sum(careful.rates) > 1.2 * sum(careless.rates)


def enough(planner: Planner, monitor: Monitor, now_ms: float) -> bool:
    """Work out from the sub-streams, one by one, whether a window of 3 s may close at a moment."""
    parts = planner.stretches(monitor, 0, 3_000, now_ms)
    if min(part.share for part in parts) < 0.25:
        return False
    allowed = (0.9 * planner.target.relative / planner.target.deviations) ** 2
    return arrival_variance(parts, monitor.spread) < allowed


@given(st.floats(1, 2_000), st.floats(0.1, 20), st.floats(0.01, 200))
def test_window_closes_at_the_first_moment_that_is_enough(
    delay_ms: float, per_ms: float, arrival: float
) -> None:
    monitor = monitor_of(delay_ms=delay_ms, per_ms=per_ms, spread=Spread(2.0, arrival))
    assume(monitor.delays.quantile_ms(0.5) <= 3_000)
    planner = Planner(TARGET, 600, seed=1)
    closes_ms = planner.closes_at_ms(monitor, 0, 3_000)
    if closes_ms is None:
        assert not enough(planner, monitor, 3_000 + monitor.delays.longest_ms)
        return
    assert enough(planner, monitor, closes_ms)
    if closes_ms > 3_000:
        assert not enough(planner, monitor, closes_ms - 4.0)


def test_audit_compares_what_was_promised_with_the_truth() -> None:
    early = {"n": (100.0, 95.0, 105.0), "m": (10.0, 9.0, 11.0), "x": (1.0, 1.0, math.nan)}
    found = audited(
        Audits(),
        early,
        {"n": 104.0, "m": 12.0, "x": 2.0},
        missing=0.0,
        relative=0.05,
        confidence=0.95,
    )
    assert (found.audited, found.held, found.within) == (2, 1, 1)


def test_results_that_are_off_for_a_reason_make_the_planner_wait() -> None:
    audits, noise = Audits(), Audits()
    for number in range(20):
        audits = audits.off_by(-0.04 + 0.002 * (number % 3), 0.08)
        noise = noise.off_by(0.04 * (-1) ** number, 0.08)
    assert audits.straggler_bias == pytest.approx(0.5, abs=0.05)
    assert noise.straggler_bias == 0.0
    monitor, planner = monitor_of(delay_ms=200.0), Planner(TARGET, 600, seed=1)
    patient = Monitor.from_json({**monitor.to_json(), "audits": audits.to_json()})
    at_once, later = (planner.closes_at_ms(each, 0, 3_000) for each in (monitor, patient))
    assert at_once == 3_000
    assert later is not None
    assert later > 3_000


@given(st.integers(1, 60), st.floats(0.01, 0.99), st.integers(0, 60))
def test_binomial_tail_is_a_probability(tries: int, chance: float, least: int) -> None:
    assume(least <= tries)
    assert 0.0 <= binomial_tail(tries, chance, least) <= 1.0
    assert binomial_tail(tries, chance, 0) == 1.0
