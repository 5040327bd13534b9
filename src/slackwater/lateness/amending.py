"""What a step means for the past windows of a query: what came late, what waits, what is due."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from slackwater.lateness.bounds import BoundChange, WindowBounds
from slackwater.lateness.cleanup import Cover
from slackwater.lateness.observed import ObservedLateness, Seen, bin_of
from slackwater.lateness.triggers import AmendTrigger, PastWindow
from slackwater.progress.grid import WindowGrid


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


@dataclass(frozen=True)
class LateArrivals:
    """Hold what a step brought: late events by window, and all of them for the distribution."""

    by_window: Mapping[int, int]  # of windows that accept them
    seen: Seen


def late_arrivals(
    grid: WindowGrid, bounds: WindowBounds, rows: Mapping[int, int], before_ms: int | None
) -> LateArrivals:
    """Sort the rows that a step brought, by slice, into those in time and late ones."""
    by_window: dict[int, int] = {}
    on_time, late = 0, dict[int, int]()
    for slice_ms, count in rows.items():
        for window_ms in grid.windows_of(slice_ms):
            end_ms = window_ms + grid.size_ms
            if before_ms is None or end_ms > before_ms:
                on_time += count
                continue
            number = bin_of(before_ms - end_ms)
            late[number] = late.get(number, 0) + count
            if not bounds.over(end_ms, before_ms):
                by_window[window_ms] = by_window.get(window_ms, 0) + count
    return LateArrivals(by_window, Seen(on_time, late))


def with_arrivals(
    grid: WindowGrid, state: LatenessState, arrivals: LateArrivals
) -> dict[int, Amendment]:
    """Return the windows that late events came to in this step, with those events waiting."""
    found = {}
    for window_ms, count in arrivals.by_window.items():
        before = state.amendments.get(window_ms, Amendment(window_ms + grid.size_ms, 0, 0))
        found[window_ms] = replace(before, waiting=before.waiting + count, late=before.late + count)
    return found


def due_age_ms(
    trigger: AmendTrigger,
    grid: WindowGrid,
    bounds: WindowBounds,
    observed: ObservedLateness,
    window_ms: int,
    amendment: Amendment,
    watermark_ms: int,
) -> float:
    """Return the age at which a window is due for its next execution."""
    past = past_window(grid, bounds, window_ms, amendment, watermark_ms)
    return trigger.due_age_ms(past, observed.curve(past.bound_ms))


def past_window(
    grid: WindowGrid,
    bounds: WindowBounds,
    window_ms: int,
    amendment: Amendment,
    watermark_ms: int,
) -> PastWindow:
    """Look at a window by its age."""
    end_ms = window_ms + grid.size_ms
    bound_ms = bounds.of(end_ms)
    return PastWindow(
        age_ms=min(max(watermark_ms - end_ms, 0), bound_ms),
        executed_ms=max(amendment.executed_ms - end_ms, 0),
        waiting=amendment.waiting,
        late=amendment.late,
        bound_ms=bound_ms,
    )
