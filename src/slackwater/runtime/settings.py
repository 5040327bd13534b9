"""The settings of a runtime, checked before anything is opened for it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from slackwater.app.durations import Duration, to_ms
from slackwater.app.sizes import to_bytes
from slackwater.errors import DescriptionError
from slackwater.lateness.tier_policies import default_tiering
from slackwater.lateness.tiering import TierPolicy
from slackwater.runtime.clock import Clock, SystemClock
from slackwater.runtime.placing import Limits
from slackwater.scheduling.klink import klink
from slackwater.scheduling.policies import POLICIES, policy_named
from slackwater.scheduling.snapshot import Policy

StateKind = Literal["tiered", "memory"]
DeadLetterKind = Literal["file", "count"]

_STATES: Final = ("tiered", "memory")
_DEAD_LETTERS: Final = ("file", "count")


@dataclass(frozen=True)
class RuntimeSettings:
    """Hold what a runtime was asked for, in the units that it works with."""

    policy: Policy
    directory: Path | None  # of the journal; None: a temporary one
    slots: int | None
    budget_ms: int
    memory_bytes: int
    tiered: bool
    storage: str | os.PathLike[str] | None
    tiering: TierPolicy
    prepare: bool
    durable: bool
    shared: bool
    files_dead_letters: bool
    limits: Limits
    profile: bool
    clock: Clock
    step_limit_ms: int
    stop_limit_ms: int

    @classmethod
    def checked(
        cls,
        *,
        policy: Policy | str | None,
        journal: str | os.PathLike[str] | None,
        slots: int | None,
        budget: Duration,
        memory: str | int,
        state: StateKind,
        storage: str | os.PathLike[str] | None,
        tiering: TierPolicy | None,
        prepare: bool,
        durable: bool,
        shared: bool,
        dead_letters: DeadLetterKind,
        limits: Limits | None,
        profile: bool,
        clock: Clock | None,
        step_limit: Duration,
        stop_limit: Duration,
    ) -> RuntimeSettings:
        """Read what a user gave, or say which of it is wrong and what to give instead."""
        directory = _place("journal", journal)
        if directory is not None and os.path.exists(directory) and not os.path.isdir(directory):
            raise DescriptionError(f"journal={directory!r} is a file: name a directory")
        _place("storage", storage)
        if slots is not None and (type(slots) is not int or slots < 1):
            raise DescriptionError(
                f"slots={slots!r}: give how many steps may run at once, 1 or more"
            )
        _one_of("dead_letters", dead_letters, _DEAD_LETTERS)
        _one_of("state", state, _STATES)
        switches = {"prepare": prepare, "durable": durable, "shared": shared, "profile": profile}
        for field, switch in switches.items():
            if not isinstance(switch, bool):
                raise DescriptionError(f"{field}={switch!r}: give True or False")
        if limits is not None and not isinstance(limits, Limits):
            raise DescriptionError(f"limits={limits!r}: give Limits(...)")
        _has("clock", clock, Clock, "leave it out, or give a ManualClock(...) in tests")
        _has("tiering", tiering, TierPolicy, "give an object that decides over a TierSnapshot")
        return cls(
            policy=_policy(policy),
            directory=None if directory is None else Path(directory),
            slots=slots,
            budget_ms=to_ms(budget, "budget"),
            memory_bytes=to_bytes(memory, "memory"),
            tiered=state == "tiered",
            storage=storage,
            tiering=tiering or default_tiering(),
            prepare=prepare,
            durable=durable,
            shared=shared,
            files_dead_letters=dead_letters == "file",
            limits=limits or Limits(),
            profile=profile,
            clock=clock or SystemClock(),
            step_limit_ms=to_ms(step_limit, "step_limit"),
            stop_limit_ms=to_ms(stop_limit, "stop_limit"),
        )


def _policy(given: Policy | str | None) -> Policy:
    """Return the policy, where it is given by its name the one of that name."""
    if given is None:
        return klink()
    if isinstance(given, str):
        return policy_named(given)
    names = ", ".join(POLICIES)
    remedy = f"give a policy such as sw.klink(), or the name of one ({names})"
    _has("policy", given, Policy, remedy)
    return given


def _has(field: str, given: object, kind: type[Any], remedy: str) -> None:
    """Refuse what has not the methods of a protocol; a class has them, but is not called yet."""
    if given is None:
        return
    wanted = [
        name for name in vars(kind) if not name.startswith("_") and callable(vars(kind)[name])
    ]
    missing = [name for name in wanted if not callable(getattr(given, name, None))]
    if missing or isinstance(given, type):
        raise DescriptionError(f"{field}={given!r} cannot be used as one: {remedy}")


def _one_of(field: str, given: object, known: tuple[str, ...]) -> None:
    if given not in known:
        raise DescriptionError(f"{field}={given!r}: use {' or '.join(map(repr, known))}")


def _place(field: str, given: str | os.PathLike[str] | None) -> str | None:
    """Check the name of a directory (or URI)."""
    if given is None:
        return None
    if not isinstance(given, str | os.PathLike) or not isinstance(os.fspath(given), str):
        raise DescriptionError(f"{field}={given!r}: give a directory, as text or as a Path")
    if not os.fspath(given).strip():
        raise DescriptionError(f"{field}={given!r} is empty: name a directory, or leave it out")
    return os.fspath(given)
