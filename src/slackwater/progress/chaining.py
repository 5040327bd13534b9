"""What a new watermark means for a further stage, whose events are the panes of the one before.

The rows that a window emits are events in its last millisecond, so a window of the next stage
holds those that end within it. Whatever amends the first window does so by replacing its rows:

    first stage    [0...5)[5..10)[10..15)[15..20)        panes are events at 4.999, 9.999, ...
    next stage     [0..........10)[10..........20)       each made from the newest panes within

Both stages follow one watermark. A window of the next stage is kept as late as the latest of the
windows that it is made from allows, and so is forgotten no earlier than all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from slackwater.progress.bounds import WindowBounds
from slackwater.progress.closing import Firing, close_windows
from slackwater.progress.grid import WindowGrid


@dataclass(frozen=True)
class StageClosing:
    """Say everything a step changes in the windows of a further stage."""

    firings: tuple[Firing, ...]
    sources: Mapping[int, tuple[int, ...]]  # firing window -> the windows before it is made from
    gone_until_ms: int | None  # windows that start here or earlier are over for good
    forgotten: frozenset[int]  # windows of the stage before whose rows nothing needs any more


def close_stage(
    grid: WindowGrid,
    source_size_ms: int,
    *,
    bounds: WindowBounds,
    held: Collection[int],
    arrived: Collection[int],
    panes: Mapping[int, int],
    gone_until_ms: int | None,
    before_ms: int | None,
    after_ms: int | None,
) -> StageClosing:
    """Decide what fires when windows of the stage before, by their starts, have fired.

    `held` are those with rows from earlier steps, `arrived` those that fired in this one. `bounds`
    are those of the first stage.

    >>> closing = close_stage(
    ...     WindowGrid(10, 10), 5, bounds=WindowBounds(0), held=[0], arrived=[5], panes={},
    ...     gone_until_ms=None, before_ms=5, after_ms=10,
    ... )
    >>> closing.sources, sorted(closing.forgotten)
    ({0: (0, 5)}, [0, 5])
    """
    slices: dict[int, list[int]] = {}
    unseen = []
    for source_ms in sorted({*held, *arrived}):
        slice_ms = grid.slice_start(source_ms + source_size_ms - 1)
        if slice_ms is None:
            unseen.append(source_ms)  # it ends between two windows
        else:
            slices.setdefault(slice_ms, []).append(source_ms)
    touched = set(arrived)
    closing = close_windows(
        grid,
        bounds=bounds.widened(grid.size_ms),
        held=slices,
        arrived=[start for start, sources in slices.items() if not touched.isdisjoint(sources)],
        panes=panes,
        gone_until_ms=gone_until_ms,
        before_ms=before_ms,
        after_ms=after_ms,
    )
    over = closing.forgotten | closing.too_late
    return StageClosing(
        firings=closing.firings,
        sources={
            firing.window_ms: tuple(
                source_ms
                for start in grid.slices_of(firing.window_ms)
                for source_ms in slices.get(start, ())
            )
            for firing in closing.firings
        },
        gone_until_ms=closing.gone_until_ms,
        forgotten=frozenset(unseen).union(*(slices[start] for start in over)),
    )
