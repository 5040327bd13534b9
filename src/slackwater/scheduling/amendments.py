"""Late re-executions: work with a soft deadline, behind everything that is due.

A past window that is to be amended gets a slot that the policy leaves idle, and only if its query's
next window is not expected to close meanwhile. Whatever waits too long is taken first for once, so
that an overload cannot keep amendments away for ever. This stands behind every policy alike.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from slackwater.scheduling.choosing import fused_steps, ordered
from slackwater.scheduling.groups import Costs
from slackwater.scheduling.snapshot import Decision, FleetSnapshot

PATIENCE_BUDGETS: Final = 40  # how long a re-execution may wait, in steps' budgets
_LOOK_AGAIN_BUDGETS: Final = 0.2


def with_amendments(fleet: FleetSnapshot, decision: Decision) -> Decision:
    """Return a policy's decision with re-executions that are due, where there is room for them."""
    if fleet.amend_at_ms is None:
        return decision
    due = fleet.ready & (fleet.amend_at_ms <= fleet.now_ms)
    if not due.any():
        return decision
    patience_ms = PATIENCE_BUDGETS * fleet.budget_ms
    overdue = due & (fleet.now_ms - fleet.amend_at_ms > patience_ms)
    impatient = set(fleet.query[overdue].tolist())
    steps = tuple(
        replace(step, amends=True) if impatient.intersection(step.queries) else step
        for step in decision.steps
    )
    chosen = np.isin(fleet.query, [query for step in steps for query in step.queries])
    undisturbed = ~fleet.due & (fleet.sweep_ms - fleet.now_ms > Costs(fleet).all_alone_ms)
    held = decision.wake_ms is not None  # the policy keeps a slot for a window about to be due
    wanted = due & ~chosen & (overdue if held else overdue | undisturbed)
    free = fleet.free_slots - len(steps)
    if free == 0 and (wanted & overdue).any():
        steps, free, wanted = steps[:-1], 1, wanted & overdue
    late = []
    if free > 0 and wanted.any():
        order = ordered(fleet, wanted, ~overdue, fleet.amend_at_ms)
        late = fused_steps(replace(fleet, free_slots=free), order)
    # Those left over are looked at again soon: nothing else may happen that would wake anybody.
    again_ms = fleet.now_ms + _LOOK_AGAIN_BUDGETS * fleet.budget_ms
    wake_ms = again_ms if decision.wake_ms is None else min(decision.wake_ms, again_ms)
    return Decision(
        (*steps, *(replace(step, amends=True) for step in late)),
        wake_ms,
        decision.quiet_until_ms,
    )
