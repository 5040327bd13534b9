"""One conformance suite over every policy, then what each promises of its own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.scheduling.fleets import chosen, fleet

from slackwater.errors import DescriptionError
from slackwater.scheduling.choosing import fair_shares
from slackwater.scheduling.costs import StepCost
from slackwater.scheduling.policies import POLICIES, policy_named
from slackwater.scheduling.snapshot import FleetSnapshot, Policy


@pytest.fixture(params=sorted(POLICIES))
def policy(request: pytest.FixtureRequest) -> Policy:
    return policy_named(request.param)


rows = st.lists(
    st.tuples(
        st.integers(0, 200_000),  # queued
        st.integers(0, 2),  # template
        st.booleans(),  # due
        st.booleans(),  # ready
        st.integers(99_000, 101_000),  # deadline
        st.integers(-1, 5),  # last step
    ),
    min_size=1,
    max_size=12,
)


def of_rows(drawn: list[Any], slots: int) -> FleetSnapshot:
    queued, template, due, ready, deadline, last = map(list, zip(*drawn, strict=True))
    return fleet(
        queued=queued,
        template=template,
        due=due,
        ready=ready,
        deadline_ms=deadline,
        last_step=last,
        slots=slots,
    )


@given(rows, st.integers(1, 3), st.sampled_from(sorted(POLICIES)))
def test_a_decision_respects_slots_readiness_and_templates(
    drawn: list[Any], slots: int, name: str
) -> None:
    snapshot = of_rows(drawn, slots)
    steps = policy_named(name).decide(snapshot).steps
    taken = [query - 100 for step in steps for query in step.queries]
    assert len(steps) <= slots
    assert len(taken) == len(set(taken))
    assert all(snapshot.ready[row] for row in taken)
    for step in steps:
        assert step.max_events > 0
        assert len({int(snapshot.template[query - 100]) for query in step.queries}) == 1


@given(rows, st.integers(1, 3), st.sampled_from(sorted(POLICIES)))
def test_the_same_snapshot_gives_the_same_decision(drawn: list[Any], slots: int, name: str) -> None:
    one, two = (policy_named(name).decide(of_rows(drawn, slots)) for _ in range(2))
    assert one == two


@given(rows, st.sampled_from(sorted(POLICIES)))
def test_something_due_is_always_served(drawn: list[Any], name: str) -> None:
    snapshot = of_rows(drawn, 1)
    if (snapshot.ready & snapshot.due).any():
        decision = policy_named(name).decide(snapshot)
        assert decision.steps or decision.wake_ms is not None  # or it will be, in a moment


@pytest.mark.parametrize("name", ["round_robin", "default"])
def test_in_turn_no_query_starves(name: str) -> None:
    last = [-1] * 7
    for step in range(20):
        snapshot = fleet(queued=[10] * 7, slots=1, last_step=list(last), fusable=False)
        (served,) = chosen(policy_named(name), snapshot)
        last[served[0]] = step
    assert min(last) >= 20 - 7


def test_without_free_slots_nothing_is_chosen(policy: Policy) -> None:
    assert chosen(policy, fleet(queued=[10, 10], slots=0)) == []


def test_queries_that_cannot_share_a_step_get_one_each(policy: Policy) -> None:
    assert sorted(chosen(policy, fleet(queued=[10, 10], fusable=False))) == [[0], [1]]


def test_deadline_serves_the_closest_window_end_with_its_whole_template() -> None:
    snapshot = fleet(
        queued=[10, 10, 10],
        template=[0, 1, 0],
        deadline_ms=[99_900, 99_800, 99_990],
        slots=1,
    )
    assert chosen(policy_named("deadline"), snapshot) == [[1]]
    assert chosen(policy_named("deadline"), fleet(queued=[10] * 3, template=[0, 1, 0])) == [
        [0, 2],
        [1],
    ]


def test_deadline_leaves_a_small_backlog_until_its_window_closes() -> None:
    assert chosen(policy_named("deadline"), fleet(queued=[1_000], due=[False])) == []


def test_deadline_works_ahead_on_a_large_backlog() -> None:
    assert chosen(policy_named("deadline"), fleet(queued=[500_000], due=[False])) == [[0]]


def test_fcfs_serves_the_oldest_event_first() -> None:
    snapshot = fleet(queued=[1, 1], template=[0, 1], oldest_ms=[50.0, 40.0], slots=1)
    assert chosen(policy_named("fcfs"), snapshot) == [[1]]


def test_default_takes_one_query_a_step() -> None:
    assert chosen(policy_named("default"), fleet(queued=[10] * 5)) == [[0], [1]]


def test_a_step_stops_filling_at_its_limit() -> None:
    cost = StepCost(fixed_ms=30.0, per_event_ms=0.01, observations=50, most_events=100_000)
    (first, *_) = chosen(policy_named("deadline"), fleet(queued=[20_000] * 9, slots=1, cost=cost))
    assert first == [0, 1, 2, 3]


def test_a_backlog_leaves_room_for_queries_that_are_up_to_date() -> None:
    late = fleet(
        queued=[90_000_000, 100, 100],
        deadline_ms=[10_000, 99_900, 99_950],
        slots=1,
    )
    assert chosen(policy_named("deadline"), late) == [[0, 1, 2]]


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=8), st.integers(0, 20_000))
def test_fair_shares_meet_small_wishes_first_and_waste_nothing(
    wanted: list[int], room: int
) -> None:
    shares = fair_shares(wanted, room)
    assert all(0 <= share <= wish for share, wish in zip(shares, wanted, strict=True))
    assert sum(shares) == min(room, sum(wanted))
    cut = [share for share, wish in zip(shares, wanted, strict=True) if share < wish]
    assert not cut or max(cut) - min(cut) <= 1
    assert not cut or all(share <= max(cut) for share in shares)


def test_heavy_steps_are_dealt_to_free_slots_and_light_ones_are_not() -> None:
    heavy = fleet(queued=[40_000] * 6)
    assert sorted(map(len, chosen(policy_named("deadline"), heavy))) == [3, 3]
    light = fleet(queued=[100] * 6)
    assert list(map(len, chosen(policy_named("deadline"), light))) == [6]


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(DescriptionError, match=r"'fifo' is unknown.*deadline"):
        policy_named("fifo")


def test_highest_rate_serves_what_puts_out_most_for_its_time() -> None:
    snapshot = fleet(queued=[100, 100_000], template=[0, 1], slots=1)
    assert chosen(policy_named("highest_rate"), snapshot) == [[1]]


def test_streambox_holds_on_to_a_query_until_its_window_has_closed() -> None:
    policy = policy_named("streambox")

    def look(deadlines: list[int]) -> list[list[int]]:
        snapshot = fleet(queued=[10, 10], template=[0, 1], deadline_ms=deadlines, slots=1)
        return chosen(policy, snapshot)

    assert look([99_900, 99_800]) == [[1]]
    assert look([99_700, 99_800]) == [[1]]  # a closer deadline has come up; the held one goes on
    assert look([99_700, 102_800]) == [[0]]
