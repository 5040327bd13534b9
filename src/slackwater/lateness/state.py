"""What a user wishes of late events, and what is remembered of a query's: durable, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slackwater.lateness.cleanup import Cover
from slackwater.lateness.observed import ObservedLateness, Seen
from slackwater.lateness.triggers import AmendTrigger
from slackwater.progress.bounds import BoundChange


@dataclass(frozen=True)
class LatenessWish:
    """Say how long windows are kept, and when they are amended (None: with every late event)."""

    bound: int | Cover = 0  # milliseconds, or to be learned
    trigger: AmendTrigger | None = None

    @property
    def first_ms(self) -> int:
        """Return the bound of windows before anything was learned."""
        return self.bound.start_ms if isinstance(self.bound, Cover) else self.bound

    @property
    def learns(self) -> bool:
        """Tell whether it matters how late events are."""
        return self.trigger is not None or isinstance(self.bound, Cover)


@dataclass(frozen=True)
class Amendment:
    """Hold what came late to one window: when it was last executed, and what waits since.

    `executed_ms` is the watermark of the last execution.
    """

    executed_ms: int
    waiting: int
    late: int


@dataclass(frozen=True)
class LatenessChange:
    """Say what one step changes in what is known of a query's late events."""

    seen: Seen = field(default_factory=Seen)
    since_ms: int | None = None  # the first watermark, in the step that brought it
    bounds: tuple[BoundChange, ...] | None = None  # all that still matter, if they changed
    amendments: Mapping[int, Amendment] = field(default_factory=dict)
    settled: tuple[int, ...] = ()  # windows of which nothing need be remembered any more


@dataclass(frozen=True)
class LatenessState:
    """Hold everything about a query's late events that must survive a crash."""

    observed: ObservedLateness = field(default_factory=ObservedLateness)
    growing: Seen = field(default_factory=Seen)  # the generation that is not full yet
    since_ms: int | None = None
    bounds: tuple[BoundChange, ...] = ()
    amendments: Mapping[int, Amendment] = field(default_factory=dict)

    @property
    def waiting(self) -> frozenset[int]:
        """Name the windows with late events that no pane shows yet."""
        return frozenset(window for window, each in self.amendments.items() if each.waiting)

    def after(self, change: LatenessChange) -> LatenessState:
        """Return the state that a committed step leaves."""
        observed, growing = self.observed, self.growing.plus(change.seen)
        if growing.full:
            observed, growing = observed.plus(growing), Seen()
        amendments = {**self.amendments, **change.amendments}
        for window_ms in change.settled:
            amendments.pop(window_ms, None)
        return LatenessState(
            observed,
            growing,
            self.since_ms if change.since_ms is None else change.since_ms,
            self.bounds if change.bounds is None else change.bounds,
            amendments,
        )
