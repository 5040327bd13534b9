"""Least slack first (Klink), for steps that serve many queries at once.

O. Farhan, K. Daudjee, M. T. Özsu: "Klink: Progress-Aware Scheduling for Streaming Data Systems",
SIGMOD 2021. On Spark the unit that is scheduled is a step with a fixed cost, so the right moment to
run a query is just as its sweeping watermark arrives, with all of its template that are due.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from slackwater.errors import DescriptionError
from slackwater.scheduling.ahead import best_ahead, kept_bytes
from slackwater.scheduling.fusing import waiting_pays
from slackwater.scheduling.groups import Costs, Group, bounded, group_of, groups
from slackwater.scheduling.memory import BOUND, MemoryMode, freeing_rate
from slackwater.scheduling.slack import expected_wait_ms, overdue_slack_ms, slack_ms
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
        costs = Costs.of(fleet)
        freeing = self._manages_memory(fleet, costs)
        steps: list[Group] = []
        wake_ms: float | None = None
        due = fleet.ready & fleet.due
        if due.any():
            steps, wake_ms = self._serve(fleet, self._by_urgency(fleet, due, costs), costs)
        free = fleet.free_slots - len(steps)
        if free > 0 and self.ahead and not freeing and wake_ms is None:
            steps += self._read_ahead(fleet, free, steps, costs)
        return Decision(tuple(group.choice(fleet) for group in steps), wake_ms)

    def _by_urgency(
        self, fleet: FleetSnapshot, due: NDArray[np.bool_], costs: Costs
    ) -> list[Group]:
        """List the groups that are due: by least slack, or by what closing them frees."""
        alone_ms = costs.alone_ms
        overdue = overdue_slack_ms(fleet.sweep_ms, alone_ms, fleet.now_ms)
        slack = np.maximum(overdue, -_HOPELESS_BUDGETS * fleet.budget_ms)
        key = -freeing_rate(fleet, alone_ms) if self._memory.on else slack
        found = groups(fleet, due, key, costs, singles=fleet.free_slots)
        listed = [bounded(fleet, group, costs) for group in found]
        return sorted(listed, key=lambda group: _urgency(fleet, group, key, slack))

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
            costs.alone_ms[waiting],
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
                steps += _dealt(group, free, costs)
            else:
                steps.append(group)
        return steps, wake_ms

    @staticmethod
    def _worth_waiting(fleet: FleetSnapshot, group: Group, free: int, costs: Costs) -> float | None:
        """Return until when a group should wait for its next member; None: not at all."""
        if free > 1 or not fleet.templates[group.template].fusable:
            return None
        near = np.flatnonzero(fleet.ready & ~fleet.due & (fleet.template == group.template))
        near = near[np.isfinite(fleet.sweep_ms[near])]
        if near.size == 0:
            return None
        waits = expected_wait_ms(fleet.sweep_ms[near], fleet.sweep_deviation_ms[near], fleet.now_ms)
        first = int(np.argmin(waits))
        pays = waiting_pays(
            due=group.rows.size,
            next_ms=float(waits[first]),
            next_queued_ms=float(costs.queued_ms[near[first]]),
            slot_free_ms=_slot_free_ms(fleet, group.duration_ms),
            utilisation=fleet.utilisation,
        )
        waited_ms = fleet.now_ms - float(fleet.sweep_ms[group.rows].min())
        if not pays or waited_ms + waits[first] > group.fixed_ms:
            return None  # a newcomer that does not come must not be waited for again and again
        return fleet.now_ms + max(float(waits[first]), 1.0)

    def _read_ahead(
        self, fleet: FleetSnapshot, free: int, steps: Sequence[Group], costs: Costs
    ) -> list[Group]:
        """Fill idle slots with reading ahead, as long as that pays."""
        taken = np.zeros(fleet.query.size, dtype=np.bool_)
        for group in steps:
            taken[group.rows] = True
        found: list[Group] = []
        room_bytes = np.inf
        if self.memory_bound is not None:
            room_bytes = self.memory_bound * fleet.memory.budget_bytes - fleet.memory.used_bytes
        while len(found) < free:
            best = best_ahead(fleet, free - len(found), taken, costs, room_bytes=room_bytes)
            if best is None:
                break
            found.append(best)
            room_bytes -= kept_bytes(fleet, best)
            taken[best.rows] = True
        return found


def _urgency(
    fleet: FleetSnapshot, group: Group, key: np.ndarray, slack: np.ndarray
) -> tuple[float, float, int, int]:
    """Order groups by their most urgent member, and members alike by who was served longest ago."""
    rows = group.rows
    first = rows[np.lexsort((fleet.query[rows], fleet.last_step[rows], slack[rows], key[rows]))[0]]
    return float(key[first]), float(slack[first]), int(fleet.last_step[first]), int(first)


def _slot_free_ms(fleet: FleetSnapshot, step_ms: float) -> float:
    """Return when a slot is there for somebody who comes after a step has taken the last one."""
    ends = [*fleet.busy_until_ms, fleet.now_ms + step_ms]
    return max(min(ends) - fleet.now_ms, 0.0)


def _dealt(group: Group, slots: int, costs: Costs) -> list[Group]:
    """Deal a group's members to several steps where their events outweigh another fixed cost."""
    worthwhile = int(group.queued_ms // max(group.fixed_ms, 1.0)) + 1
    count = max(1, min(slots, worthwhile, group.rows.size))
    return [group_of(group.template, group.rows[start::count], costs) for start in range(count)]


def klink(memory_bound: float = BOUND) -> Klink:
    """Run the query with the least slack first, and free memory when it runs short.

    `memory_bound` is the share of `Runtime(memory=...)` above which it does.
    """
    return Klink(memory_bound)


def klink_no_memory() -> Klink:
    """Run the query with the least slack first, whatever memory it takes."""
    return Klink(memory_bound=None)
