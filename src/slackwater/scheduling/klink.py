"""Least slack first (Klink), for steps that serve many queries at once.

O. Farhan, K. Daudjee, M. T. Özsu: "Klink: Progress-Aware Scheduling for Streaming Data Systems",
SIGMOD 2021. On Spark the unit that is scheduled is a step with a fixed cost, so the right moment to
run a query is just as its sweeping watermark arrives, with all of its template that are due.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from slackwater.errors import DescriptionError
from slackwater.scheduling.ahead import (
    ahead_of_time,
    latest_look_ms,
    nothing_to_read_until_ms,
)
from slackwater.scheduling.fusing import longest_wait_ms, waiting_pays
from slackwater.scheduling.groups import Costs, Group, bounded, groups
from slackwater.scheduling.memory import BOUND, MemoryMode, freeing_rate
from slackwater.scheduling.slack import expected_wait_of_one_ms, overdue_slack_ms, slack_ms
from slackwater.scheduling.snapshot import Decision, FleetSnapshot

# Who is overdue by more budgets than this is served in turn: one that lags far behind must not keep
# the others waiting until it has caught up.
_HOPELESS_BUDGETS = 40


@dataclass
class Klink:
    """Serve the query with the least slack, with all of its template that are due.

    Slots that would idle read ahead where that pays. State above `memory_bound` of the budget
    switches to freeing the most first, until half is freed or somebody's slack has run out (None:
    memory is not looked at).
    """

    memory_bound: float | None = BOUND
    ahead: bool = True
    _memory: MemoryMode = field(default_factory=MemoryMode)
    _nothing_to_read_until_ms: float = -math.inf

    def __post_init__(self) -> None:
        if self.memory_bound is not None and not 0 < self.memory_bound <= 1:
            raise DescriptionError(
                f"memory_bound={self.memory_bound!r} cannot be: give a share of the memory budget "
                "above 0 and up to 1, or None"
            )

    @property
    def name(self) -> str:
        """Return the name the command line knows it by."""
        return "klink" if self.memory_bound is not None else "klink_no_memory"

    @property
    def freeing(self) -> bool:
        """Tell whether memory came first in the last decision."""
        return self._memory.on

    def decide(self, fleet: FleetSnapshot) -> Decision:
        """Serve what is due, least slack first; then read ahead, if that pays."""
        costs = Costs(fleet)
        freeing = self._manages_memory(fleet, costs)
        steps: list[Group] = []
        wake_ms: float | None = None
        due = np.flatnonzero(fleet.ready & fleet.due).tolist()
        if due:
            steps, wake_ms = self._serve(fleet, self._by_urgency(fleet, due, costs), costs)
        free = fleet.free_slots - len(steps)
        quiet_until_ms = fleet.now_ms
        if self.ahead and not freeing and wake_ms is None:
            if not fleet.now_ms < self._nothing_to_read_until_ms <= latest_look_ms(fleet):
                self._nothing_to_read_until_ms = nothing_to_read_until_ms(fleet)
            quiet_until_ms = self._nothing_to_read_until_ms
            if free > 0 and quiet_until_ms <= fleet.now_ms:
                steps += self._read_ahead(fleet, free, steps, costs)
        chosen = tuple(group.choice(fleet) for group in steps)
        return Decision(chosen, wake_ms, quiet_until_ms)

    def _by_urgency(self, fleet: FleetSnapshot, due: Sequence[int], costs: Costs) -> list[Group]:
        """List the groups that are due: by least slack, or by what closing them frees.

        Among those alike, who was served longest ago comes first.
        """
        least_ms = -_HOPELESS_BUDGETS * fleet.budget_ms
        sweep_ms, last_step, query = fleet.sweep_ms, fleet.last_step, fleet.query
        ranked = []
        for row, queued_ms in zip(due, costs.queued_ms(due), strict=True):
            cost = costs.of(row)
            alone_ms = cost.started_ms() + queued_ms + cost.close_ms
            slack = max(overdue_slack_ms(sweep_ms.item(row), alone_ms, fleet.now_ms), least_ms)
            key = -freeing_rate(fleet, row, alone_ms) if self._memory.on else slack
            ranked.append((key, slack, last_step.item(row), query.item(row), row, queued_ms))
        ranked.sort()
        rows, each_ms = [it[4] for it in ranked], [it[5] for it in ranked]
        found = groups(fleet, rows, each_ms, singles=fleet.free_slots)
        return [bounded(fleet, group) for group in found]

    def _manages_memory(self, fleet: FleetSnapshot, costs: Costs) -> bool:
        """Tell whether memory comes first now."""
        memory = fleet.memory
        bound = self.memory_bound
        if bound is None or not (self._memory.on or memory.share >= bound):
            return False
        waiting = fleet.ready & ~fleet.due & np.isfinite(fleet.sweep_ms)
        slack = slack_ms(
            fleet.sweep_ms[waiting],
            fleet.sweep_deviation_ms[waiting],
            costs.all_alone_ms[waiting],
            fleet.now_ms,
        )
        self._memory = self._memory.after(
            used=memory.used_bytes,
            bound=bound * memory.budget_bytes,
            now_ms=fleet.now_ms,
            least_slack_ms=float(slack.min()) if slack.size else fleet.budget_ms,
        )
        return self._memory.on

    def _serve(
        self, fleet: FleetSnapshot, due: Sequence[Group], costs: Costs
    ) -> tuple[list[Group], float | None]:
        """Give slots to the groups in order; one may wait for a member that is about to be due."""
        steps: list[Group] = []
        wake_ms: float | None = None
        for place, group in enumerate(due):
            free = fleet.free_slots - len(steps)
            if free == 0:
                break
            until_ms = self._worth_waiting(fleet, group, free, costs)
            if until_ms is not None:
                wake_ms = until_ms if wake_ms is None else min(wake_ms, until_ms)
            elif place == len(due) - 1 and free > 1:
                steps += _dealt(group, free)
            else:
                steps.append(group)
        return steps, wake_ms

    @staticmethod
    def _worth_waiting(fleet: FleetSnapshot, group: Group, free: int, costs: Costs) -> float | None:
        """Return until when a group should wait for its next member; None: not at all."""
        if free > 1 or not fleet.templates[group.template].fusable:
            return None
        waited_ms = fleet.now_ms - min(fleet.sweep_ms.item(row) for row in group.rows)
        slot_free_ms = _slot_free_ms(fleet, group.duration_ms)
        due = len(group.rows)
        # Newcomers that do not come must not be waited for again and again: what was waited
        # before counts.
        longest_ms = longest_wait_ms(
            due=due, slot_free_ms=slot_free_ms, utilisation=fleet.utilisation
        )
        most_ms = longest_ms - waited_ms
        if most_ms <= 0:
            return None
        # Nobody can be expected before the mean of all expectations: that leaves few to look at.
        soon = np.flatnonzero(fleet.sweep_ms <= fleet.now_ms + most_ms).tolist()
        waits = [
            (_expected_wait_ms(fleet, row), row)
            for row in soon
            if fleet.template.item(row) == group.template
            and fleet.ready.item(row)
            and not fleet.due.item(row)
        ]
        if not waits:
            return None
        next_ms, first = min(waits)
        pays = waiting_pays(
            due=due,
            next_ms=next_ms,
            next_queued_ms=costs.queued_ms([first])[0],
            slot_free_ms=slot_free_ms,
            utilisation=fleet.utilisation,
        )
        return fleet.now_ms + max(next_ms, 1.0) if pays and next_ms <= most_ms else None

    def _read_ahead(
        self, fleet: FleetSnapshot, free: int, steps: Sequence[Group], costs: Costs
    ) -> list[Group]:
        """Fill idle slots with reading ahead, as long as that pays."""
        taken = [row for group in steps for row in group.rows]
        room_bytes = math.inf
        if self.memory_bound is not None:
            room_bytes = self.memory_bound * fleet.memory.budget_bytes - fleet.memory.used_bytes
        return ahead_of_time(fleet, free, taken, costs, room_bytes=room_bytes)


def _expected_wait_ms(fleet: FleetSnapshot, row: int) -> float:
    mean_ms, deviation_ms = fleet.sweep_ms.item(row), fleet.sweep_deviation_ms.item(row)
    return expected_wait_of_one_ms(mean_ms, deviation_ms, fleet.now_ms)


def _slot_free_ms(fleet: FleetSnapshot, step_ms: float) -> float:
    """Return when a slot is there for somebody who comes after a step has taken the last one."""
    ends = [*fleet.busy_until_ms, fleet.now_ms + step_ms]
    return max(min(ends) - fleet.now_ms, 0.0)


def _dealt(group: Group, slots: int) -> list[Group]:
    """Deal a group's members to several steps where they outweigh another fixed cost."""
    own_ms = group.queued_ms + group.cost.per_query_ms * len(group.rows)
    worthwhile = int(own_ms // max(group.cost.fixed_ms, 1.0)) + 1
    count = max(1, min(slots, worthwhile, len(group.rows)))
    if count == 1:
        return [group]
    return [group.part(slice(start, None, count)) for start in range(count)]


def klink(memory_bound: float = BOUND) -> Klink:
    """Run the query with the least slack first, and free memory when it runs short.

    `memory_bound` is the share of `Runtime(memory=...)` above which it does.
    """
    return Klink(memory_bound)


def klink_no_memory() -> Klink:
    """Run the query with the least slack first, whatever memory it takes."""
    return Klink(memory_bound=None)
