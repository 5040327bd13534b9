"""What the workloads with late events wish, and how late their events are: in windows.

S. Esteves et al. draw lateness in windows, log-normal(0, 1) unless said otherwise. Here one event
in five is late; the others, and with them the watermarks, come at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import slackwater as sw
from slackwater.lateness.cleanup import Cover
from slackwater.progress.distributions import (
    NAMED_DELAYS,
    BurstDelay,
    DelayDistribution,
    LateDelay,
    LogNormalDelay,
    NormalDelay,
    UniformDelay,
    delay_named,
)

STALENESS: Final = 0.05
COVERED: Final = 0.99
LATE_SHARE: Final = 0.2
START_WINDOWS: Final = 22  # within which 99.9 % of log-normal lateness lies


def kept_for(window_ms: int) -> Cover:
    """Wish for windows to be kept until 99 of 100 events are in."""
    return sw.cover(COVERED, start=f"{START_WINDOWS * window_ms} ms")


def _in_windows(window_ms: int) -> Mapping[str, DelayDistribution]:
    return {
        "late_lognormal": LogNormalDelay(window_ms, 1.0),
        "late_uniform": UniformDelay(0.0, 10.0 * window_ms),
        "late_normal": NormalDelay(5.0 * window_ms, 1.5 * window_ms),
        "late_bursts": BurstDelay((1.0 * window_ms, 4.0 * window_ms, 9.0 * window_ms), 200.0),
    }


LATE_DELAYS: Final = tuple(_in_windows(1))
DELAYS: Final = (*NAMED_DELAYS, *LATE_DELAYS)


def delay_of(name: str, window_ms: int) -> DelayDistribution:
    """Return the delays that a name stands for; those of late events are in windows.

    >>> delay_of("late_lognormal", 20_000)
    LateDelay(share=0.2, lateness=LogNormalDelay(median_ms=20000, sigma=1.0))
    """
    if name in LATE_DELAYS:
        return LateDelay(LATE_SHARE, _in_windows(window_ms)[name])
    return delay_named(name)
