"""How long each window is kept: a lateness bound by when the window ends.

Bounds change for *new* windows only, those that end after the watermark of the moment. So a
window's bound never changes, and whether it is over is a matter of the watermark alone:

    bound      30 s            | 10 s                        a change at 60 s
    windows    [0..20)[20..40)[40..60)[60..80)[80..100)
    kept until    50     70      90      90      110
"""

from __future__ import annotations

from dataclasses import dataclass, replace

BoundChange = tuple[int, int]  # (of windows that end after this, the bound), in milliseconds


@dataclass(frozen=True)
class WindowBounds:
    """Say by window end how late events may be: `first_ms`, and from each change on its own.

    >>> bounds = WindowBounds(30, ((60, 10),))
    >>> [bounds.of(end_ms) for end_ms in (40, 60, 80)]
    [30, 30, 10]
    >>> bounds.over_until_ms(75), bounds.over(80, 90), bounds.over(60, 89)
    (45, True, False)
    """

    first_ms: int
    changes: tuple[BoundChange, ...] = ()

    def of(self, end_ms: int) -> int:
        """Return the lateness that a window, by its end, allows."""
        bound_ms = self.first_ms
        for after_ms, changed_ms in self.changes:
            if end_ms <= after_ms:
                break
            bound_ms = changed_ms
        return bound_ms

    @property
    def newest_ms(self) -> int:
        """Return the bound of windows to come."""
        return self.changes[-1][1] if self.changes else self.first_ms

    def over(self, end_ms: int, watermark_ms: int | None) -> bool:
        """Tell whether a window takes no more events once the watermark stands there."""
        return watermark_ms is not None and end_ms + self.of(end_ms) <= watermark_ms

    def over_until_ms(self, watermark_ms: int) -> int:
        """Return the moment up to which all windows that end by then are over, at the least."""
        reached_ms, bound_ms = watermark_ms - self.first_ms, self.first_ms
        for after_ms, changed_ms in self.changes:
            if watermark_ms - bound_ms < after_ms:
                break
            bound_ms = changed_ms
            reached_ms = max(after_ms, watermark_ms - bound_ms)
        return reached_ms

    def widest_ms(self, first_end_ms: int, last_end_ms: int) -> int:
        """Return the longest bound among windows that end between two moments, both included."""
        inside = [
            bound_ms
            for after_ms, bound_ms in self.changes
            if first_end_ms <= after_ms < last_end_ms
        ]
        return max(self.of(first_end_ms), *inside, 0)

    def widened(self, size_ms: int) -> WindowBounds:
        """Return the bounds of windows of a size made from all windows that end within them.

        >>> WindowBounds(30, ((60, 10),)).widened(40)
        WindowBounds(first_ms=30, changes=((60, 30), (99, 10)))
        """
        edges = sorted({edge for at, _ in self.changes for edge in (at, at + size_ms - 1)})
        return replace(
            self,
            changes=tuple((edge, self.widest_ms(edge + 2 - size_ms, edge + 1)) for edge in edges),
        )

    def changed(self, after_ms: int, bound_ms: int) -> WindowBounds:
        """Return these bounds with another for windows that end after a moment."""
        kept = tuple(change for change in self.changes if change[0] < after_ms)
        return replace(self, changes=(*kept, (after_ms, bound_ms)))

    def without_past(self, over_until_ms: int) -> WindowBounds:
        """Return these bounds without those that only windows long over had."""
        changes = self.changes
        while len(changes) > 1 and changes[1][0] <= over_until_ms:
            changes = changes[1:]
        return replace(self, changes=changes)
