"""All policies, by the names that the command line and benchmarks use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from slackwater.errors import DescriptionError
from slackwater.scheduling.baselines import (
    deadline,
    default,
    fcfs,
    highest_rate,
    round_robin,
    streambox,
)
from slackwater.scheduling.klink import klink, klink_no_memory
from slackwater.scheduling.snapshot import Policy

MAKERS: Final[tuple[Callable[[], Policy], ...]] = (
    klink,
    klink_no_memory,
    deadline,
    fcfs,
    round_robin,
    highest_rate,
    streambox,
    default,
)
POLICIES: Final = {make().name: make for make in MAKERS}


def policy_named(name: str) -> Policy:
    """Find a policy by the name the command line uses."""
    if name not in POLICIES:
        raise DescriptionError(f"policy={name!r} is unknown: use one of {', '.join(POLICIES)}")
    return POLICIES[name]()
