"""Whether to wait a little, so that one step serves one query more: a matter of expected latency.

Let `n` windows of a template be due, and the next one of the same template be expected in `d` ms.
If the step starts now, the newcomer has to wait for another slot, which comes free in `f` ms:
`f - d` longer than if the step waits for it. Waiting delays the `n` by `d`, and by the newcomer's
own events `e`; and a slot that idles is missed by all who come later, the more so the busier the
slots are.

    what waiting saves   f - d
    what it costs        n * (d + e) / (1 - utilisation)

So a wait pays only while slots are scarce, few are kept waiting and the newcomer is near; how near
follows from these numbers, and there is no constant to tune.

>>> alone = dict(due=1, next_queued_ms=2, slot_free_ms=60, utilisation=0.0)
>>> waiting_pays(next_ms=5, **alone), waiting_pays(next_ms=35, **alone)
(True, False)
>>> crowd = dict(due=8, next_queued_ms=2, slot_free_ms=60, utilisation=0.0)
>>> waiting_pays(next_ms=2, **crowd), waiting_pays(next_ms=5, **crowd)
(True, False)
"""

from __future__ import annotations

from slackwater.scheduling.slot_use import felt_by_all


def waiting_pays(
    *,
    due: int,
    next_ms: float,
    next_queued_ms: float,
    slot_free_ms: float,
    utilisation: float,
) -> bool:
    """Tell whether the latencies add up to less if the step waits for the next query.

    `slot_free_ms` is when the newcomer would find another slot: 0 if there is one now.
    """
    lost_ms = due * (next_ms + next_queued_ms) * felt_by_all(utilisation)
    return lost_ms < slot_free_ms - next_ms


def longest_wait_ms(*, due: int, slot_free_ms: float, utilisation: float) -> float:
    """Return how far off a newcomer may be for waiting to pay, if it had nothing queued.

    >>> longest_wait_ms(due=1, slot_free_ms=60, utilisation=0.0)
    30.0
    """
    return slot_free_ms / (1 + due * felt_by_all(utilisation))
