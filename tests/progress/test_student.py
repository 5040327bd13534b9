from __future__ import annotations

import pytest

from slackwater.progress.student import student_factor


@pytest.mark.parametrize(
    ("confidence", "degrees", "published"),
    [
        (0.5, 1, 1.000),
        (0.9, 3, 2.353),
        (0.95, 4, 2.776),
        (0.95, 10, 2.228),
        (0.99, 2, 9.925),
        (0.99, 9, 3.250),
        (0.999, 30, 3.646),
        (0.95, 60, 2.000),
        (0.95, 120, 1.980),
        (0.99, 1_000, 2.581),
    ],
)
def test_factors_are_the_published_ones(confidence: float, degrees: int, published: float) -> None:
    assert student_factor(confidence, degrees) == pytest.approx(published, abs=6e-4)


def test_factors_fall_steadily_also_where_the_formula_changes() -> None:
    factors = [student_factor(0.95, degrees) for degrees in range(1, 100)]
    assert factors == sorted(factors, reverse=True)
