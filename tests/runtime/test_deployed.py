"""When a query's next window ends, with one stage and with several."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import slackwater as sw
from slackwater.runtime.deployed import DeployedQuery
from slackwater.runtime.state import QueryState, StageState


def chained(*starts_ms: int) -> DeployedQuery:
    """Chain 2 s windows behind 3 s ones, of which some have given results already."""
    first, second = sw.tumbling("3 s"), sw.tumbling("2 s")
    shapes = [SimpleNamespace(windows=windows) for windows in (first, second)]
    template: Any = SimpleNamespace(pipeline=SimpleNamespace(shapes=shapes))
    state = QueryState(0, "q", {})
    state.stages = (StageState(sources=dict.fromkeys(starts_ms)),)
    return DeployedQuery(0, state, cast("Any", template), (), first.grid(0))


def test_without_results_the_first_stage_tells() -> None:
    assert chained().next_deadline_ms(3_000) == 6_000


def test_a_later_window_that_holds_results_is_due_when_it_ends() -> None:
    """The result of [0, 3) is an event at 2.999 s: it belongs to [2, 4)."""
    assert chained(0).next_deadline_ms(3_000) == 4_000
    assert chained(0).next_deadline_ms(4_000) == 6_000


def test_a_later_window_that_ends_with_a_first_one_changes_nothing() -> None:
    assert chained(3_000).next_deadline_ms(5_000) == 6_000
