from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.errors import DescriptionError
from slackwater.progress.ring import Pair, PairRing

pairs = st.tuples(st.integers(-99, 99).map(float), st.integers(-99, 99).map(float))
# Either add a pair, or keep only so many of the newest.
moves = st.lists(pairs | st.integers(0, 8), max_size=40)


@given(moves, st.integers(1, 6))
def test_a_ring_is_a_bounded_queue(run: list[Pair | int], kept: int) -> None:
    ring, queue = PairRing(kept), deque[Pair]()
    for move in run:
        if isinstance(move, int):
            ring.keep_last(move)
            while len(queue) > move:
                queue.popleft()
        else:
            displaced = queue.popleft() if len(queue) == kept else None
            queue.append(move)
            assert ring.append(move) == displaced
        assert list(ring) == list(queue)
        assert len(ring) == len(queue)
        assert sorted(zip(*ring.columns(), strict=True)) == sorted(queue)


def test_a_ring_of_nothing_is_refused() -> None:
    with pytest.raises(DescriptionError, match="kept=0"):
        PairRing(0)
