"""What least slack first promises: who goes first, who goes along, who waits; memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.scheduling.fleets import NOW_MS, chosen, fleet

from slackwater.errors import DescriptionError
from slackwater.scheduling.costs import StepCost
from slackwater.scheduling.fusing import waiting_pays
from slackwater.scheduling.klink import klink, klink_no_memory
from slackwater.scheduling.snapshot import MemoryFacts

CHEAP = StepCost(fixed_ms=40.0, per_event_ms=0.001, observations=50, most_events=10_000_000)
DEAR = replace(CHEAP, per_event_ms=0.02)


def test_the_least_slack_goes_first_with_all_of_its_template_that_are_due() -> None:
    snapshot = fleet(
        queued=[10, 10, 10, 10],
        template=[0, 1, 0, 1],
        due=[True, True, True, False],
        sweep_ms=[NOW_MS - 10, NOW_MS - 50, NOW_MS - 1, NOW_MS + 900],
        slots=1,
        cost=CHEAP,
    )
    assert chosen(klink(), snapshot) == [[1]]
    assert chosen(klink(), replace(snapshot, free_slots=2)) == [[1], [0, 2]]


def test_a_query_with_more_to_do_has_less_slack() -> None:
    snapshot = fleet(
        queued=[10, 100_000], template=[0, 1], sweep_ms=[NOW_MS - 10] * 2, slots=1, cost=CHEAP
    )
    assert chosen(klink(), snapshot) == [[1]]


def test_what_is_not_due_is_left_in_its_source() -> None:
    assert chosen(klink(), fleet(queued=[1_000], due=[False], cost=CHEAP)) == []


def test_an_idle_slot_reads_ahead_where_events_outweigh_the_step() -> None:
    light = fleet(queued=[1_000], due=[False], sweep_ms=[NOW_MS + 500], cost=DEAR)
    heavy = fleet(queued=[10_000], due=[False], sweep_ms=[NOW_MS + 500], cost=DEAR)
    assert chosen(klink(), light) == []
    assert chosen(klink(), heavy) == [[0]]


def test_nobody_need_ask_before_a_queue_can_be_worth_reading_ahead() -> None:
    def quiet_for_ms(queued: int) -> float:
        snapshot = fleet(
            queued=[queued, 0],
            due=[False, False],
            oldest_ms=[NOW_MS - 100, np.inf],
            sweep_ms=[NOW_MS + 5_000] * 2,
            cost=DEAR,
        )
        return klink().decide(snapshot).quiet_until_ms - NOW_MS

    assert quiet_for_ms(0) == 250  # a budget, for nobody can tell
    assert quiet_for_ms(20) == 1_000  # four at most
    assert quiet_for_ms(500) == pytest.approx(100)  # half of what is worth it came in 100 ms
    assert quiet_for_ms(1_000) <= 0


def test_a_step_that_waits_for_another_query_is_asked_about_again() -> None:
    snapshot = fleet(
        queued=[10, 10],
        due=[True, False],
        sweep_ms=[NOW_MS - 1, NOW_MS + 5],
        slots=1,
        cost=CHEAP,
    )
    assert klink().decide(snapshot).quiet_until_ms <= NOW_MS


def test_the_last_slot_is_kept_for_windows_that_are_about_to_close() -> None:
    def reading_ahead(others_ms: float) -> list[list[int]]:
        snapshot = fleet(
            queued=[6_000, 0, 0, 0],
            template=[0, 1, 2, 3],
            due=[False] * 4,
            sweep_ms=[NOW_MS + 2_000, others_ms, others_ms, others_ms],
            slots=1,
            cost=DEAR,
        )
        return chosen(klink(), snapshot)

    assert reading_ahead(NOW_MS + 1_000) == [[0]]
    assert reading_ahead(NOW_MS + 5) == []


def test_in_a_busy_system_a_millisecond_saved_is_felt_by_others_up_to_twice() -> None:
    def reading_ahead(others_ms: float, utilisation: float) -> list[list[int]]:
        snapshot = fleet(
            queued=[6_000, 0, 0, 0],
            template=[0, 1, 2, 3],
            due=[False] * 4,
            sweep_ms=[NOW_MS + 2_000, *[others_ms] * 3],
            slots=1,
            cost=DEAR,
        )
        return chosen(klink(), replace(snapshot, utilisation=utilisation))

    assert reading_ahead(NOW_MS + 120, 0.0) == []
    assert reading_ahead(NOW_MS + 120, 0.5) == [[0]]
    assert reading_ahead(NOW_MS + 100, 0.5) == reading_ahead(NOW_MS + 100, 0.9) == []


@given(
    due=st.integers(1, 20),
    next_ms=st.floats(0, 400),
    next_queued_ms=st.floats(0, 100),
    slot_free_ms=st.floats(0, 400),
    utilisation=st.floats(0, 0.9),
)
def test_waiting_is_decided_by_the_sum_of_latencies(
    due: int, next_ms: float, next_queued_ms: float, slot_free_ms: float, utilisation: float
) -> None:
    def pays(**changed: float) -> bool:
        facts = {
            "due": due,
            "next_ms": next_ms,
            "next_queued_ms": next_queued_ms,
            "slot_free_ms": slot_free_ms,
            "utilisation": utilisation,
        }
        return waiting_pays(**facts | changed)  # type: ignore[arg-type]

    if pays():
        assert pays(next_ms=next_ms / 2)  # the nearer, the better
        assert pays(slot_free_ms=slot_free_ms + 10)  # the scarcer slots are, the better
        assert pays(utilisation=utilisation / 2)
    else:
        assert not pays(due=due + 1)  # the more are kept waiting, the worse
        assert not pays(next_queued_ms=next_queued_ms + 10)
        assert not pays(utilisation=0.9)  # an idle slot is missed by all who come later


def test_with_slots_to_spare_nobody_waits() -> None:
    facts = {"due": 1, "next_ms": 5.0, "next_queued_ms": 1.0, "utilisation": 0.0}
    assert waiting_pays(**facts, slot_free_ms=60.0)  # type: ignore[arg-type]
    assert not waiting_pays(**facts, slot_free_ms=0.0)  # type: ignore[arg-type]


def nearly_due(next_ms: float, *, waited_ms: float = 1.0, slots: int = 1) -> list[list[int]]:
    snapshot = fleet(
        queued=[10, 10],
        due=[True, False],
        sweep_ms=[NOW_MS - waited_ms, NOW_MS + next_ms],
        slots=slots,
        cost=CHEAP,
    )
    decision = klink().decide(snapshot)
    if decision.steps:
        return chosen(klink(), snapshot)
    assert decision.wake_ms == NOW_MS + next_ms
    return []


def test_a_step_waits_for_a_query_that_is_about_to_be_due() -> None:
    assert nearly_due(5) == []
    assert nearly_due(35) == [[0]]
    assert nearly_due(5, slots=2) == [[0]]


def test_a_step_never_waits_longer_than_another_would_cost() -> None:
    assert nearly_due(5, waited_ms=39) == [[0]]


def test_one_far_behind_does_not_keep_the_others_waiting() -> None:
    """Two templates, one slot; the first lags by an hour and never catches up."""
    last = [-1, -1]
    served = []
    for step in range(20):
        snapshot = fleet(
            queued=[10_000_000, 10],
            template=[0, 1],
            sweep_ms=[NOW_MS - 3_600_000, NOW_MS - 20_000],
            last_step=list(last),
            slots=1,
            cost=CHEAP,
        )
        ((row,),) = chosen(klink(), snapshot)
        last[row] = step
        served.append(row)
    assert served.count(0) == served.count(1) == 10


def test_an_overload_makes_larger_steps_not_more_of_them() -> None:
    cost = replace(CHEAP, fixed_ms=50.0, per_event_ms=0.1)
    snapshot = fleet(queued=[1_000] * 30, slots=1, cost=cost)
    ((*first,),) = chosen(klink(), snapshot)
    assert len(first) == 10  # a second's worth: twenty times the fixed cost, four times the budget


def under_pressure(share: float) -> list[list[int]]:
    policy = klink()
    snapshot = fleet(
        queued=[10, 10, 10],
        template=[0, 1, 2],
        due=[True, True, False],
        sweep_ms=[NOW_MS - 500, NOW_MS - 1, NOW_MS + 900],
        state_bytes=[1_000, 900_000, 100],
        memory=MemoryFacts(int(share * 1_000_000), 1_000_000.0),
        slots=1,
        cost=CHEAP,
    )
    return chosen(policy, snapshot)


def test_above_the_bound_what_frees_most_goes_first() -> None:
    assert under_pressure(0.79) == [[0]]
    assert under_pressure(0.80) == [[1]]


def test_above_the_bound_nothing_is_read_ahead() -> None:
    snapshot = fleet(
        queued=[10_000],
        due=[False],
        sweep_ms=[NOW_MS + 500],
        cost=DEAR,
        memory=MemoryFacts(900, 1_000.0),
    )
    assert chosen(klink(), snapshot) == []
    assert chosen(klink_no_memory(), snapshot) == [[0]]


def test_memory_rules_until_half_is_freed_or_slack_runs_out() -> None:
    policy = klink()

    def look(used: int, now_ms: float) -> bool:
        snapshot = fleet(queued=[10], due=[False], sweep_ms=[NOW_MS + 500], cost=CHEAP, slots=0)
        policy.decide(replace(snapshot, now_ms=now_ms, memory=MemoryFacts(used, 1_000.0)))
        return policy.freeing

    assert not look(700, NOW_MS)
    assert look(900, NOW_MS)
    assert look(500, NOW_MS + 10)  # more than half of 900
    assert not look(440, NOW_MS + 20)
    assert look(900, NOW_MS + 30)
    assert not look(700, NOW_MS + 460)  # 500 ms less the step's cost have passed


@pytest.mark.parametrize("count", [1_000])
def test_a_thousand_queries_are_decided_alike_every_time(count: int) -> None:
    random = np.random.default_rng(5)
    snapshot = fleet(
        queued=random.integers(0, 5_000, count).tolist(),
        template=random.integers(0, 40, count).tolist(),
        due=(random.random(count) < 0.1).tolist(),
        sweep_ms=(NOW_MS + random.integers(-100, 3_000, count)).tolist(),
        cost=CHEAP,
    )
    assert klink().decide(snapshot) == klink().decide(snapshot)


def test_the_bound_is_the_users_choice() -> None:
    snapshot = fleet(
        queued=[10_000],
        due=[False],
        sweep_ms=[NOW_MS + 500],
        cost=DEAR,
        memory=MemoryFacts(600, 1_000.0),
    )
    assert chosen(klink(), snapshot) == [[0]]
    assert chosen(klink(memory_bound=0.5), snapshot) == []
    with pytest.raises(DescriptionError, match=r"memory_bound=1\.5"):
        klink(memory_bound=1.5)
