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
from slackwater.scheduling.snapshot import FleetSnapshot

_LOOK_AHEAD = 32  # windows: more do not become due within a step
_MOST_UTILISATION = 0.95  # beyond, the estimate is worth little


def best_ahead(
    fleet: FleetSnapshot, free_slots: int, taken: NDArray[np.bool_], costs: Costs
) -> Group | None:
    """Find the step ahead of time that saves most per millisecond of its own; None if none pays."""
    idle = fleet.ready & ~fleet.due & ~taken
    candidates = idle & (fleet.queued > 0) & np.isfinite(fleet.sweep_ms)
    coming = np.sort(fleet.sweep_ms[idle])
    coming = coming[:_LOOK_AHEAD]
    felt = 1 / (1 - min(fleet.utilisation, _MOST_UTILISATION))
    best, best_value = None, 0.0
    for whole in groups(fleet, candidates, fleet.sweep_ms, costs):
        if whole.queued_ms <= whole.fixed_ms:
            continue
        for group in _prefixes(whole, costs):
            blocked_ms = _blocked_ms(fleet, free_slots, coming, group.fixed_ms + group.queued_ms)
            saved_ms = (group.queued_ms - group.fixed_ms) * felt - blocked_ms
            value = saved_ms / (group.fixed_ms + group.queued_ms)
            if value > best_value:
                best, best_value = group, value
    return best


def _prefixes(whole: Group, costs: Costs) -> Iterator[Group]:
    """List the first members of a group: one, two, four, ... and all."""
    count = 1
    while count < whole.rows.size:
        yield group_of(whole.template, whole.rows[:count], costs)
        count *= 2
    yield whole


def _blocked_ms(
    fleet: FleetSnapshot, free_slots: int, coming_ms: NDArray[np.float64], step_ms: float
) -> float:
    """Add up how much longer the windows expected next would wait if a slot were taken now.

    Windows that wait for the same slot are taken to share a step when it comes free.
    """
    now_ms = fleet.now_ms
    busy = [max(end_ms, now_ms) for end_ms in fleet.busy_until_ms]
    without = sorted([now_ms] * free_slots + busy)
    with_step = sorted([now_ms] * (free_slots - 1) + [*busy, now_ms + step_ms])
    waits = zip(_starts(coming_ms, with_step), _starts(coming_ms, without), strict=True)
    return sum(later_ms - sooner_ms for later_ms, sooner_ms in waits)


def _starts(coming_ms: NDArray[np.float64], free_ms: list[float]) -> Iterator[float]:
    """Say when a slot is there for each window in turn: one each, the last for all the rest."""
    last = len(free_ms) - 1
    for place, swept_ms in enumerate(coming_ms):
        yield max(float(swept_ms), free_ms[min(place, last)])
