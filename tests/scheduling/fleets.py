"""Snapshots made by hand, for tests of policies; queries are numbered from 100."""

from __future__ import annotations

from typing import Any

import numpy as np

from slackwater.scheduling.backlog import CountedBacklog
from slackwater.scheduling.costs import StepCost
from slackwater.scheduling.snapshot import FleetSnapshot, MemoryFacts, Policy, TemplateFacts

NOW_MS = 100_000.0
LEARNED = StepCost(fixed_ms=30.0, per_event_ms=0.0005, observations=50, most_events=1_000_000)


def fleet(
    *,
    queued: list[int],
    template: list[int] | None = None,
    due: list[bool] | None = None,
    ready: list[bool] | None = None,
    deadline_ms: list[int] | None = None,
    oldest_ms: list[float] | None = None,
    last_step: list[int] | None = None,
    slots: int = 2,
    fusable: bool = True,
    cost: StepCost = LEARNED,
    sweep_ms: list[float] | None = None,
    deviation_ms: float = 0.0,
    state_bytes: list[int] | None = None,
    memory: MemoryFacts | None = None,
    busy_until_ms: tuple[float, ...] = (),
    utilisation: float = 0.0,
) -> FleetSnapshot:
    size = len(queued)
    templates = template or [0] * size
    oldest: list[Any] = oldest_ms or [NOW_MS - 10 if n else np.inf for n in queued]
    is_due = due or [True] * size
    sweeps = sweep_ms or [NOW_MS - 1 if now else NOW_MS + 1_000 for now in is_due]
    held = np.array(state_bytes or [0] * size, dtype=np.int64)
    return FleetSnapshot(
        now_ms=NOW_MS,
        free_slots=slots,
        budget_ms=250.0,
        query=np.arange(size, dtype=np.int64) + 100,
        template=np.array(templates, dtype=np.int64),
        backlog=CountedBacklog(
            np.array(queued, dtype=np.int64), np.array(oldest, dtype=np.float64)
        ),
        sweep_ms=np.array(sweeps, dtype=np.float64),
        sweep_deviation_ms=np.full(size, deviation_ms),
        deadline_ms=np.array(deadline_ms or [100_000] * size, dtype=np.int64),
        due=np.array(is_due),
        ready=np.array(ready or [True] * size),
        last_step=np.array(last_step or [-1] * size, dtype=np.int64),
        state_bytes=held,
        freed_bytes=held,
        templates=tuple(TemplateFacts(cost, fusable) for _ in range(max(templates) + 1)),
        busy_until_ms=busy_until_ms,
        utilisation=utilisation,
        memory=memory or MemoryFacts(),
    )


def chosen(policy: Policy, snapshot: FleetSnapshot) -> list[list[int]]:
    return [[query - 100 for query in step.queries] for step in policy.decide(snapshot).steps]
