"""What a new watermark means for a query's windows: which fire, are amended, or are forgotten."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from slackwater.progress.bounds import WindowBounds
from slackwater.progress.grid import WindowGrid


@dataclass(frozen=True)
class Firing:
    """Say that one window is to be emitted as one pane.

    `held_only` leaves out what this step brought: it came after the window was over.
    """

    window_ms: int
    pane: int
    timing: str  # "on_time", "late" or "final"
    held_only: bool = False


@dataclass(frozen=True)
class Amending:
    """Say which past windows a step may amend, where they are not amended with every late event.

    `waiting` are windows with late rows, of earlier steps or this one, that no pane shows; `due`
    those of them to be executed once more. With `now=False` all but those whose rows would mix with
    later ones are left to another step.
    """

    waiting: frozenset[int]
    due: frozenset[int]
    now: bool


@dataclass(frozen=True)
class Closing:
    """Say everything a step changes in a query's windows."""

    firings: tuple[Firing, ...]
    panes: Mapping[int, int]  # window start -> panes emitted so far, of windows still kept
    gone_until_ms: int | None  # windows that start here or earlier are over for good
    forgotten: frozenset[int]  # slices that no window needs any more
    too_late: frozenset[
        int
    ]  # slices of this step's rows that came after every window was forgotten
    waiting: frozenset[int] = frozenset()  # windows that are still to be amended


def close_windows(
    grid: WindowGrid,
    *,
    bounds: WindowBounds,
    held: Collection[int],
    arrived: Collection[int],
    panes: Mapping[int, int],
    gone_until_ms: int | None,
    before_ms: int | None,
    after_ms: int | None,
    amending: Amending | None = None,
) -> Closing:
    """Decide what fires when the watermark moves from `before_ms` to `after_ms`.

    `held` are the slices with state from earlier steps, `arrived` those this step brought rows for.
    Windows that start at `gone_until_ms` or earlier were over before, and stay so even if the
    lateness has been raised since. A row is too late if all its windows were over *before* the
    step: time moves in steps. Without `amending`, late rows fire their windows at once.
    """

    def over_before(window_ms: int) -> bool:
        return _past(window_ms, gone_until_ms) or bounds.over(window_ms + grid.size_ms, before_ms)

    # The last window of a slice is looked at first: it is hardly ever over.
    too_late = frozenset(s for s in arrived if all(map(over_before, reversed(grid.windows_of(s)))))
    accepted = set(arrived) - too_late
    live = accepted | set(held)  # a slice may be held for a last pane only
    touched = {w for s in accepted for w in grid.windows_of(s)}
    candidates = {w for s in live for w in grid.windows_of(s)}

    firings, waiting = [], set()
    for window_ms in sorted(candidates):
        end_ms = window_ms + grid.size_ms
        if not _past(end_ms, after_ms):
            continue
        was_over = over_before(window_ms)
        if not was_over and not _past(end_ms, before_ms):
            timing = "on_time"
        elif amending is None:
            if was_over or window_ms not in touched:
                continue
            timing = "late"
        elif window_ms not in amending.waiting:
            continue
        else:
            ends = was_over or bounds.over(end_ms, after_ms)
            mixes = was_over and window_ms in touched
            if not mixes and not (amending.now and (ends or window_ms in amending.due)):
                waiting.add(window_ms)
                continue
            timing = "final" if ends else "late"
        firings.append(Firing(window_ms, panes.get(window_ms, 0), timing, held_only=was_over))

    over_ms = gone_until_ms
    if after_ms is not None:
        line_ms = bounds.over_until_ms(after_ms) - grid.size_ms
        over_ms = line_ms if over_ms is None else max(over_ms, line_ms)

    def over_after(window_ms: int) -> bool:
        return (
            _past(window_ms, over_ms) or bounds.over(window_ms + grid.size_ms, after_ms)
        ) and window_ms not in waiting

    counted = dict(panes) | {firing.window_ms: firing.pane + 1 for firing in firings}
    return Closing(
        firings=tuple(firings),
        panes={w: n for w, n in counted.items() if not _past(w, over_ms) or w in waiting},
        gone_until_ms=over_ms,
        forgotten=frozenset(s for s in live if all(map(over_after, reversed(grid.windows_of(s))))),
        too_late=too_late,
        waiting=frozenset(waiting),
    )


def _past(time_ms: int, watermark_ms: int | None) -> bool:
    return watermark_ms is not None and time_ms <= watermark_ms
