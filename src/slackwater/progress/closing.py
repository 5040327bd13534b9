"""What a new watermark means for a query's windows: which fire, are amended, or are forgotten."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from slackwater.progress.grid import WindowGrid


@dataclass(frozen=True)
class Firing:
    """Say that one window is to be emitted as one pane."""

    window_ms: int
    pane: int
    timing: str  # "on_time" or "late"


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


def close_windows(
    grid: WindowGrid,
    *,
    lateness_ms: int,
    held: Collection[int],
    arrived: Collection[int],
    panes: Mapping[int, int],
    gone_until_ms: int | None,
    before_ms: int | None,
    after_ms: int | None,
) -> Closing:
    """Decide what fires when the watermark moves from `before_ms` to `after_ms`.

    `held` are the slices with state from earlier steps, `arrived` those this step brought rows for.
    Windows that start at `gone_until_ms` or earlier were over before, and stay so even if the
    lateness has been raised since. A row is too late if all its windows were over *before* the
    step: time moves in steps.
    """
    too_late = frozenset(s for s in arrived if _past(grid.last_window_of(s), gone_until_ms))
    live = (set(held) | set(arrived)) - too_late
    touched = {w for s in set(arrived) - too_late for w in grid.windows_of(s)}
    candidates = {w for s in live for w in grid.windows_of(s)}

    firings = []
    for window_ms in sorted(candidates):
        end_ms = window_ms + grid.size_ms
        if not _past(end_ms, after_ms) or _past(window_ms, gone_until_ms):
            continue
        if not _past(end_ms, before_ms):
            firings.append(Firing(window_ms, panes.get(window_ms, 0), "on_time"))
        elif window_ms in touched:
            firings.append(Firing(window_ms, panes.get(window_ms, 0), "late"))

    counted = dict(panes) | {firing.window_ms: firing.pane + 1 for firing in firings}
    over_ms = None if after_ms is None else after_ms - grid.size_ms - lateness_ms
    if over_ms is None or (gone_until_ms is not None and gone_until_ms > over_ms):
        over_ms = gone_until_ms
    return Closing(
        firings=tuple(firings),
        panes={w: n for w, n in counted.items() if not _past(w, over_ms)},
        gone_until_ms=over_ms,
        forgotten=frozenset(s for s in live if _past(grid.last_window_of(s), over_ms)),
        too_late=too_late,
    )


def _past(time_ms: int, watermark_ms: int | None) -> bool:
    return watermark_ms is not None and time_ms <= watermark_ms
