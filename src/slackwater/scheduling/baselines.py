"""The policies that least slack first is measured against: which queries run next."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from slackwater.scheduling.choosing import fused_steps, ordered, with_work
from slackwater.scheduling.groups import Costs
from slackwater.scheduling.snapshot import Decision, FleetSnapshot


@dataclass(frozen=True)
class Deadline:
    """Run the query whose window closes first, just as its watermark has arrived.

    A backlog that would take more than `ahead_share` of a step's budget is worked off while slots
    are idle, so that little is left to do when the window closes.
    """

    ahead_share: float = 0.5
    name: Final = "deadline"

    def decide(self, fleet: FleetSnapshot) -> Decision:
        """Serve what is due, by deadline; then large backlogs, by deadline."""
        due = fleet.ready & fleet.due
        steps = fused_steps(fleet, ordered(fleet, due, fleet.deadline_ms))
        if len(steps) < fleet.free_slots:
            per_event_ms = np.array([facts.cost.per_event_ms for facts in fleet.templates])
            backlog_ms = per_event_ms[fleet.template] * fleet.queued
            large = fleet.ready & ~fleet.due & (backlog_ms > self.ahead_share * fleet.budget_ms)
            ahead = fused_steps(fleet, ordered(fleet, large, fleet.deadline_ms))
            steps += ahead[: fleet.free_slots - len(steps)]
        return Decision(tuple(steps))


@dataclass(frozen=True)
class FirstCome:
    """Run the query whose oldest waiting event arrived first, with its whole template."""

    name: Final = "fcfs"

    def decide(self, fleet: FleetSnapshot) -> Decision:
        """Serve everything that has something to do, oldest event first."""
        order = ordered(fleet, with_work(fleet), fleet.oldest_arrival_ms)
        return Decision(tuple(fused_steps(fleet, order)))


@dataclass(frozen=True)
class RoundRobin:
    """Run the queries in turn, with their whole template: the one served longest ago first."""

    name: Final = "round_robin"

    def decide(self, fleet: FleetSnapshot) -> Decision:
        """Serve everything that has something to do, least recently served first."""
        order = ordered(fleet, with_work(fleet), fleet.last_step)
        return Decision(tuple(fused_steps(fleet, order)))


@dataclass(frozen=True)
class EachInTurn:
    """Do as Spark does: every query with data, as soon as possible, fairly, one query a step."""

    name: Final = "default"

    def decide(self, fleet: FleetSnapshot) -> Decision:
        """Serve one query per free slot, least recently served first."""
        order = ordered(fleet, with_work(fleet), fleet.last_step)
        return Decision(tuple(fused_steps(fleet, order, fuse=False)))


@dataclass(frozen=True)
class HighestRate:
    """Run what puts out most for the time it takes: selectivity over expected cost.

    M. Sharaf et al., "Preemptive Rate-based Operator Scheduling in a Data Stream Management
    System", AICCSA 2005.
    A query of low rate may wait for as long as others have work.
    """

    name: Final = "highest_rate"

    def decide(self, fleet: FleetSnapshot) -> Decision:
        """Serve everything that has something to do, highest output rate first."""
        selectivity = np.array([facts.selectivity for facts in fleet.templates])[fleet.template]
        rate = selectivity * fleet.queued / np.maximum(Costs(fleet).all_alone_ms, 1e-9)
        order = ordered(fleet, with_work(fleet), -rate, fleet.last_step)
        return Decision(tuple(fused_steps(fleet, order)))


@dataclass
class StreamBox:
    """Run the query with the closest deadline, and hold on to it until its window has closed.

    H. Miao et al., "StreamBox: Modern Stream Processing on a Multicore Machine", USENIX ATC 2017.
    """

    name: Final = "streambox"
    _held: dict[int, int] = field(default_factory=dict)  # query -> the deadline it is held for

    def decide(self, fleet: FleetSnapshot) -> Decision:
        """Serve what is held and has something to do; then the closest deadline."""
        held = np.array(
            [
                self._held.get(int(query)) == int(deadline_ms)
                for query, deadline_ms in zip(fleet.query, fleet.deadline_ms, strict=True)
            ],
            dtype=np.bool_,
        )
        steps = fused_steps(fleet, ordered(fleet, with_work(fleet), ~held, fleet.deadline_ms))
        deadlines = dict(zip(fleet.query.tolist(), fleet.deadline_ms.tolist(), strict=True))
        kept = {query: at for query, at in self._held.items() if deadlines.get(query) == at}
        self._held = kept | {step.queries[0]: deadlines[step.queries[0]] for step in steps}
        return Decision(tuple(steps))


def deadline() -> Deadline:
    """Run the query whose window closes first."""
    return Deadline()


def fcfs() -> FirstCome:
    """Run the query whose oldest event waits longest."""
    return FirstCome()


def round_robin() -> RoundRobin:
    """Run the queries in turn."""
    return RoundRobin()


def highest_rate() -> HighestRate:
    """Run the query that puts out most for the time it takes."""
    return HighestRate()


def streambox() -> StreamBox:
    """Run the query with the closest deadline until its window has closed."""
    return StreamBox()


def default() -> EachInTurn:
    """Run every query with data, one at a time, fairly: what Spark itself does."""
    return EachInTurn()
