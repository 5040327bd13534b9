"""Why past windows are kept, by what a journal says: until when, for what, and what comes next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from slackwater.app.durations import show_ms
from slackwater.lateness.amending import PastWindows
from slackwater.lateness.cleanup import Cover
from slackwater.lateness.state import Amendment, LatenessWish
from slackwater.progress.bounds import WindowBounds
from slackwater.progress.grid import WindowGrid
from slackwater.runtime.state import QueryState


@dataclass(frozen=True)
class KeptWindow:
    """Tell of a window that has ended and is still kept: until the watermark has come so far.

    `late_events` came after it had ended, and `waiting` of them are in no pane yet. At watermark
    `next_execution_ms` it is to be amended, as far as can be told (None: with the next late event).
    """

    start_ms: int
    end_ms: int
    kept_until_ms: int
    why: str
    late_events: int
    waiting: int
    next_execution_ms: int | None


def kept_windows(state: QueryState, grid: WindowGrid) -> Iterator[KeptWindow]:
    """List the windows of a query that have ended and whose state is held."""
    wish, watermark_ms = state.wish, state.watermark_ms
    if wish is None or watermark_ms is None:
        return
    bounds = WindowBounds(wish.first_ms, state.lateness.bounds)
    past = PastWindows(wish, grid, bounds, state.lateness, watermark_ms, state.gone_until_ms)
    for start_ms in sorted({w for slice_ms in state.slices for w in grid.windows_of(slice_ms)}):
        end_ms = start_ms + grid.size_ms
        seen = state.lateness.amendments.get(start_ms, Amendment(end_ms, 0, 0))
        over = past.over(start_ms)
        if end_ms > watermark_ms or (over and not seen.waiting):
            continue  # it is open, or its state is kept for a later window
        yield KeptWindow(
            start_ms,
            end_ms,
            end_ms + bounds.of(end_ms),
            "its last pane is still to be written" if over else _why(wish, bounds, end_ms),
            seen.late,
            seen.waiting,
            past.next_execution_ms(start_ms),
        )


def lateness_text(state: QueryState) -> str | None:
    """Say what was wished of late events, and what was learned; None where nothing was."""
    wish, observed = state.wish, state.lateness.observed
    if wish is None or (not wish.learns and not wish.first_ms):
        return None
    if not isinstance(wish.bound, Cover):
        kept = f"windows are kept for {show_ms(wish.bound)}"
    else:
        newest_ms = WindowBounds(wish.first_ms, state.lateness.bounds).newest_ms
        learned = "learned" if state.lateness.bounds else "to begin with"
        kept = f"{_covering(wish.bound)}: new windows are kept for {show_ms(newest_ms)} ({learned})"
    if wish.trigger is not None:
        kept += f", amended by {wish.trigger}"
    if observed.events:
        kept += f"; of late, {100 * (1 - observed.share_within(0)):.2f} % of events were late"
    return kept


def _why(wish: LatenessWish, bounds: WindowBounds, end_ms: int) -> str:
    bound_ms = bounds.of(end_ms)
    if isinstance(wish.bound, Cover):
        how = "to begin with" if bound_ms == wish.first_ms else "learned"
        return f"late events, {show_ms(bound_ms)} ({_covering(wish.bound)}, {how})"
    return f"late events, {show_ms(bound_ms)}"


def _covering(cover: Cover) -> str:
    return f"to cover {100 * cover.share:g} % of events with {100 * cover.confidence:g} %"
