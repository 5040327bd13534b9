"""When memory runs short: free the most first, until half of it is free or slack runs out.

Input waits in its source; what fills memory is the state of windows. Closing windows frees it, and
reading ahead adds to it. So above the bound, due windows are taken by what closing them frees for
the time it takes, and nothing is read ahead.
"""

from __future__ import annotations

from dataclasses import dataclass

from slackwater.scheduling.snapshot import FleetSnapshot

BOUND = 0.8
FREED_SHARE = 0.5


@dataclass(frozen=True)
class MemoryMode:
    """Say whether memory comes first, and until when: the state of a small machine.

    >>> calm = MemoryMode()
    >>> pressed = calm.after(used=85, bound=80, now_ms=0, least_slack_ms=400)
    >>> pressed.on, pressed.until_bytes, pressed.until_ms
    (True, 42.5, 400)
    >>> pressed.after(used=60, bound=80, now_ms=100, least_slack_ms=900).on  # not yet
    True
    >>> pressed.after(used=40, bound=80, now_ms=200, least_slack_ms=900).on  # half is freed
    False
    >>> pressed.after(used=70, bound=80, now_ms=401, least_slack_ms=900).on  # somebody is due
    False
    """

    on: bool = False
    until_bytes: float = 0.0
    until_ms: float = 0.0
    since_ms: float = 0.0  # a moment before it is one before the clock was set back

    def after(
        self, *, used: float, bound: float, now_ms: float, least_slack_ms: float
    ) -> MemoryMode:
        """Take in how full memory is; above the bound the mode begins, or begins anew."""
        if self.on and used > self.until_bytes and self.since_ms <= now_ms < self.until_ms:
            return self
        if used >= bound:
            until_ms = now_ms + max(least_slack_ms, 0.0)
            return MemoryMode(True, used * FREED_SHARE, until_ms, now_ms)
        return MemoryMode()


def freeing_rate(fleet: FleetSnapshot, row: int, cost_ms: float) -> float:
    """Return the bytes that closing a due query's window frees per millisecond.

    Counted is what can be done within one budget, as in the paper's cycle: a longer step frees its
    state only in part by then.
    """
    cost_ms = max(cost_ms, 1e-9)
    in_cycle = min(1.0, fleet.budget_ms / cost_ms)
    return fleet.freed_bytes.item(row) * in_cycle / cost_ms
