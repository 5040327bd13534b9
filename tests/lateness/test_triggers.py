from __future__ import annotations

import numpy as np
import pytest
from tests.lateness.shapes import SHAPES, Floats

from slackwater.errors import DescriptionError
from slackwater.lateness.observed import ObservedLateness, Seen, bin_of
from slackwater.lateness.staleness import LateCurve
from slackwater.lateness.triggers import (
    AmendTrigger,
    EveryEvents,
    EveryInterval,
    PastWindow,
    Staleness,
)

BOUND_MS = 100_000
STEPS = 1_000  # at which a window is looked at


def learned(shape: str, windows: int = 24, events: int = 2_000) -> ObservedLateness:
    observed = ObservedLateness()
    for window in range(windows):
        late: dict[int, int] = {}
        for age in (SHAPES[shape](events, 1_000 + window) * BOUND_MS).astype(int).tolist():
            late[bin_of(age)] = late.get(bin_of(age), 0) + 1
        observed = observed.plus(Seen(0, late, 1))
    return observed


def executions(
    trigger: AmendTrigger, ages_ms: Floats, expected: LateCurve | None
) -> list[tuple[float, float]]:
    """Run a window through a trigger, step by step; return each execution's age and staleness."""
    found, executed_ms, shown, total = [], 0.0, 0, len(ages_ms)
    for step in range(1, STEPS + 1):
        age_ms = BOUND_MS * step / STEPS
        late = int(np.searchsorted(ages_ms, age_ms, side="right"))
        window = PastWindow(age_ms, executed_ms, late - shown, late, BOUND_MS)
        if late > shown and (step == STEPS or trigger.due(window, expected)):
            stale = (age_ms - executed_ms) / BOUND_MS * (late - shown) / total
            found.append((age_ms, stale))
            executed_ms, shown = age_ms, late
    assert shown == total
    return found


def optimum(ages_ms: Floats, bound: float) -> int:
    """Count the fewest executions for what came, known in advance."""
    counts, edges = np.histogram(ages_ms, bins=STEPS, range=(0.0, BOUND_MS))
    return len(LateCurve.of(edges[1:].tolist(), counts.astype(float).tolist()).fewest(bound))


@pytest.mark.parametrize("bound", [0.1, 0.05, 0.01])
@pytest.mark.parametrize("shape", SHAPES)
def test_learned_trigger_keeps_the_bound_with_hardly_more_executions_than_the_fewest(
    shape: str, bound: float
) -> None:
    expected = learned(shape).curve(BOUND_MS)
    for seed in range(3):
        ages_ms = SHAPES[shape](2_000, seed) * BOUND_MS
        found = executions(Staleness(bound), ages_ms, expected)
        assert max(stale for _, stale in found) <= bound * 1.02
        assert len(found) <= optimum(ages_ms, bound) + 1


@pytest.mark.parametrize("factor", [3.0, 1 / 3])
def test_bound_is_kept_if_many_more_or_fewer_events_come_than_expected(factor: float) -> None:
    expected = learned("lognormal").curve(BOUND_MS)
    ages_ms = SHAPES["lognormal"](int(2_000 * factor), 5) * BOUND_MS
    found = executions(Staleness(0.05), ages_ms, expected)
    # Staleness is counted against the events expected, or more if more came.
    against = max(1.0, 2_000 / len(ages_ms))
    assert max(stale for _, stale in found) <= 0.05 * 1.1 * against


def test_unlearned_trigger_keeps_the_bound_too() -> None:
    ages_ms = SHAPES["uniform"](2_000, 1) * BOUND_MS
    assert max(stale for _, stale in executions(Staleness(0.05), ages_ms, None)) <= 0.05


def test_baselines_execute_by_time_and_by_events() -> None:
    ages_ms = SHAPES["uniform"](1_000, 1) * BOUND_MS
    by_time = executions(EveryInterval(20_000), ages_ms, None)
    assert [round(age / 1_000) for age, _ in by_time] == [20, 40, 60, 80, 100]
    by_events = executions(EveryEvents(250), ages_ms, None)
    assert len(by_events) == 4


def test_nothing_is_due_where_nothing_waits() -> None:
    expected = learned("uniform").curve(BOUND_MS)
    window = PastWindow(90_000, 0, 0, 0, BOUND_MS)
    for trigger in (Staleness(0.01), EveryInterval(1), EveryEvents(1)):
        assert not trigger.due(window, expected)


def test_next_execution_is_foretold_before_anything_has_come() -> None:
    expected = learned("uniform").curve(BOUND_MS)
    assert expected is not None
    window = PastWindow(0, 0, 0, 0, BOUND_MS)
    for trigger in (Staleness(0.05), EveryInterval(30_000), EveryEvents(400)):
        assert 10_000 < trigger.due_age_ms(window, expected) < 40_000


@pytest.mark.parametrize("bound", [0, -0.1, 1.5, float("nan"), "0.05"])
def test_staleness_that_cannot_be_is_refused(bound: float) -> None:
    with pytest.raises(DescriptionError, match="staleness="):
        Staleness(bound)
