"""The last few hundred pairs of numbers, in sixteen bytes each."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import numpy as np

from slackwater.errors import DescriptionError
from slackwater.progress.tables import Floats

Pair = tuple[float, float]


class PairRing:
    """Keep the newest pairs: a new one takes the place of the oldest.

    There is one ring for every input of every query, so its size matters: a deque of tuples would
    take ten times as much.

    >>> ring = PairRing(kept=2)
    >>> ring.append((1, 10)), ring.append((2, 20)), ring.append((3, 30))
    (None, None, (1.0, 10.0))
    >>> list(ring)
    [(2.0, 20.0), (3.0, 30.0)]
    """

    def __init__(self, kept: int) -> None:
        if kept < 1:
            raise DescriptionError(f"kept={kept!r} cannot be: keep one or more")
        self.kept = kept
        self._firsts, self._seconds = array("d"), array("d")
        self._oldest = 0

    def __len__(self) -> int:
        return len(self._firsts)

    def __iter__(self) -> Iterator[Pair]:
        """List the pairs, oldest first."""
        turn = self._oldest
        yield from zip(self._firsts[turn:], self._seconds[turn:], strict=True)
        yield from zip(self._firsts[:turn], self._seconds[:turn], strict=True)

    def append(self, pair: Pair) -> Pair | None:
        """Add the newest pair; return the one it displaced, if any."""
        first, second = pair
        if len(self._firsts) < self.kept:
            self._firsts.append(first)
            self._seconds.append(second)
            return None
        place = self._oldest
        displaced = self._firsts[place], self._seconds[place]
        self._firsts[place], self._seconds[place] = first, second
        self._oldest = (place + 1) % self.kept
        return displaced

    def columns(self) -> tuple[Floats, Floats]:
        """Copy the pairs into two aligned arrays, in no particular order."""
        return np.array(self._firsts), np.array(self._seconds)

    def keep_last(self, count: int) -> None:
        """Forget all but the newest pairs."""
        pairs = list(self)[max(len(self) - count, 0) :]
        self._firsts = array("d", [first for first, _ in pairs])
        self._seconds = array("d", [second for _, second in pairs])
        self._oldest = 0
