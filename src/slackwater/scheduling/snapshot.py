"""What a policy sees: all queries at one moment, as columns; and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from slackwater.scheduling.costs import StepCost


@dataclass(frozen=True)
class TemplateFacts:
    """Say what is known of a template's steps."""

    cost: StepCost
    fusable: bool


@dataclass(frozen=True)
class FleetSnapshot:
    """Hold all queries at one moment; the columns are aligned, one entry per query.

    `due` says that a window can close with what has arrived. `deadline_ms` is the end of the
    query's next window. `oldest_arrival_ms` is infinite where nothing is queued. `last_step` is the
    number of the step that served the query last (-1: none). `ready` excludes running and
    quarantined queries.
    """

    now_ms: float
    free_slots: int
    budget_ms: float
    query: NDArray[np.int64]
    template: NDArray[np.int64]
    queued: NDArray[np.int64]
    oldest_arrival_ms: NDArray[np.float64]
    deadline_ms: NDArray[np.int64]
    due: NDArray[np.bool_]
    ready: NDArray[np.bool_]
    last_step: NDArray[np.int64]
    templates: tuple[TemplateFacts, ...]


@dataclass(frozen=True)
class StepChoice:
    """Ask for one step over these queries, reading at most `max_events` in all."""

    queries: tuple[int, ...]
    max_events: int


@dataclass(frozen=True)
class Decision:
    """Say what to run now, and when to ask again at the latest (None: when something happens)."""

    steps: tuple[StepChoice, ...] = ()
    wake_ms: float | None = None


class Policy(Protocol):
    """Decide which queries run next. Pure: the same snapshot gives the same decision.

    Least-slack-first (Klink) will be one more module beside these, with the same interface.
    """

    @property
    def name(self) -> str:
        """Return the name the command line knows it by."""
        ...

    def decide(self, fleet: FleetSnapshot) -> Decision:
        """Choose at most `fleet.free_slots` steps among the ready queries."""
        ...
