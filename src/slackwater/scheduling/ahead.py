"""Work ahead of the sweeping watermark, only where it pays.

Reading a window's events before its watermark comes leaves less to do after it, but costs the fixed
price of one more step, and the slot is taken if another window becomes due meanwhile. So a slot
that would idle reads ahead if that makes latencies shorter on the whole. What it saves is the
queued events' own cost less the fixed cost; and because later windows queue up behind the work that
is left, a millisecond saved is `1 / (1 - utilisation)` milliseconds in all, up to two: where slots
are busier than half of the time, the fixed costs of reading ahead take what idle time there is.
What it costs is the time that the windows expected next would wait longer for a slot.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from slackwater.scheduling.groups import Costs, Group, groups
from slackwater.scheduling.slot_use import felt_by_all
from slackwater.scheduling.snapshot import FleetSnapshot

# A window whose events cost less than this part of a step is hardly sooner for being read ahead,
# and a long step over many such would keep others waiting.
_LEAST_PART = 0.5
# Without a bound, slots are busy all the time where steps are dear: in replays of LRB and YSB with
# recorded costs at a load of 0.9, latencies were a tenth longer. Less leaves slots idle.
_MOST_FELT = 2.0
_TRIED = 8  # templates, those with most to read
_LOOK_AGAIN_BUDGETS = 4
_LOOK_AHEAD = 32  # windows: more do not become due within a step


def latest_look_ms(fleet: FleetSnapshot) -> float:
    """Return by when to look again at the latest; what is later was said before a clock was set."""
    return fleet.now_ms + _LOOK_AGAIN_BUDGETS * fleet.budget_ms


def nothing_to_read_until_ms(fleet: FleetSnapshot) -> float:
    """Return until when no query can have enough queued to be worth reading ahead.

    Told by the longest queue, at the dearest events and the cheapest step of all, if it grows as
    fast as it did; a few budgets from now at most, for queues may grow faster. The moment itself
    where there may be enough already.
    """
    later_ms = latest_look_ms(fleet)
    if fleet.queued.size == 0:
        return later_ms
    longest = int(fleet.queued.argmax())
    costs = [facts.cost for facts in fleet.templates]
    queued_ms = max(cost.per_event_ms for cost in costs) * fleet.queued.item(longest)
    enough_ms = _LEAST_PART * min(cost.fixed_ms for cost in costs)
    if queued_ms >= enough_ms:
        return fleet.now_ms
    if queued_ms <= 0:
        return fleet.now_ms + fleet.budget_ms  # nobody can tell how fast queues will grow
    grew_for_ms = max(fleet.now_ms - fleet.oldest_arrival_ms.item(longest), 0.0)
    return min(fleet.now_ms + grew_for_ms * (enough_ms / queued_ms - 1), later_ms)


def ahead_of_time(
    fleet: FleetSnapshot,
    free_slots: int,
    taken: Collection[int],
    costs: Costs,
    *,
    room_bytes: float,
) -> list[Group]:
    """Find steps ahead of time for idle slots, each the one that saves most for the time it takes.

    What they read stays in memory until its windows close: there must be room for it.
    """
    idle = fleet.ready & ~fleet.due
    if taken:
        idle[list(taken)] = False
    worth_having = costs.all_queued_ms >= _LEAST_PART * costs.all_fixed_ms
    candidates = idle & worth_having & (fleet.queued > 0) & np.isfinite(fleet.sweep_ms)
    waiting = _worthwhile(fleet, np.flatnonzero(candidates), costs, free_slots)
    coming = np.sort(fleet.sweep_ms[idle])[: _LOOK_AHEAD + 1].tolist() if waiting else []
    busy = [max(end_ms, fleet.now_ms) for end_ms in fleet.busy_until_ms]
    found: list[Group] = []
    while waiting and len(found) < free_slots:
        others = [fleet.now_ms] * (free_slots - len(found) - 1) + busy
        best = _best(fleet, waiting, _Slots(fleet.now_ms, others, coming), room_bytes)
        if best is None:
            break
        found.append(best)
        room_bytes -= kept_bytes(fleet, best)
        gone = set(best.rows)
        waiting = [rest for group in waiting if (rest := _without(group, gone)) is not None]
        for row in best.rows:
            sweep_ms = fleet.sweep_ms.item(row)
            if sweep_ms in coming:
                coming.remove(sweep_ms)
    return found


def _worthwhile(
    fleet: FleetSnapshot, rows: np.ndarray, costs: Costs, free_slots: int
) -> list[Group]:
    """List the templates that have more to read than a step costs, those with most first."""
    if rows.size == 0:
        return []
    fusable = np.array([facts.fusable for facts in fleet.templates])[fleet.template[rows]]
    each_ms = costs.all_queued_ms[rows]
    key = np.where(fusable, fleet.sweep_ms[rows], -each_ms)
    order = np.lexsort((fleet.query[rows], fleet.last_step[rows], key))
    tried = max(_TRIED, free_slots)
    listed = groups(fleet, rows[order].tolist(), each_ms[order].tolist(), singles=tried)
    return sorted(filter(_outweighs, listed), key=lambda group: -group.queued_ms)


def _outweighs(group: Group) -> bool:
    return group.queued_ms > group.cost.fixed_ms


def _without(group: Group, gone: set[int]) -> Group | None:
    """Return what is left of a group; None if it is no longer worth a step."""
    if gone.isdisjoint(group.rows):
        return group
    kept = [place for place, row in enumerate(group.rows) if row not in gone]
    rest = Group.of(
        group.template,
        group.cost,
        [group.rows[place] for place in kept],
        [group.each_ms[place] for place in kept],
    )
    return rest if _outweighs(rest) else None


def _best(
    fleet: FleetSnapshot, waiting: Sequence[Group], slots: _Slots, room_bytes: float
) -> Group | None:
    """Find the step that saves most per millisecond of its own; None if none pays."""
    felt = min(felt_by_all(fleet.utilisation), _MOST_FELT)
    best, best_value = None, 0.0
    for whole in waiting[:_TRIED]:
        for group in _prefixes(whole):
            step_ms = group.reading_ms
            saved_ms = (group.queued_ms - group.cost.fixed_ms) * felt
            if saved_ms / step_ms <= best_value or kept_bytes(fleet, group) > room_bytes:
                continue
            value = (saved_ms - slots.blocked_ms(step_ms)) / step_ms
            if value > best_value:
                best, best_value = group, value
    return best


def kept_bytes(fleet: FleetSnapshot, group: Group) -> float:
    """Return how much memory it takes to keep what a step ahead of time reads."""
    per_event = fleet.templates[group.template].bytes_per_event
    return per_event * sum(fleet.backlog.of(group.rows)) if per_event else 0.0


def _prefixes(whole: Group) -> Iterator[Group]:
    """List the first members of a group: one, two, four, ... and all."""
    count = 1
    while count < len(whole.rows):
        yield whole.part(slice(count))
        count *= 2
    yield whole


class _Slots:
    """Say who would wait for a slot: one for each window in turn, the last for all the rest.

    Windows that wait for the same slot are taken to share a step when it comes free.
    """

    def __init__(
        self, now_ms: float, others_free_ms: Sequence[float], coming_ms: Sequence[float]
    ) -> None:
        self._now_ms = now_ms
        self._coming_ms = coming_ms[:_LOOK_AHEAD]
        self._others = list(others_free_ms)
        self._without_ms = self._starts([*self._others, now_ms])

    def blocked_ms(self, step_ms: float) -> float:
        """Add up how much longer the windows expected next would wait if a slot were taken."""
        return self._starts([*self._others, self._now_ms + step_ms]) - self._without_ms

    def _starts(self, free_ms: list[float]) -> float:
        """Add up when a slot is there for each window."""
        free_ms.sort()
        free_ms += [free_ms[-1]] * (len(self._coming_ms) - len(free_ms))
        return sum(map(max, self._coming_ms, free_ms))
