"""Who may write panes of a query just now: one step, and none that was given up.

A step that was given up goes on, perhaps much later, and another does the same work meanwhile. A
sink knows the panes that it has, but not those that another thread is about to make visible, nor
those of long ago. So steps take turns, and each asks in its turn whether it is still wanted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


class WriteTurns:
    """Let steps of the same query write one after the other; others do not wait."""

    def __init__(self) -> None:
        """Begin with nobody writing."""
        self._changed = threading.Condition()
        self._writing: set[int] = set()

    @contextmanager
    def taken(self, queries: Collection[int]) -> Iterator[None]:
        """Wait until nobody else writes panes of any of these queries, then keep others away."""
        with self._changed:
            self._changed.wait_for(lambda: self._writing.isdisjoint(queries))
            self._writing.update(queries)
        try:
            yield
        finally:
            with self._changed:
                self._writing.difference_update(queries)
                self._changed.notify_all()

    def wait_until_over(self) -> None:
        """Return once nobody writes."""
        with self._changed:
            self._changed.wait_for(lambda: not self._writing)


@dataclass(frozen=True)
class WritingStep:
    """Stand for a step that is about to write; `require_wanted` raises if it was given up."""

    slot: int
    queries: Collection[int]
    require_wanted: Callable[[], None]
    turns: WriteTurns

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for the turn of this step, and refuse one that is not wanted any more."""
        with self.turns.taken(self.queries):
            self.require_wanted()
            yield
