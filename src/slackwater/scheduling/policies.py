"""The policies: which queries run next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from slackwater.errors import DescriptionError
from slackwater.scheduling.choosing import fused_steps, ordered
from slackwater.scheduling.snapshot import Decision, FleetSnapshot, Policy


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
        waiting = fleet.ready & ((fleet.queued > 0) | fleet.due)
        order = ordered(fleet, waiting, fleet.oldest_arrival_ms)
        return Decision(tuple(fused_steps(fleet, order)))


@dataclass(frozen=True)
class RoundRobin:
    """Run the queries in turn, with their whole template: the one served longest ago first."""

    name: Final = "round_robin"

    def decide(self, fleet: FleetSnapshot) -> Decision:
        """Serve everything that has something to do, least recently served first."""
        waiting = fleet.ready & ((fleet.queued > 0) | fleet.due)
        order = ordered(fleet, waiting, fleet.last_step)
        return Decision(tuple(fused_steps(fleet, order)))


@dataclass(frozen=True)
class EachInTurn:
    """Do as Spark does: every query with data, as soon as possible, fairly, one query a step."""

    name: Final = "default"

    def decide(self, fleet: FleetSnapshot) -> Decision:
        """Serve one query per free slot, least recently served first."""
        waiting = fleet.ready & ((fleet.queued > 0) | fleet.due)
        order = ordered(fleet, waiting, fleet.last_step)
        return Decision(tuple(fused_steps(fleet, order, fuse=False)))


def deadline() -> Deadline:
    """Run the query whose window closes first."""
    return Deadline()


def fcfs() -> FirstCome:
    """Run the query whose oldest event waits longest."""
    return FirstCome()


def round_robin() -> RoundRobin:
    """Run the queries in turn."""
    return RoundRobin()


def default() -> EachInTurn:
    """Run every query with data, one at a time, fairly: what Spark itself does."""
    return EachInTurn()


POLICIES: Final = {make().name: make for make in (deadline, fcfs, round_robin, default)}


def policy_named(name: str) -> Policy:
    """Find a policy by the name the command line uses."""
    if name not in POLICIES:
        raise DescriptionError(f"policy={name!r} is unknown: use one of {', '.join(POLICIES)}")
    return POLICIES[name]()
