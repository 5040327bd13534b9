from hypothesis import given
from hypothesis import strategies as st

from slackwater.progress.distributions import NAMED_DELAYS
from slackwater.progress.grid import WindowGrid
from slackwater.progress.periodic import PeriodicWatermarks
from slackwater_lab.workloads.due import Span, due_ends


def test_a_window_is_due_when_its_watermark_arrives_not_when_it_ends() -> None:
    #  ends      3000    6000    9000    12000
    #  swept       4500    7500    10500    13500
    #  span            [6000 ........ 11000)
    grid = WindowGrid(3_000, 3_000)
    due = dict(due_ends(grid, lambda end_ms: end_ms + 1_500.0, Span(6_000, 11_000)))
    assert due == {6_000: 7_500.0, 9_000: 10_500.0}


def test_a_span_holds_its_first_moment_and_not_its_last() -> None:
    grid = WindowGrid(3_000, 3_000)
    due = dict(due_ends(grid, float, Span(3_000, 9_000)))
    assert sorted(due) == [3_000, 6_000]


@given(
    offset_ms=st.integers(0, 2_999),
    delay=st.sampled_from(sorted(NAMED_DELAYS)),
    cut_ms=st.integers(100_000, 160_000),
)
def test_adjoining_spans_share_no_window_and_lose_none(
    offset_ms: int, delay: str, cut_ms: int
) -> None:
    grid = WindowGrid(3_000, 3_000, offset_ms)
    marks = PeriodicWatermarks(NAMED_DELAYS[delay], salt=9, period_ms=100, lag_ms=40, start_ms=0)

    def due(first_ms: int, until_ms: int) -> dict[int, float]:
        return dict(due_ends(grid, marks.sweep_arrival_ms, Span(first_ms, until_ms)))

    before, after = due(100_000, cut_ms), due(cut_ms, 160_000)
    assert not before.keys() & after.keys()
    assert before | after == due(100_000, 160_000)
