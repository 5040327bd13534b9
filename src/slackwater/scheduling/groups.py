"""What could be run together: the queries of one template, with what a step over them costs.

Few queries are due at one moment, however many there are. So columns are gone through as a whole
only to find those few; what follows is plain arithmetic, for a numpy call takes as long as a dozen
of those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from slackwater.scheduling.costs import StepCost
from slackwater.scheduling.snapshot import FleetSnapshot, StepChoice

# Overdue windows are taken together until the fixed cost is this small a part of the step: smaller
# steps would make an overload worse.
_FIXED_PART = 20
_LARGEST_PART = 4  # a query counts for at most this part of a step when others are to be added


def step_limit_ms(budget_ms: float, cost: StepCost) -> float:
    """Return how long a step may take."""
    return max(budget_ms, _FIXED_PART * cost.fixed_ms)


@dataclass(frozen=True)
class Costs:
    """Look up what each query's next step would cost; of a backlog, one step's worth counts."""

    fleet: FleetSnapshot

    def of(self, row: int) -> StepCost:
        """Return the cost model of a query's template."""
        return self.fleet.templates[self.fleet.template.item(row)].cost

    def queued_ms(self, rows: Sequence[int]) -> list[float]:
        """Return what the queued events of some queries cost, without the steps that read them."""
        found = []
        for row, queued in zip(rows, self.fleet.backlog.of(rows), strict=True):
            cost = self.of(row)
            limit_ms = step_limit_ms(self.fleet.budget_ms, cost)
            found.append(min(cost.per_event_ms * queued, limit_ms))
        return found

    @cached_property
    def all_fixed_ms(self) -> NDArray[np.float64]:
        """Return the fixed costs of all queries, as a column."""
        return self._column([facts.cost.fixed_ms for facts in self.fleet.templates])

    @cached_property
    def all_queued_ms(self) -> NDArray[np.float64]:
        """Return `queued_ms` of all queries, as a column."""
        templates, budget_ms = self.fleet.templates, self.fleet.budget_ms
        slope = self._column([facts.cost.per_event_ms for facts in templates])
        limit = self._column([step_limit_ms(budget_ms, facts.cost) for facts in templates])
        return np.minimum(slope * self.fleet.queued, limit)

    @cached_property
    def all_alone_ms(self) -> NDArray[np.float64]:
        """Return what each query's step would cost by itself, closing its window, as a column."""
        costs = [facts.cost for facts in self.fleet.templates]
        started = self._column([cost.started_ms() + cost.close_ms for cost in costs])
        return started + self.all_queued_ms

    def _column(self, by_template: list[float]) -> NDArray[np.float64]:
        return np.array(by_template)[self.fleet.template]


@dataclass(frozen=True)
class Group:
    """Name queries of one template that one step can serve, in the order to take them.

    `each_ms` is what the queued events of each cost, `queued_ms` what those of all do.
    """

    template: int
    cost: StepCost
    rows: Sequence[int]
    each_ms: Sequence[float]
    queued_ms: float

    @classmethod
    def of(
        cls, template: int, cost: StepCost, rows: Sequence[int], each_ms: Sequence[float]
    ) -> Group:
        """Describe one step over some queries of a template."""
        return cls(template, cost, rows, each_ms, sum(each_ms))

    @property
    def duration_ms(self) -> float:
        """Return how long the step is expected to take, closing windows."""
        return self.reading_ms + self.cost.close_ms

    @property
    def reading_ms(self) -> float:
        """Return how long the step is expected to take, if it closes no window."""
        return self.cost.started_ms(len(self.rows)) + self.queued_ms

    def part(self, members: slice) -> Group:
        """Return a group of some of the members."""
        return Group.of(self.template, self.cost, self.rows[members], self.each_ms[members])

    def choice(self, fleet: FleetSnapshot) -> StepChoice:
        """Ask for this step, with room for all that is queued, as far as a step may go."""
        most = self.cost.events_within(step_limit_ms(fleet.budget_ms, self.cost), len(self.rows))
        query = fleet.query
        return StepChoice(tuple(query.item(row) for row in self.rows), most)


def groups(
    fleet: FleetSnapshot, rows: Sequence[int], each_ms: Sequence[float], *, singles: int
) -> list[Group]:
    """List the groups among some queries, given in the order to take them, by their first members.

    Queries that cannot share a step are groups by themselves, and only the first `singles` of a
    template are listed.
    """
    members: dict[int, tuple[list[int], list[float]]] = {}
    found: list[tuple[int, list[int], list[float]]] = []
    for row, queued_ms in zip(rows, each_ms, strict=True):
        template = fleet.template.item(row)
        known = members.get(template)
        if known is None:
            known = members[template] = ([], [])
            if fleet.templates[template].fusable:
                found.append((template, *known))
        if not fleet.templates[template].fusable:
            if len(known[0]) == singles:
                continue
            found.append((template, [row], [queued_ms]))
        known[0].append(row)
        known[1].append(queued_ms)
    return [
        Group.of(template, fleet.templates[template].cost, of_rows, of_ms)
        for template, of_rows, of_ms in found
    ]


def bounded(fleet: FleetSnapshot, group: Group) -> Group:
    """Take the first members that fit a step, at least one; a backlog leaves room for others."""
    if len(group.rows) == 1:
        return group
    limit_ms = step_limit_ms(fleet.budget_ms, group.cost)
    most_ms, own_ms = limit_ms / _LARGEST_PART, group.cost.per_query_ms
    spent = accumulate(min(queued_ms, most_ms) + own_ms for queued_ms in group.each_ms)
    count = max(1, sum(spent_ms <= limit_ms for spent_ms in spent))
    return group if count >= len(group.rows) else group.part(slice(count))
