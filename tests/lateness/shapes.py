"""How late events are, in shares of the time that they may be: the shapes that tests draw from."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def _within(draw: Callable[[np.random.Generator, int], Floats]) -> Callable[[int, int], Floats]:
    """Draw ages as shares of the bound; what is later than that is left out."""

    def drawn(events: int, seed: int) -> Floats:
        chance = np.random.default_rng(seed)
        ages = np.sort(draw(chance, events))
        return ages[(ages > 0) & (ages <= 1)]

    return drawn


# Lateness in windows is log-normal(0, 1); 99.9 % come within 22 of them, so that is the bound.
SHAPES = {
    "lognormal": _within(lambda chance, n: chance.lognormal(0, 1, n) / 22.0),
    "uniform": _within(lambda chance, n: chance.random(n)),
    "normal": _within(lambda chance, n: chance.normal(0.5, 0.12, n)),
    "bursts": _within(
        lambda chance, n: chance.choice([0.1, 0.45, 0.8], n) + chance.normal(0, 0.02, n)
    ),
}
