"""Work ahead of the sweeping watermark, only where it pays.

Reading a window's events before its watermark comes leaves less to do after it, but costs the fixed
price of one more step, and the slot is taken if another window becomes due meanwhile. So a slot
that would idle reads ahead if that makes latencies shorter on the whole. What it saves is the
queued events' own cost less the fixed cost; and because later windows queue up behind the work that
is left, a millisecond saved is `1 / (1 - utilisation)` milliseconds in all. What it costs is the
time that the windows expected next would wait longer for a slot.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from slackwater.scheduling.groups import Costs, Group, group_of, groups
from slackwater.scheduling.slot_use import felt_by_all
from slackwater.scheduling.snapshot import FleetSnapshot

# A window whose events cost less than this part of a step is hardly sooner for being read ahead,
# and a long step over many such would keep others waiting.
_LEAST_PART = 0.5
_TRIED = 8  # templates, those with most to read
_LOOK_AHEAD = 32  # windows: more do not become due within a step


def best_ahead(
    fleet: FleetSnapshot,
    free_slots: int,
    taken: NDArray[np.bool_],
    costs: Costs,
    *,
    room_bytes: float,
) -> Group | None:
    """Find the step ahead of time that saves most per millisecond of its own; None if none pays.

    What it reads stays in memory until its windows close: there must be room for it.
    """
    idle = fleet.ready & ~fleet.due & ~taken
    worth_having = costs.queued_ms >= _LEAST_PART * costs.fixed_ms
    candidates = idle & worth_having & (fleet.queued > 0) & np.isfinite(fleet.sweep_ms)
    if not _any_worthwhile(fleet, candidates, costs):
        return None
    order = np.where(_fusable(fleet), fleet.sweep_ms, -costs.queued_ms)
    found = groups(fleet, candidates, order, costs, singles=_TRIED)
    worthwhile = [group for group in found if group.queued_ms > group.fixed_ms]
    worthwhile.sort(key=lambda group: -group.queued_ms)
    if not worthwhile:
        return None
    coming = fleet.sweep_ms[idle]
    if coming.size > _LOOK_AHEAD:
        coming = np.partition(coming, _LOOK_AHEAD)[:_LOOK_AHEAD]
    slots = _Slots(fleet, free_slots, np.sort(coming))
    felt = felt_by_all(fleet.utilisation)
    best, best_value = None, 0.0
    for whole in worthwhile[:_TRIED]:
        for group in _prefixes(whole, costs):
            step_ms = group.fixed_ms + group.queued_ms
            saved_ms = (group.queued_ms - group.fixed_ms) * felt
            if saved_ms / step_ms <= best_value or kept_bytes(fleet, group) > room_bytes:
                continue
            value = (saved_ms - slots.blocked_ms(step_ms)) / step_ms
            if value > best_value:
                best, best_value = group, value
    return best


def _any_worthwhile(fleet: FleetSnapshot, candidates: NDArray[np.bool_], costs: Costs) -> bool:
    """Tell quickly whether some template has more to read than a step costs."""
    together = np.bincount(
        fleet.template, np.where(candidates, costs.queued_ms, 0.0), len(fleet.templates)
    )
    return bool((together > [facts.cost.fixed_ms for facts in fleet.templates]).any())


def kept_bytes(fleet: FleetSnapshot, group: Group) -> float:
    """Return how much memory it takes to keep what a step ahead of time reads."""
    events = float(fleet.queued[group.rows].sum())
    return events * fleet.templates[group.template].bytes_per_event


def _fusable(fleet: FleetSnapshot) -> NDArray[np.bool_]:
    return np.array([facts.fusable for facts in fleet.templates])[fleet.template]


def _prefixes(whole: Group, costs: Costs) -> Iterator[Group]:
    """List the first members of a group: one, two, four, ... and all."""
    count = 1
    while count < whole.rows.size:
        yield group_of(whole.template, whole.rows[:count], costs)
        count *= 2
    yield whole


class _Slots:
    """Say who would wait for a slot: one for each window in turn, the last for all the rest.

    Windows that wait for the same slot are taken to share a step when it comes free.
    """

    def __init__(
        self, fleet: FleetSnapshot, free_slots: int, coming_ms: NDArray[np.float64]
    ) -> None:
        self._now_ms = fleet.now_ms
        self._coming_ms = coming_ms
        busy = [max(end_ms, fleet.now_ms) for end_ms in fleet.busy_until_ms]
        self._others = [fleet.now_ms] * (free_slots - 1) + busy
        self._without_ms = self._starts([*self._others, fleet.now_ms])

    def blocked_ms(self, step_ms: float) -> float:
        """Add up how much longer the windows expected next would wait if a slot were taken."""
        return self._starts([*self._others, self._now_ms + step_ms]) - self._without_ms

    def _starts(self, free_ms: list[float]) -> float:
        """Add up when a slot is there for each window."""
        free = np.sort(np.array(free_ms))
        place = np.minimum(np.arange(self._coming_ms.size), free.size - 1)
        return float(np.maximum(self._coming_ms, free[place]).sum())
