"""A query that samples: the moment it waits for is the moment at which its step may close."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from slackwater.app.bounds import within
from slackwater.progress.grid import WindowGrid
from slackwater.progress.watermarks import Watermarks
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
