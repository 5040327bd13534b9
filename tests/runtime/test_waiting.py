from __future__ import annotations

import logging
import math
from types import SimpleNamespace
from typing import Any

import pytest

from slackwater.errors import SinkUnavailableError
from slackwater.runtime.planning import PlannedStep
from slackwater.runtime.waiting import FIRST_MS, LONGEST_MS, WaitingSteps

AWAY = SinkUnavailableError("topic t cannot be written now: connection refused")


def step_of(*numbers: int) -> PlannedStep:
    template: Any = None
    queries: Any = tuple(
        SimpleNamespace(number=n, state=SimpleNamespace(name=f"q{n}")) for n in numbers
    )
    return PlannedStep(1, 0, template, queries, {}, 0.0)


def test_pauses_double_up_to_the_longest() -> None:
    waiting, now_ms, step, pauses = WaitingSteps(), 1_000.0, step_of(1), []
    for _ in range(8):
        waiting.put(step, AWAY, now_ms)
        pauses.append(waiting.next_ms - now_ms)
        now_ms = waiting.next_ms
        assert waiting.due(now_ms - 1) == []
        (step,) = waiting.due(now_ms)
    assert pauses == [min(FIRST_MS * 2**n, LONGEST_MS) for n in range(8)]
    assert waiting.next_ms == math.inf
    assert not waiting


def test_what_is_out_of_reach_is_told_once_and_so_is_its_return(
    caplog: pytest.LogCaptureFixture,
) -> None:
    waiting, step = WaitingSteps(), step_of(1, 2)
    with caplog.at_level(logging.WARNING):
        waiting.put(step, AWAY, 0.0)
        assert waiting.reason(1) == waiting.reason(2) == str(AWAY)
        assert waiting.reason(3) is None
        (again,) = waiting.due(FIRST_MS)
        waiting.put(again, AWAY, 20_000.0)
        (again,) = waiting.due(60_000.0)
        waiting.over(again, 60_000.0)
        waiting.over(again, 61_000.0)
    assert waiting.reason(1) is None
    assert [record.message for record in caplog.records] == [
        f"q1, q2: {AWAY}; it is tried again until it works",
        "q1, q2: goes on after 60 s",
    ]
