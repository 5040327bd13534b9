"""What could be run together: the queries of one template, with what a step over them costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slackwater.scheduling.snapshot import FleetSnapshot, StepChoice

Rows = NDArray[np.intp]


# Overdue windows are taken together until the fixed cost is this small a part of the step: smaller
# steps would make an overload worse.
_FIXED_PART = 20
_LARGEST_PART = 4  # a query counts for at most this part of a step when others are to be added


def step_limit_ms(fleet: FleetSnapshot, fixed_ms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how long a step may take."""
    return np.maximum(fleet.budget_ms, _FIXED_PART * fixed_ms)


@dataclass(frozen=True)
class Costs:
    """Hold the cost model of each query's template, as columns aligned with the snapshot's."""

    fixed_ms: NDArray[np.float64]
    queued_ms: NDArray[np.float64]  # what is queued, at the cost per event
    close_ms: NDArray[np.float64]

    @classmethod
    def of(cls, fleet: FleetSnapshot) -> Costs:
        """Look up what each query's next step would cost; of a backlog, one step's worth counts."""
        costs = [facts.cost for facts in fleet.templates]
        fixed = np.array([cost.fixed_ms for cost in costs])[fleet.template]
        slope = np.array([cost.per_event_ms for cost in costs])[fleet.template]
        close = np.array([cost.close_ms for cost in costs])[fleet.template]
        return cls(fixed, np.minimum(slope * fleet.queued, step_limit_ms(fleet, fixed)), close)

    @property
    def alone_ms(self) -> NDArray[np.float64]:
        """Return what each query's step would cost by itself, closing its window."""
        return self.fixed_ms + self.queued_ms + self.close_ms


@dataclass(frozen=True)
class Group:
    """Name queries of one template that one step can serve, in the order to take them."""

    template: int
    rows: Rows
    fixed_ms: float
    queued_ms: float
    close_ms: float

    @property
    def duration_ms(self) -> float:
        """Return how long the step is expected to take."""
        return self.fixed_ms + self.queued_ms + self.close_ms

    def choice(self, fleet: FleetSnapshot) -> StepChoice:
        """Ask for this step, with room for all that is queued, as far as a step may go."""
        limit_ms = float(step_limit_ms(fleet, np.array(self.fixed_ms)))
        most = fleet.templates[self.template].cost.events_within(limit_ms)
        chosen = tuple(int(query) for query in fleet.query[self.rows])
        return StepChoice(chosen, most)


def groups(
    fleet: FleetSnapshot, among: NDArray[np.bool_], key: NDArray[np.float64], costs: Costs
) -> Iterator[Group]:
    """List the groups among some queries: a template's members by `key`, or each by itself."""
    rows = np.flatnonzero(among)
    if rows.size == 0:
        return
    rows = rows[
        np.lexsort((fleet.query[rows], fleet.last_step[rows], key[rows], fleet.template[rows]))
    ]
    edges = np.flatnonzero(np.diff(fleet.template[rows])) + 1
    for members in np.split(rows, edges):
        template = int(fleet.template[members[0]])
        parts = [members] if fleet.templates[template].fusable else np.split(members, members.size)
        for part in parts:
            yield group_of(template, part, costs)


def group_of(template: int, rows: Rows, costs: Costs) -> Group:
    """Describe one step over some queries of a template."""
    first = rows[0]
    return Group(
        template,
        rows,
        float(costs.fixed_ms[first]),
        float(costs.queued_ms[rows].sum()),
        float(costs.close_ms[first]),
    )


def bounded(fleet: FleetSnapshot, group: Group, costs: Costs) -> Group:
    """Take the first members that fit a step, at least one; a backlog leaves room for others."""
    limit_ms = float(step_limit_ms(fleet, np.array(group.fixed_ms)))
    spent = np.cumsum(np.minimum(costs.queued_ms[group.rows], limit_ms / _LARGEST_PART))
    count = max(1, int(np.searchsorted(spent, limit_ms, side="right")))
    if count >= group.rows.size:
        return group
    return group_of(group.template, group.rows[:count], costs)
