"""One conformance suite over every policy, then what each promises of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.errors import DescriptionError
from slackwater.scheduling.choosing import fair_shares
from slackwater.scheduling.costs import StepCost
from slackwater.scheduling.policies import POLICIES, policy_named
from slackwater.scheduling.snapshot import FleetSnapshot, MemoryFacts, Policy, TemplateFacts

NOW_MS = 100_000.0
LEARNED = StepCost(fixed_ms=30.0, per_event_ms=0.0005, observations=50, most_events=1_000_000)


def fleet(
    *,
    queued: list[int],
    template: list[int] | None = None,
    due: list[bool] | None = None,
    ready: list[bool] | None = None,
    deadline_ms: list[int] | None = None,
    oldest_ms: list[float] | None = None,
    last_step: list[int] | None = None,
    slots: int = 2,
    fusable: bool = True,
    cost: StepCost = LEARNED,
    sweep_ms: list[float] | None = None,
    deviation_ms: float = 0.0,
    state_bytes: list[int] | None = None,
    memory: MemoryFacts | None = None,
    busy_until_ms: tuple[float, ...] = (),
    utilisation: float = 0.0,
) -> FleetSnapshot:
    size = len(queued)
    templates = template or [0] * size
    oldest: list[Any] = oldest_ms or [NOW_MS - 10 if n else np.inf for n in queued]
    is_due = due or [True] * size
    sweeps = sweep_ms or [NOW_MS - 1 if now else NOW_MS + 1_000 for now in is_due]
    held = np.array(state_bytes or [0] * size, dtype=np.int64)
    return FleetSnapshot(
        now_ms=NOW_MS,
        free_slots=slots,
        budget_ms=250.0,
        query=np.arange(size, dtype=np.int64) + 100,
        template=np.array(templates, dtype=np.int64),
        queued=np.array(queued, dtype=np.int64),
        oldest_arrival_ms=np.array(oldest, dtype=np.float64),
        sweep_ms=np.array(sweeps, dtype=np.float64),
        sweep_deviation_ms=np.full(size, deviation_ms),
        deadline_ms=np.array(deadline_ms or [100_000] * size, dtype=np.int64),
        due=np.array(is_due),
        ready=np.array(ready or [True] * size),
        last_step=np.array(last_step or [-1] * size, dtype=np.int64),
        state_bytes=held,
        freed_bytes=held,
        templates=tuple(TemplateFacts(cost, fusable) for _ in range(max(templates) + 1)),
        busy_until_ms=busy_until_ms,
        utilisation=utilisation,
        memory=memory or MemoryFacts(),
    )


def chosen(policy: Policy, snapshot: FleetSnapshot) -> list[list[int]]:
    return [[query - 100 for query in step.queries] for step in policy.decide(snapshot).steps]


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
