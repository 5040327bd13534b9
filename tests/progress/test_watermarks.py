"""A query's watermark: the minimum over partitions that are not idle, and never backwards."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slackwater.progress.watermarks import PartitionTime, Watermarks

A, B = (0, 0), (0, 1)

partitions = st.tuples(st.integers(0, 1), st.integers(0, 1))
observations = st.builds(
    PartitionTime,
    partition=partitions,
    candidate_ms=st.none() | st.integers(-50, 50),
    idle=st.booleans(),
)
steps = st.lists(observations, max_size=4, unique_by=lambda seen: seen.partition)
runs = st.lists(steps, max_size=12)


@given(runs)
def test_time_never_goes_back(run: list[list[PartitionTime]]) -> None:
    marks = Watermarks()
    for observed in run:
        after = marks.advance(observed)
        assert marks.current_ms is None or (
            after.current_ms is not None and after.current_ms >= marks.current_ms
        )
        marks = after


@given(runs)
def test_time_is_never_ahead_of_a_partition_that_is_not_idle(
    run: list[list[PartitionTime]],
) -> None:
    marks = Watermarks()
    highest: dict[tuple[int, int], int | None] = {}
    for observed in run:
        for seen in observed:
            said = highest.get(seen.partition), seen.candidate_ms
            known = [ms for ms in said if ms is not None]
            highest[seen.partition] = max(known, default=None)
        idle = {seen.partition for seen in observed if seen.idle}
        active = [ms for partition, ms in highest.items() if partition not in idle]
        after = marks.advance(observed)
        if after.current_ms != marks.current_ms:
            assert None not in active
            assert after.current_ms == min(ms for ms in active if ms is not None)
        marks = after
        assert marks.partitions == highest


@given(runs)
def test_only_what_is_said_counts_not_in_how_many_steps(run: list[list[PartitionTime]]) -> None:
    said = [PartitionTime(seen.partition, seen.candidate_ms) for step in run for seen in step]
    one_by_one = Watermarks()
    for seen in said:
        one_by_one = one_by_one.advance([seen])
    assert Watermarks().advance(said).partitions == one_by_one.partitions


def test_a_partition_that_has_said_nothing_holds_time_back() -> None:
    marks = Watermarks().advance([PartitionTime(A, 5_000), PartitionTime(B, None)])
    assert marks.current_ms is None


def test_an_empty_partition_is_left_out_only_when_its_source_confirms_it() -> None:
    """Follow two partitions; B falls silent.

    A   1 ---- 5 ---- 9 ---- 9
    B   2 ---- - ---- idle - 3
    =   1      2      9      9
    """
    marks = Watermarks().advance([PartitionTime(A, 1), PartitionTime(B, 2)])
    assert marks.current_ms == 1
    marks = marks.advance([PartitionTime(A, 5), PartitionTime(B, None)])
    assert marks.current_ms == 2
    marks = marks.advance([PartitionTime(A, 9), PartitionTime(B, None, idle=True)])
    assert marks.current_ms == 9
    marks = marks.advance([PartitionTime(A, None), PartitionTime(B, 3)])
    assert marks.current_ms == 9


def test_time_stands_still_while_every_partition_is_idle() -> None:
    marks = Watermarks().advance([PartitionTime(A, 5), PartitionTime(B, 3)])
    asleep = marks.advance([PartitionTime(A, None, idle=True), PartitionTime(B, None, idle=True)])
    assert asleep.current_ms == 3
