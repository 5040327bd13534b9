from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lateness.shapes import Floats

from slackwater.errors import DescriptionError
from slackwater.lateness.cleanup import Cover, most_beyond
from slackwater.lateness.observed import (
    GENERATIONS,
    WINDOWS_PER_GENERATION,
    ObservedLateness,
    Seen,
    bin_of,
    bin_start_ms,
)

WINDOW_MS = 20_000
START_MS = 3_600_000
PER_GENERATION = 1_000 * WINDOWS_PER_GENERATION


def some_ages(shape: str, events: int, seed: int, scale: float = 1.0) -> Floats:
    chance = np.random.default_rng(seed)
    draws: dict[str, Callable[[], Floats]] = {
        "lognormal": lambda: chance.lognormal(0, 1, events),
        "uniform": lambda: chance.random(events) * 10,
        "normal": lambda: np.maximum(chance.normal(3, 0.3, events), 0.01),
        "bursts": lambda: chance.choice([1.0, 4.0, 9.0], events) + chance.normal(0, 0.1, events),
        "mostly in time": lambda: chance.lognormal(0, 1, events) * (chance.random(events) < 0.03),
    }
    return draws[shape]() * scale * WINDOW_MS


def seen(ages_ms: Floats, windows: int = WINDOWS_PER_GENERATION) -> Seen:
    late: dict[int, int] = {}
    for age in ages_ms[ages_ms >= 1].astype(int).tolist():
        late[bin_of(age)] = late.get(bin_of(age), 0) + 1
    return Seen(int((ages_ms < 1).sum()), late, windows)


def learned(shape: str, generations: int, scale: float = 1.0, seed: int = 0) -> ObservedLateness:
    observed = ObservedLateness()
    for number in range(generations):
        observed = observed.plus(seen(some_ages(shape, PER_GENERATION, seed + number, scale)))
    return observed


@pytest.mark.parametrize("share", [0.9, 0.99, 0.999])
@pytest.mark.parametrize("shape", ["lognormal", "uniform", "normal", "bursts", "mostly in time"])
def test_stationary_lateness_is_covered_within_half_a_point(shape: str, share: float) -> None:
    bound_ms = Cover(share, 0.95, START_MS).bound_ms(learned(shape, GENERATIONS), START_MS)
    assert bound_ms is not None
    covered = (some_ages(shape, 400_000, 9_999) < max(bound_ms, 1)).mean()
    in_time = (some_ages(shape, 400_000, 9_999) < 1).mean()
    assert covered >= share - 0.001
    assert covered <= max(share, in_time) + 0.005


def test_bound_is_right_with_the_confidence_asked_for() -> None:
    wish, right = Cover(0.9, 0.9, 1), 0
    for seed in range(200):
        ages = some_ages("lognormal", 500, seed)
        bound_ms = wish.bound_ms(ObservedLateness((seen(ages),)), 1)
        assert bound_ms is not None
        # The true share within, by the distribution itself.
        right += float(np.log(bound_ms / WINDOW_MS)) >= 1.2816
    assert 170 <= right <= 198


@pytest.mark.parametrize("shape", ["lognormal", "uniform", "bursts"])
def test_bound_follows_lateness_that_doubles(shape: str) -> None:
    wish = Cover(0.99, 0.95, START_MS)
    observed = learned(shape, GENERATIONS)
    before_ms = wish.bound_ms(observed, START_MS)
    assert before_ms is not None
    for number in range(2):
        doubled = seen(some_ages(shape, PER_GENERATION, 500 + number, scale=2.0))
        observed = observed.plus(doubled)
    after_ms = wish.bound_ms(observed, START_MS)
    assert after_ms is not None
    covered = (some_ages(shape, 400_000, 77, scale=2.0) < after_ms).mean()
    assert covered >= 0.985  # noticed within two generations, long before the old ones are gone
    for number in range(GENERATIONS):
        observed = observed.plus(seen(some_ages(shape, PER_GENERATION, 900 + number, scale=2.0)))
    settled_ms = wish.bound_ms(observed, START_MS)
    assert settled_ms is not None
    assert settled_ms == pytest.approx(2 * before_ms, rel=0.05)


def test_bound_follows_lateness_that_halves_once_the_old_is_gone() -> None:
    wish = Cover(0.99, 0.95, START_MS)
    observed = learned("lognormal", GENERATIONS)
    for number in range(GENERATIONS):
        halved = some_ages("lognormal", PER_GENERATION, 300 + number, scale=0.5)
        observed = observed.plus(seen(halved))
    bound_ms = wish.bound_ms(observed, START_MS)
    whole_ms = wish.bound_ms(learned("lognormal", GENERATIONS), START_MS)
    assert bound_ms is not None
    assert whole_ms is not None
    assert bound_ms == pytest.approx(whole_ms / 2, rel=0.05)


def test_bound_starts_large_and_stays_until_late_events_had_time_to_come() -> None:
    wish = Cover(0.99, 0.95, START_MS)
    assert wish.bound_ms(learned("lognormal", 4), START_MS - 1) is None
    assert wish.bound_ms(ObservedLateness((seen(some_ages("uniform", 200, 1)),)), START_MS) is None
    assert wish.bound_ms(learned("lognormal", 4), START_MS) is not None


def test_few_events_beyond_the_bound_are_allowed_by_the_binomial_distribution() -> None:
    # Sums of the binomial distribution, computed the long way.
    for events, share in ((50, 0.1), (400, 0.02), (3_000, 0.05)):
        found = most_beyond(events, share, 0.95)
        assert found is not None
        chances = [1.0]
        for k in range(events):
            chances.append(chances[-1] * (events - k) / (k + 1) * share / (1 - share))
        within = np.cumsum(np.array(chances) * (1 - share) ** events)
        assert within[found] <= 0.05 < within[found + 1]


def test_normal_approximation_takes_over_without_a_leap() -> None:
    exact, near = most_beyond(50_000, 0.01, 0.95), most_beyond(50_001, 0.01, 0.95)
    assert exact is not None
    assert near is not None
    assert abs(exact - near) <= 1


@given(st.integers(0, 2**40))
def test_bins_are_fine_and_in_order(age_ms: int) -> None:
    number = bin_of(age_ms)
    start_ms, end_ms = bin_start_ms(number), bin_start_ms(number + 1)
    assert start_ms <= age_ms < end_ms
    assert end_ms - start_ms <= max(1, start_ms / 127)
    assert bin_of(end_ms) == number + 1


some_seen = st.builds(
    Seen,
    st.integers(0, 5),
    st.dictionaries(st.integers(0, 40), st.integers(1, 5), max_size=4),
    st.integers(0, 3),
)


@given(st.lists(some_seen, max_size=6))
def test_what_was_seen_adds_up_in_any_order(parts: list[Seen]) -> None:
    forth = reduce(Seen.plus, parts, Seen())
    assert forth == reduce(Seen.plus, reversed(parts), Seen())
    assert forth.events == sum(part.events for part in parts)


@given(st.lists(some_seen, max_size=40), st.lists(some_seen, max_size=40))
def test_observations_merge_and_stay_bounded(ones: list[Seen], twos: list[Seen]) -> None:
    one = reduce(ObservedLateness.plus, ones, ObservedLateness())
    two = reduce(ObservedLateness.plus, twos, ObservedLateness())
    merged = one.merged(two)
    assert merged == two.merged(one)
    assert len(merged.generations) <= GENERATIONS
    assert merged.events == one.events + two.events


@pytest.mark.parametrize("settings", [(0.0, 0.9, 1), (1.0, 0.9, 1), (0.9, 1.0, 1), (0.9, 0.9, 0)])
def test_wishes_that_cannot_be_are_refused(settings: tuple[float, float, int]) -> None:
    with pytest.raises(DescriptionError, match="cover"):
        Cover(*settings)
