"""What a step means for the past windows of a query: what came late, what waits, what is due."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil

from slackwater.lateness.cleanup import Cover
from slackwater.lateness.observed import Seen, bin_of
from slackwater.lateness.staleness import LateCurve
from slackwater.lateness.state import Amendment, LatenessChange, LatenessState, LatenessWish
from slackwater.lateness.triggers import PastWindow
from slackwater.progress.bounds import BoundChange, WindowBounds
from slackwater.progress.closing import Amending, Closing
from slackwater.progress.grid import WindowGrid
from slackwater.progress.times import END_OF_TIME_MS

_LOOKS = 8  # at a window to which nothing has come, while it is kept


@dataclass(frozen=True)
class PastWindows:
    """Look at all past windows of a query at one watermark, to say when each is due again."""

    wish: LatenessWish
    grid: WindowGrid
    bounds: WindowBounds
    state: LatenessState
    watermark_ms: int
    gone_until_ms: int | None = None  # windows that start here or earlier are over, whatever else

    def over(self, window_ms: int, watermark_ms: int | None = None) -> bool:
        """Tell whether a window takes no more events, now or when the watermark stood elsewhere."""
        if self.gone_until_ms is not None and window_ms <= self.gone_until_ms:
            return True
        at_ms = self.watermark_ms if watermark_ms is None else watermark_ms
        return self.bounds.over(window_ms + self.grid.size_ms, at_ms)

    def due(self, amendments: Mapping[int, Amendment]) -> frozenset[int]:
        """Name the windows that are to be executed once more."""
        trigger = self.wish.trigger
        if trigger is None:
            return frozenset()
        return frozenset(
            window_ms
            for window_ms, amendment in amendments.items()
            if trigger.due(past := self._past(window_ms, amendment), self._expected(past))
        )

    def next_execution_ms(self, window_ms: int) -> int | None:
        """Return the watermark at which a window is due, as far as can be told; None: at none.

        A window that is over is due at once if late events wait, and else never again.
        """
        if self.wish.trigger is None:
            return None
        end_ms = window_ms + self.grid.size_ms
        amendment = self.state.amendments.get(window_ms, Amendment(end_ms, 0, 0))
        if self.over(window_ms):
            return self.watermark_ms if amendment.waiting else None
        past = self._past(window_ms, amendment)
        age_ms = self.wish.trigger.due_age_ms(past, self._expected(past))
        if not amendment.waiting:  # then it is not due, but time to look what has come
            age_ms = max(age_ms, past.age_ms + past.bound_ms / _LOOKS)
        return end_ms + ceil(min(age_ms, past.bound_ms))

    def _expected(self, past: PastWindow) -> LateCurve | None:
        return self.state.observed.curve(past.bound_ms)

    def _past(self, window_ms: int, amendment: Amendment) -> PastWindow:
        end_ms = window_ms + self.grid.size_ms
        bound_ms = self.bounds.of(end_ms)
        return PastWindow(
            age_ms=min(max(self.watermark_ms - end_ms, 0), bound_ms),
            executed_ms=max(amendment.executed_ms - end_ms, 0),
            waiting=amendment.waiting,
            late=amendment.late,
            bound_ms=bound_ms,
        )


@dataclass(frozen=True)
class LateStep:
    """Hold what one step means for a query's past windows, before it is known which fire.

    `by_window` are the late rows that windows still accept, `seen` all rows for the distribution.
    """

    past: PastWindows
    by_window: Mapping[int, int]
    seen: Seen
    amendments: Mapping[int, Amendment]  # of all windows with late rows, this step's included
    learns: bool = True

    @classmethod
    def of(
        cls,
        past: PastWindows,
        rows: Mapping[int, int],
        before_ms: int | None,
        *,
        learns: bool = True,
    ) -> LateStep:
        """Sort the rows that a step brought, by slice, into those in time and late ones.

        Where nothing is to be learned from them, `rows` need not hold those in time.
        """
        grid, by_window = past.grid, dict[int, int]()
        on_time, late = 0, dict[int, int]()
        for slice_ms, count in rows.items():
            for window_ms in grid.windows_of(slice_ms):
                end_ms = window_ms + grid.size_ms
                if before_ms is None or end_ms > before_ms:
                    on_time += count
                    continue
                number = bin_of(before_ms - end_ms)
                late[number] = late.get(number, 0) + count
                if not past.over(window_ms, before_ms):
                    by_window[window_ms] = by_window.get(window_ms, 0) + count
        amendments = dict(past.state.amendments)
        for window_ms, count in by_window.items():
            known = amendments.get(window_ms, Amendment(window_ms + grid.size_ms, 0, 0))
            amendments[window_ms] = replace(
                known, waiting=known.waiting + count, late=known.late + count
            )
        return cls(past, by_window, Seen(on_time, late), amendments, learns)

    def amending(self, *, now: bool) -> Amending | None:
        """Say which windows may be amended; None where all are, with every late row."""
        if self.past.wish.trigger is None:
            return None
        waiting = {w: each for w, each in self.amendments.items() if each.waiting}
        due = self.past.due(waiting) if now else frozenset()
        return Amending(frozenset(waiting), due, now)

    def change(self, closing: Closing) -> LatenessChange:
        """Say what is to be remembered, now that it is known which windows fire."""
        past, state, after_ms = self.past, self.past.state, self.past.watermark_ms
        fired = {firing.window_ms for firing in closing.firings}
        first = sum(firing.pane == 0 for firing in closing.firings)
        seen = replace(self.seen, windows=first) if self.learns else Seen()
        amendments, settled = {}, []
        for window_ms, amendment in self.amendments.items():
            if past.over(window_ms) and window_ms not in closing.waiting:
                settled.append(window_ms)
            elif window_ms in fired:
                amendments[window_ms] = replace(amendment, executed_ms=after_ms, waiting=0)
            elif window_ms in self.by_window:
                amendments[window_ms] = amendment
        return LatenessChange(
            seen=seen,
            since_ms=after_ms if self.learns and state.since_ms is None else None,
            bounds=self._bounds(seen) if self.learns else None,
            amendments=amendments,
            settled=tuple(settled),
        )

    def _bounds(self, seen: Seen) -> tuple[BoundChange, ...] | None:
        """Return the bounds from now on, if they change: for windows that end after this step."""
        past, after_ms = self.past, self.past.watermark_ms
        wish, state = past.wish.bound, past.state
        bound_ms: int | None = None
        if not isinstance(wish, Cover):
            bound_ms = wish if past.bounds.changes else None  # it was to be learned before
        elif (grown := state.growing.plus(seen)).full and state.since_ms is not None:
            bound_ms = wish.bound_ms(state.observed.plus(grown), after_ms - state.since_ms)
        if bound_ms is None or bound_ms == past.bounds.newest_ms or after_ms >= END_OF_TIME_MS:
            return None
        changed = past.bounds.changed(after_ms, bound_ms)
        return changed.without_past(past.bounds.over_until_ms(after_ms)).changes
