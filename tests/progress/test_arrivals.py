from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slackwater.progress.arrivals import (
    BLOCK,
    ArrivalCounter,
    Arrivals,
    hash64,
    hash64_one,
    stream_salt,
)

streams = st.builds(
    Arrivals,
    salt=st.integers(0, 2**64 - 1),
    start_us=st.integers(0, 2 * 10**15),
    gap_us=st.floats(1.0, 1e7),
    irregular=st.booleans(),
    limit=st.none() | st.integers(0, 1_000),
)


@given(streams, st.floats(0, 1e8))
def test_the_count_tells_exactly_the_records_that_have_arrived(
    stream: Arrivals, after_ms: float
) -> None:
    now_ms = stream.start_us / 1_000 + after_ms
    count = stream.arrived(now_ms)
    if count:
        assert stream.arrival_ms(count - 1) <= now_ms
    if stream.limit is None or count < stream.limit:
        assert stream.arrival_ms(count) > now_ms


@given(st.lists(streams, min_size=1, max_size=8), st.floats(0, 3e12))
def test_counting_many_streams_equals_counting_each(many: list[Arrivals], now_ms: float) -> None:
    counts = ArrivalCounter(many).arrived(now_ms)
    assert counts.tolist() == [stream.arrived(now_ms) for stream in many]


@given(streams, st.integers(0, 10**6))
def test_records_arrive_in_the_order_of_their_numbers(stream: Arrivals, n: int) -> None:
    assert stream.arrival_us(n) <= stream.arrival_us(n + 1)


@given(st.integers(0, 10**6))
def test_every_block_of_irregular_arrivals_lasts_as_long(block: int) -> None:
    stream = Arrivals(stream_salt(1, 0), start_us=0, gap_us=1_000.0, irregular=True)
    assert stream.arrival_us(block * BLOCK) == block * BLOCK * 1_000


def test_irregular_gaps_follow_gamma_of_shape_two() -> None:
    stream = Arrivals(stream_salt(3, 0), start_us=0, gap_us=1_000.0, irregular=True)
    gaps = np.diff([stream.arrival_us(n) for n in range(20_000)]) / 1_000
    assert abs(gaps.mean() - 1) < 0.01
    assert abs(gaps.std() - 0.5**0.5) < 0.03


@given(st.integers(-(2**63), 2**63 - 1))
def test_one_hash_equals_many(value: int) -> None:
    many = hash64(np.array([value & (2**64 - 1)], dtype=np.uint64))
    assert many.tolist() == [hash64_one(value)]


def test_a_stream_ends_with_its_last_record() -> None:
    stream = Arrivals(0, start_us=5_000_000, gap_us=1_500.0, limit=3)
    assert stream.end_ms == 5_003
    assert Arrivals(0, start_us=5_000_000, gap_us=1_500.0, limit=0).end_ms == 5_000
    assert Arrivals(0, start_us=5_000_000, gap_us=1_500.0).end_ms is None
