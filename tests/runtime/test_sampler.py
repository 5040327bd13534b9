"""A query that samples: when its steps may close, and which exact panes it is audited by."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from slackwater.app.bounds import within
from slackwater.progress.grid import WindowGrid
from slackwater.progress.watermarks import Watermarks
from slackwater.runtime.sample_facts import WindowLesson
from slackwater.runtime.sampler import QuerySampler
from slackwater.runtime.state import QueryState
from slackwater.sampling.delays import DelayCounts, bin_of
from slackwater.sampling.estimates import Spread
from slackwater.sampling.monitor import LEARNING, Monitor, SubstreamCount
from slackwater.sampling.planner import SamplePlan
from slackwater.spark.sources.base import Range

SIZE_MS = 3_000
ALL_READ = cast(Any, SimpleNamespace(oldest_arrival_ms=lambda positions, now_ms: None))


def learned(delay_ms: float, spread: float) -> QueryState:
    """Make the state of a query whose delays are such that a window has to wait for some."""
    counts = {bin_of(d): (1_000.0, 1_000.0 * d) for d in (delay_ms, 2 * delay_ms, 4 * delay_ms)}
    monitor = Monitor().delayed(DelayCounts.of(counts))
    for _ in range(LEARNING):
        substreams = [SubstreamCount(0, 600, 3_000.0) for _ in range(5)]
        monitor = monitor.closed(substreams, {"n": Spread(spread, 2 * spread)})
    state = QueryState.introduced(0, "q", {})
    state.sampling = monitor.to_json()
    state.watermarks = Watermarks({(0, 0): 0}, 0)
    return state


@given(st.floats(1.0, 600.0), st.floats(0.1, 40.0))
def test_a_window_may_close_at_the_very_moment_it_was_said_to(
    delay_ms: float, spread: float
) -> None:
    state = learned(delay_ms, spread)
    sampler = QuerySampler(within(0.05), WindowGrid(SIZE_MS, SIZE_MS), 0)
    at_ms = sampler.closes_at_ms(state, SIZE_MS)
    if at_ms is None:
        return
    piece = Range(partition=0, first=0, until=1, events=1, watermark_ms=None, idle=False)
    for late_ms in (0.0, 0.3):
        ((_, planned),) = sampler.planned(state, [ALL_READ], [(0, piece)], at_ms + late_ms)
        assert planned.sample is not None
        assert SamplePlan.from_json(planned.sample).closes_ms == SIZE_MS


PIECE = Range(partition=0, first=0, until=1, events=1, watermark_ms=None, idle=False)


def promising(*ends_ms: int) -> tuple[QuerySampler, QueryState, Any]:
    """Make a sampler that has promised 100, give or take 5, of windows; and a plan of its steps."""
    sampler = QuerySampler(within(0.05), WindowGrid(SIZE_MS, SIZE_MS), 0)
    state = QueryState.introduced(0, "q", {})
    plan = sampler.planned(state, [ALL_READ], [(0, PIECE)], 0.0)
    lesson = WindowLesson((), {}, {"n": (100.0, 95.0, 105.0)})
    sampler.committed(plan, [(end_ms, lesson) for end_ms in ends_ms], untrusted_ms=0)
    return sampler, state, plan


def test_the_last_exact_pane_is_the_truth_and_not_the_first() -> None:
    sampler, state, _ = promising(3_000, 6_000)
    sampler.amended(3_000, {"n": 101.0})
    sampler.amended(3_000, {"n": 140.0})  # late events have come
    sampler.amended(6_000, {"n": 99.0})
    assert sampler.audits(state).audited == 0
    sampler.settle(lambda end_ms: end_ms <= 3_000)
    assert (sampler.audits(state).audited, sampler.audits(state).held) == (1, 0)
    sampler.settle(lambda end_ms: True)
    assert (sampler.audits(state).audited, sampler.audits(state).held) == (2, 1)


def test_what_the_first_exact_pane_tells_is_learned_from_at_once_and_counts_in_the_end() -> None:
    ends_ms = range(3_000, 33_000, 3_000)
    sampler, state, _ = promising(*ends_ms)
    for end_ms in ends_ms:
        sampler.amended(end_ms, {"n": 140.0})
    early = sampler.audits(state)
    assert early.caution > 1.0
    assert (early.audited, early.doubted) == (0, False)
    sampler.settle(lambda end_ms: True)
    late = sampler.audits(state)
    assert (late.audited, late.held, late.doubted) == (10, 0, True)
    assert late.caution == early.caution  # nothing new was said


def test_a_window_whose_last_pane_is_not_known_is_not_audited() -> None:
    sampler, state, _ = promising(3_000)
    sampler.amended(3_000, {"n": 101.0})
    sampler.amended(3_000, None)
    sampler.settle(lambda end_ms: True)
    assert sampler.audits(state).audited == 0


def test_what_a_failed_step_would_have_counted_is_counted_by_the_next() -> None:
    sampler, state, plan = promising(3_000)
    sampler.compare(3_000, {"n": 101.0})
    marks = Watermarks({(0, 0): 0}, 0)
    failed = sampler.advance(state, 1, plan, {}, marks)
    again = sampler.advance(state, 1, plan, {}, marks)
    assert failed.monitor.audits == again.monitor.audits
    assert again.monitor.audits.audited == 1
    sampler.committed(plan, [], untrusted_ms=0)
    state.sampling = sampler.learned(again.monitor, [])
    assert sampler.advance(state, 2, plan, {}, marks).monitor.audits.audited == 1


def test_windows_that_are_doubted_say_so_in_what_is_known_of_their_sample() -> None:
    sampler, state, plan = promising(*range(3_000, 33_000, 3_000))
    for end_ms in range(3_000, 33_000, 3_000):
        sampler.compare(end_ms, {"n": 140.0})
    assert not sampler.advance(state, 1, plan, {}, Watermarks({(0, 0): 0}, 0)).facts.trusted
