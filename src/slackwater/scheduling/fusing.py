"""Whether to wait a little, so that one step serves one query more: a matter of expected latency.

Let `n` windows of a template be due, and the next one of the same template be expected in `d` ms.
Started now, the step takes `s`; the newcomer then needs a step of its own, and if no slot is left
for it, it first waits `s - d`. Waiting delays the `n` by `d` and by the newcomer's own events `e`,
and saves the fixed cost `c` of a second step, for the newcomer and for all who wait for a slot.

    now       n * s             + max(s - d, 0) or 0  + c + e   + c * waiting
    waiting   n * (d + e + s)   + s + e

So a wait pays only while slots are scarce, the fixed cost is large and the newcomer is near; how
near follows from these numbers, and there is no constant to tune.

>>> one = dict(step_ms=60, fixed_ms=50, next_queued_ms=2, scarce=True, waiting=0)
>>> waiting_pays(due=1, next_ms=5, **one), waiting_pays(due=1, next_ms=30, **one)
(True, False)
>>> waiting_pays(due=4, next_ms=5, **one), waiting_pays(due=4, next_ms=12, **one)
(True, False)
"""

from __future__ import annotations


def waiting_pays(
    *,
    due: int,
    step_ms: float,
    fixed_ms: float,
    next_ms: float,
    next_queued_ms: float,
    scarce: bool,
    waiting: int,
) -> bool:
    """Tell whether the latencies add up to less if the step waits for the next query.

    `scarce` says that the step would take the last slot; `waiting` is how many other windows are
    due and have none.
    """
    blocked_ms = max(step_ms - next_ms, 0.0) if scarce else 0.0
    now = due * step_ms + blocked_ms + fixed_ms + next_queued_ms + fixed_ms * waiting
    later = due * (next_ms + next_queued_ms + step_ms) + step_ms + next_queued_ms
    return later < now
