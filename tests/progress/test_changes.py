from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from slackwater.progress.changes import ChangeDetector
from slackwater.progress.sketch import RecentLags


def alarms(numbers: Iterable[float]) -> list[tuple[int, int]]:
    """List the places of alarms, and how many of the newest numbers each said to keep."""
    seen, detector, found = RecentLags(), ChangeDetector(), []
    for place, number in enumerate(numbers):
        kept = detector.observe(seen.share_below(number)) if len(seen) else None
        seen.add(place, number)
        if kept is not None:
            found.append((place, kept))
            seen.keep_last(kept)
    return found


@pytest.mark.parametrize("shape", ["normal", "exponential", "pareto"])
def test_false_alarms_are_as_rare_for_any_distribution(shape: str) -> None:
    rng = np.random.default_rng(11)
    numbers = {
        "normal": rng.normal(size=20_000),
        "exponential": rng.exponential(size=20_000),
        "pareto": rng.pareto(1.5, size=20_000),
    }[shape]
    assert 5 <= len(alarms(numbers.tolist())) <= 40  # about one in a thousand


@pytest.mark.parametrize("move", [4.0, -4.0])
def test_a_clear_move_is_noticed_within_four_and_what_was_before_forgotten(move: float) -> None:
    noticed, kept_old = 0, []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        found = alarms([*rng.normal(size=200), *rng.normal(move, size=4)])
        for place, kept in found:
            if place >= 200:
                noticed += 1
                kept_old.append(max(kept - (place - 199), 0))
    assert noticed >= 19  # one run had a false alarm just before, and knows too little
    assert sum(kept == 0 for kept in kept_old) >= 10  # evidence may have begun to mount by chance
    assert max(kept_old) <= 20


def test_a_wider_spread_about_the_same_centre_is_noticed() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        numbers = [*rng.normal(size=100), *rng.normal(scale=5.0, size=25)]
        assert any(place >= 100 for place, _ in alarms(numbers))


def test_one_outlier_is_no_change() -> None:
    rng = np.random.default_rng(3)
    numbers = rng.normal(size=300)
    undisturbed = alarms(numbers.tolist())
    numbers[200] = 1e9
    assert alarms(numbers.tolist()) == undisturbed == []


def test_numbers_that_never_change_never_alarm() -> None:
    assert alarms([5.0] * 2_000) == []
