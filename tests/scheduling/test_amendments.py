"""Late re-executions stand behind all that is due, whatever the policy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.scheduling.fleets import NOW_MS, fleet

from slackwater.scheduling.amendments import PATIENCE_BUDGETS, with_amendments
from slackwater.scheduling.policies import POLICIES, policy_named
from slackwater.scheduling.snapshot import Decision, FleetSnapshot, StepChoice

LONG_AGO_MS = NOW_MS - 2 * PATIENCE_BUDGETS * 250.0


def amending(snapshot: FleetSnapshot, *at_ms: float) -> FleetSnapshot:
    return replace(snapshot, amend_at_ms=np.array(at_ms))


def steps(decision: Decision) -> list[tuple[list[int], bool]]:
    return [([query - 100 for query in step.queries], step.amends) for step in decision.steps]


@pytest.mark.parametrize("name", POLICIES)
def test_what_is_due_goes_first_and_amendments_get_the_slot_left(name: str) -> None:
    snapshot = fleet(queued=[10, 0], due=[True, False], template=[0, 1])
    snapshot = amending(snapshot, np.inf, NOW_MS - 5)
    decision = with_amendments(snapshot, policy_named(name).decide(snapshot))
    assert steps(decision) == [([0], False), ([1], True)]
    busy = replace(snapshot, free_slots=1)
    assert steps(with_amendments(busy, policy_named(name).decide(busy))) == [([0], False)]


@pytest.mark.parametrize("name", POLICIES)
def test_decisions_are_left_alone_where_nothing_is_to_be_amended(name: str) -> None:
    snapshot = fleet(queued=[10, 10], due=[True, False])
    decision = policy_named(name).decide(snapshot)
    assert with_amendments(snapshot, decision) is decision
    later = amending(snapshot, NOW_MS + 1, np.inf)
    assert with_amendments(later, decision) is decision


def test_a_query_whose_window_is_about_to_close_is_not_kept_from_it() -> None:
    near = fleet(queued=[0], due=[False], sweep_ms=[NOW_MS + 5])
    decision = with_amendments(amending(near, NOW_MS - 5), Decision())
    assert decision.steps == ()
    assert decision.wake_ms is not None
    assert decision.wake_ms > NOW_MS  # it is looked at again
    far = fleet(queued=[0], due=[False], sweep_ms=[NOW_MS + 5_000])
    assert steps(with_amendments(amending(far, NOW_MS - 5), Decision())) == [([0], True)]


def test_queries_of_a_template_are_amended_together_the_longest_waiting_first() -> None:
    snapshot = fleet(queued=[0, 0, 0], due=[False] * 3, sweep_ms=[NOW_MS + 9_000] * 3)
    snapshot = amending(snapshot, NOW_MS - 5, NOW_MS + 5, NOW_MS - 9)
    assert steps(with_amendments(snapshot, Decision())) == [([2, 0], True)]


def test_a_slot_that_the_policy_keeps_free_is_left_to_it() -> None:
    snapshot = fleet(queued=[0], due=[False], sweep_ms=[NOW_MS + 9_000])
    held = Decision((), NOW_MS + 20)
    assert with_amendments(amending(snapshot, NOW_MS - 5), held).steps == ()


def test_who_waits_too_long_is_taken_first() -> None:
    snapshot = fleet(queued=[10, 0], due=[True, False], template=[0, 1], slots=1)
    overdue = amending(snapshot, np.inf, LONG_AGO_MS)
    chosen = Decision((StepChoice((100,), 1_000),))
    assert steps(with_amendments(overdue, chosen)) == [([1], True)]
    # If the policy runs it anyway, that step amends too.
    own = amending(snapshot, LONG_AGO_MS, np.inf)
    assert steps(with_amendments(own, chosen)) == [([0], True)]


def test_queries_in_a_step_are_not_chosen() -> None:
    snapshot = fleet(queued=[0], due=[False], ready=[False], sweep_ms=[NOW_MS + 9_000])
    decision = Decision()
    assert with_amendments(amending(snapshot, LONG_AGO_MS), decision) is decision
