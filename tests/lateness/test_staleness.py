from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lateness.shapes import SHAPES

from slackwater.errors import DescriptionError
from slackwater.lateness.staleness import LateCurve

BOUNDS = (0.1, 0.05, 0.01)


def spans(curve: LateCurve, ends: tuple[float, ...]) -> list[float]:
    """Compute the staleness of each span from its definition."""
    places = [0, *(curve.ages_ms.index(end) for end in ends)]
    return [
        (curve.ages_ms[b] - curve.ages_ms[a])
        / curve.span_ms
        * (curve.counts[b] - curve.counts[a])
        / curve.events
        for a, b in pairwise(places)
    ]


small_curves = st.lists(
    st.tuples(st.integers(1, 5), st.integers(0, 6)), min_size=1, max_size=8
).map(
    lambda cells: LateCurve.of(
        np.cumsum([gap for gap, _ in cells]).tolist(), [float(count) for _, count in cells]
    )
)


@given(curve=small_curves, bound=st.floats(0.001, 1.0))
def test_no_placement_with_fewer_executions_keeps_the_bound(curve: LateCurve, bound: float) -> None:
    found = curve.fewest(bound)
    *inner, last = curve.ages_ms[1:]
    feasible = [
        placed
        for count in range(len(inner) + 1)
        for chosen in combinations(inner, count)
        if max(spans(curve, placed := (*chosen, last))) <= bound
    ]
    if feasible:
        assert max(spans(curve, found)) <= bound
        assert len(found) == min(map(len, feasible))
        # And of all placements with as few, none has a fresher stalest span.
        balanced = curve.balanced(bound)
        best = min(max(spans(curve, each)) for each in feasible if len(each) == len(found))
        assert balanced.stalest == best == max(spans(curve, balanced.ends))
        assert len(balanced.ends) <= len(found)
    else:
        assert max(spans(curve, found)) > bound  # one instant alone is too much


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_bound_is_kept_in_every_span(shape: str, bound: float) -> None:
    ages = SHAPES[shape](100_000, 7)
    counts, edges = np.histogram(ages, bins=2_000, range=(0.0, 1.0))
    curve = LateCurve.of(edges[1:].tolist(), counts.astype(float).tolist())
    greedy, balanced = curve.fewest(bound), curve.balanced(bound)
    assert max(spans(curve, greedy)) <= bound
    assert max(spans(curve, balanced.ends)) == balanced.stalest <= bound
    assert len(balanced.ends) == len(greedy)


@pytest.mark.parametrize("shape", SHAPES)
def test_balanced_spans_are_equally_stale(shape: str) -> None:
    counts, edges = np.histogram(SHAPES[shape](100_000, 3), bins=2_000, range=(0.0, 1.0))
    curve = LateCurve.of(edges[1:].tolist(), counts.astype(float).tolist())
    found = spans(curve, curve.balanced(0.05).ends)
    assert min(found) > 0.9 * max(found)


def test_no_late_events_need_one_execution_at_the_purge() -> None:
    assert LateCurve.of([1.0, 2.0], [0.0, 0.0]).balanced(0.01).ends == (2.0,)


@pytest.mark.parametrize(("ages", "events"), [([], []), ([1.0], []), ([2.0, 1.0], [1, 1])])
def test_what_is_no_curve_is_refused(ages: list[float], events: list[float]) -> None:
    with pytest.raises(DescriptionError, match="curve"):
        LateCurve.of(ages, events)
