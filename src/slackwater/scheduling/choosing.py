"""What policies share: from an order of queries to steps of one template each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from slackwater.scheduling.snapshot import FleetSnapshot, StepChoice

_LARGEST_PART = 4  # a query counts for at most this part of a step when others are to be added


def with_work(fleet: FleetSnapshot) -> NDArray[np.bool_]:
    """Find the queries that have something to do: to read, or to close."""
    return fleet.ready & ((fleet.queued > 0) | fleet.due)


def ordered(
    fleet: FleetSnapshot, among: NDArray[np.bool_], *keys: NDArray[np.generic]
) -> list[int]:
    """List the rows of a snapshot that qualify, by the keys given (most important first)."""
    rows = np.flatnonzero(among)
    order = np.lexsort((fleet.query[rows], *(key[rows] for key in reversed(keys))))
    return [int(row) for row in rows[order]]


def fused_steps(fleet: FleetSnapshot, order: list[int], *, fuse: bool = True) -> list[StepChoice]:
    """Make steps for the free slots: the first query in the order, with all of its template.

    A step takes queries until their events fill the budget, so it may end in the middle of the last
    query's backlog. Where marginal cost outweighs the fixed cost of another job and slots are free,
    the queries are dealt to several steps.
    """
    steps: list[StepChoice] = []
    waiting = order
    while waiting and len(steps) < fleet.free_slots:
        template = int(fleet.template[waiting[0]])
        facts = fleet.templates[template]
        limit = facts.cost.events_within(fleet.budget_ms)
        if not (fuse and facts.fusable):
            steps.append(StepChoice((int(fleet.query[waiting[0]]),), limit))
            waiting = waiting[1:]
            continue
        same = [row for row in waiting if int(fleet.template[row]) == template]
        waiting = [row for row in waiting if int(fleet.template[row]) != template]
        slots = fleet.free_slots - len(steps)
        for share in _shares(fleet, same, slots):
            steps.append(_filled(fleet, share, limit))
    return steps


def _shares(fleet: FleetSnapshot, rows: list[int], slots: int) -> list[list[int]]:
    cost = fleet.templates[int(fleet.template[rows[0]])].cost
    marginal_ms = cost.per_event_ms * float(fleet.queued[rows].sum())
    worthwhile = int(marginal_ms // max(cost.fixed_ms, 1.0)) + 1
    count = max(1, min(slots, worthwhile, len(rows)))
    return [rows[start::count] for start in range(count)]


def _filled(fleet: FleetSnapshot, rows: list[int], limit: int) -> StepChoice:
    """Take queries in order until the step is full; one with a backlog leaves room for others."""
    chosen, events = [], 0
    for row in rows:
        chosen.append(int(fleet.query[row]))
        events += min(int(fleet.queued[row]), limit // _LARGEST_PART)
        if events >= limit:
            break
    return StepChoice(tuple(chosen), limit)


def fair_shares(wanted: Sequence[int], room: int) -> list[int]:
    """Share out room so that nobody gets more than wanted, and small wishes are met in full.

    >>> fair_shares([10, 1_000, 500], room=300)
    [10, 145, 145]
    >>> fair_shares([10, 20], room=300)
    [10, 20]
    """
    shares = [0] * len(wanted)
    waiting = sorted(range(len(wanted)), key=lambda index: wanted[index])
    for position, index in enumerate(waiting):
        shares[index] = min(wanted[index], room // (len(waiting) - position))
        room -= shares[index]
    return shares
