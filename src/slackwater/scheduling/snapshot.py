"""What a policy sees: all queries at one moment, as columns; and what it answers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from slackwater.scheduling.backlog import Backlog
from slackwater.scheduling.costs import StepCost

UNKNOWN_DEVIATION_MS = 500.0  # of a watermark's arrival, before any was seen


@dataclass(frozen=True)
class TemplateFacts:
    """Say what is known of a template's steps.

    `selectivity` is how many rows leave the pipeline and its grouping for each record that enters:
    what a record read ahead of its window's end leaves behind as state, and in the end as results.
    `bytes_per_event` is how much memory that takes.
    """

    cost: StepCost
    fusable: bool
    selectivity: float = 1.0
    bytes_per_event: float = 0.0


@dataclass(frozen=True)
class MemoryFacts:
    """Say how much window state is held in memory, against what may be."""

    used_bytes: int = 0
    budget_bytes: float = math.inf

    @property
    def share(self) -> float:
        """Return how full it is: 1 is all of the budget."""
        return self.used_bytes / self.budget_bytes


@dataclass(frozen=True)
class FleetSnapshot:
    """Hold all queries at one moment; the columns are aligned, one entry per query.

    `due` says that a window can close with what has arrived. `deadline_ms` is the end of the
    query's next window. `sweep_ms` is when the watermark that closes it came in (where `due`) or is
    expected, give or take `sweep_deviation_ms` (infinite where nothing more will close).
    `backlog` counts the records that wait. `last_step` is the number of the step
    that served the query last (-1: none). `state_bytes` is what its windows hold in memory,
    `freed_bytes` what closing the next one frees. `ready` excludes running and quarantined queries.
    `amend_at_ms` is when the query has a past window to be amended, behind all that is due (None:
    nobody has any). `busy_until_ms` says when each of the running steps is expected to end,
    `utilisation` which share of all slots' time went into due windows of late.
    """

    now_ms: float
    free_slots: int
    budget_ms: float
    query: NDArray[np.int64]
    template: NDArray[np.int64]
    backlog: Backlog
    deadline_ms: NDArray[np.int64]
    sweep_ms: NDArray[np.float64]
    sweep_deviation_ms: NDArray[np.float64]
    due: NDArray[np.bool_]
    ready: NDArray[np.bool_]
    last_step: NDArray[np.int64]
    state_bytes: NDArray[np.int64]
    freed_bytes: NDArray[np.int64]
    templates: tuple[TemplateFacts, ...]
    busy_until_ms: tuple[float, ...] = ()
    utilisation: float = 0.0
    memory: MemoryFacts = MemoryFacts()
    amend_at_ms: NDArray[np.float64] | None = None

    @property
    def queued(self) -> NDArray[np.int64]:
        """Count the records that wait for each query; `backlog.of` is cheaper for a few."""
        return self.backlog.queued

    @property
    def oldest_arrival_ms(self) -> NDArray[np.float64]:
        """Tell when the oldest of them arrived; infinite where nothing is queued."""
        return self.backlog.oldest_arrival_ms


@dataclass(frozen=True)
class StepChoice:
    """Ask for one step over these queries, reading at most `max_events` in all.

    `amends` says that it also amends past windows of theirs, where they are due.
    """

    queries: tuple[int, ...]
    max_events: int
    amends: bool = False


@dataclass(frozen=True)
class Decision:
    """Say what to run now, and when to ask again at the latest (None: when something happens).

    Before `quiet_until_ms`, only a window that becomes due is worth asking about: that input
    arrives, or a step ends, changes nothing.
    """

    steps: tuple[StepChoice, ...] = ()
    wake_ms: float | None = None
    quiet_until_ms: float = -math.inf


class Policy(Protocol):
    """Decide which queries run next. The same snapshots in the same order give the same decisions.

    A policy may remember what it decided before (StreamBox holds on to a query, Klink to its memory
    mode), but never reads a clock or draws a random number.
    """

    @property
    def name(self) -> str:
        """Return the name the command line knows it by."""
        ...

    def decide(self, fleet: FleetSnapshot) -> Decision:
        """Choose at most `fleet.free_slots` steps among the ready queries."""
        ...
