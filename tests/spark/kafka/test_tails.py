from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slackwater.spark.kafka.records import Records
from slackwater.spark.kafka.tails import Tail


def records(*offsets: int) -> Records:
    count = len(offsets)
    return Records(list(offsets), [0] * count, [b"v"] * count, [None] * count, [()] * count)


@given(
    gaps=st.lists(st.integers(1, 4), max_size=30),
    batches=st.lists(st.integers(0, 5), min_size=1, max_size=20),
    cuts=st.lists(st.integers(0, 130), max_size=5),
)
def test_tail_holds_exactly_what_is_between_its_bounds(
    gaps: list[int], batches: list[int], cuts: list[int]
) -> None:
    offsets, at = [], 7
    for gap in gaps:
        offsets.append(at)
        at += gap
    tail, sent = Tail(7), 0
    for index, size in enumerate(batches):
        tail.extend(records(*offsets[max(0, sent - 1) : sent + size]))
        sent = min(len(offsets), sent + size)
        if index < len(cuts):
            tail.drop_below(cuts[index])
    kept = [o for o in offsets[:sent] if tail.first <= o < tail.until]
    assert tail.take(tail.first, tail.until).offsets == kept
    assert (tail.held_bytes == 0) == (not kept)
    for most in (1, 3, 100):
        until, count = tail.fitting(tail.first, tail.until, most)
        assert [o for o in kept if o < until] == kept[:count]
        assert count == min(most, len(kept))


def test_nothing_behind_the_end_wanted_is_counted() -> None:
    tail = Tail(0)
    tail.extend(records(0, 1, 3))
    assert tail.fitting(0, 3, 3) == (3, 2)
    assert tail.fitting(0, 4, 3) == (4, 3)


def test_reading_elsewhere_begins_anew() -> None:
    tail = Tail(0)
    tail.extend(records(0, 1))
    tail.restart(50)
    tail.extend(records(50))
    assert not tail.covers(0, 2)
    assert tail.covers(50, 51)
    assert tail.take(50, 51) == records(50)
    assert tail.next_stamp_ms(0) == 0


def test_end_of_partition_covers_what_holds_no_records() -> None:
    tail = Tail(3)
    tail.reached(9)
    tail.reached(5)
    assert tail.covers(3, 9)
    assert tail.fitting(3, 9, 10) == (9, 0)
    tail.drop_below(20)
    assert tail.first == tail.until == 9
