"""Windows and their slices, against brute force over every millisecond."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.progress.grid import WindowGrid, spread_stride

grids = st.builds(
    WindowGrid,
    size_ms=st.integers(1, 40),
    slide_ms=st.integers(1, 40),
    offset_ms=st.integers(0, 60),
)
moments = st.integers(-200, 200)


def windows_around(grid: WindowGrid, time_ms: int) -> list[int]:
    """List the windows that hold a moment, by trying every start near it."""
    return [
        start
        for start in range(time_ms - grid.size_ms + 1, time_ms + 1)
        if (start - grid.offset_ms) % grid.slide_ms == 0
    ]


@given(grids, moments)
def test_a_slice_belongs_to_the_windows_that_hold_each_of_its_moments(
    grid: WindowGrid, time_ms: int
) -> None:
    start_ms = grid.slice_start(time_ms)
    if start_ms is None:
        assert windows_around(grid, time_ms) == []
    else:
        assert start_ms <= time_ms < grid.next_slice(start_ms)
        assert list(grid.windows_of(start_ms)) == windows_around(grid, time_ms)
        assert grid.last_window_of(start_ms) == windows_around(grid, time_ms)[-1]


@given(grids, moments)
def test_a_slice_starts_at_its_own_first_moment(grid: WindowGrid, time_ms: int) -> None:
    start_ms = grid.slice_start(time_ms)
    if start_ms is not None:
        assert grid.slice_start(start_ms) == start_ms


@given(grids, st.integers(-10, 10))
def test_the_slices_of_a_window_cover_it_without_gap_or_overlap(
    grid: WindowGrid, index: int
) -> None:
    window_ms = grid.offset_ms + index * grid.slide_ms
    slices = list(grid.slices_of(window_ms))
    assert slices[0] == window_ms
    assert all(grid.next_slice(one) == other for one, other in pairwise(slices))
    # The last slice of a window with gaps behind it ends with the window, whatever comes next.
    assert grid.next_slice(slices[-1]) == window_ms + grid.size_ms
    assert all(window_ms in grid.windows_of(start_ms) for start_ms in slices)


@given(grids, moments)
def test_the_next_end_is_the_first_window_end_after_a_moment(
    grid: WindowGrid, time_ms: int
) -> None:
    ends = [
        end
        for end in range(time_ms + 1, time_ms + grid.slide_ms + 1)
        if (end - grid.size_ms - grid.offset_ms) % grid.slide_ms == 0
    ]
    assert [grid.next_end(time_ms)] == ends


@given(grids)
def test_no_moment_is_held_by_more_slices_than_one(grid: WindowGrid) -> None:
    period = range(grid.offset_ms, grid.offset_ms + grid.slide_ms)
    starts = [grid.slice_start(time_ms) for time_ms in period]
    known = [start for start in starts if start is not None]
    assert known == sorted(known)
    assert len(set(known)) <= 2  # a window's start and another's end cut a slide in two at most


def test_five_second_windows_every_three_seconds_share_slices() -> None:
    """Draw the timeline of the module's docstring.

    windows   [0..........5)
                     [3..........8)
                            [6..........11)
    slices    [0.2)[2.3)[3..5)[5.6)[6..8)[8.9)
    """
    grid = WindowGrid(size_ms=5, slide_ms=3)
    assert list(grid.slices_of(0)) == [0, 2, 3]
    assert list(grid.slices_of(3)) == [3, 5, 6]
    assert list(grid.windows_of(2)) == [0]
    assert list(grid.windows_of(3)) == [0, 3]


def test_between_windows_with_gaps_there_is_no_slice() -> None:
    """Place windows of 2 every 5.

    windows   [0..2)         [5..7)
    slices    [0..2)         [5..7)
    """
    grid = WindowGrid(size_ms=2, slide_ms=5)
    starts = [grid.slice_start(time_ms) for time_ms in range(8)]
    assert starts == [0, 0, None, None, None, 5, 5, None]


@pytest.mark.parametrize("slide_ms", [1, 2, 10, 1_000, 3_000, 86_400_000])
def test_spread_phases_repeat_only_after_a_whole_slide(slide_ms: int) -> None:
    queries = min(slide_ms, 500)
    phases = {query * spread_stride(slide_ms) % slide_ms for query in range(queries)}
    assert len(phases) == queries
