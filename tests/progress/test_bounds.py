from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from slackwater.progress.bounds import WindowBounds

some_bounds = st.builds(
    lambda first, changes: WindowBounds(
        first, tuple((10 * place, bound) for place, bound in sorted(dict(changes).items()))
    ),
    st.integers(0, 60),
    st.lists(st.tuples(st.integers(-5, 20), st.integers(0, 60)), max_size=5),
)


@given(some_bounds, st.integers(-100, 400))
def test_all_windows_up_to_the_line_are_over_and_the_next_is_not(
    bounds: WindowBounds, watermark_ms: int
) -> None:
    line_ms = bounds.over_until_ms(watermark_ms)
    ends = range(-200, 400)
    assert all(bounds.over(end_ms, watermark_ms) for end_ms in ends if end_ms <= line_ms)
    beyond = [end_ms for end_ms in ends if end_ms > line_ms]
    assert not beyond or not bounds.over(beyond[0], watermark_ms)


@given(some_bounds, st.lists(st.integers(-100, 400), min_size=2))
def test_a_window_that_is_over_stays_so(bounds: WindowBounds, watermarks: list[int]) -> None:
    for earlier_ms, later_ms in pairwise(sorted(watermarks)):
        assert bounds.over_until_ms(earlier_ms) <= bounds.over_until_ms(later_ms)
        for end_ms in range(-200, 400, 7):
            assert bounds.over(end_ms, later_ms) or not bounds.over(end_ms, earlier_ms)


@given(some_bounds, st.integers(0, 200), st.integers(0, 60))
def test_a_change_leaves_earlier_windows_alone(
    bounds: WindowBounds, after_ms: int, bound_ms: int
) -> None:
    changed = bounds.changed(after_ms, bound_ms)
    assert changed.newest_ms == changed.of(after_ms + 1) == bound_ms
    assert all(changed.of(end_ms) == bounds.of(end_ms) for end_ms in range(-100, after_ms + 1))


@given(some_bounds, st.integers(-100, 400))
def test_forgetting_past_bounds_changes_no_window_that_matters(
    bounds: WindowBounds, watermark_ms: int
) -> None:
    line_ms = bounds.over_until_ms(watermark_ms)
    kept = bounds.without_past(line_ms)
    assert all(kept.of(e) == bounds.of(e) for e in range(-200, 400) if e > line_ms)


@given(some_bounds, st.integers(-50, 200), st.integers(0, 100))
def test_widest_is_the_longest_of_all_windows_between(
    bounds: WindowBounds, first_ms: int, length_ms: int
) -> None:
    ends = range(first_ms, first_ms + length_ms + 1)
    assert bounds.widest_ms(first_ms, first_ms + length_ms) == max(map(bounds.of, ends))
