"""What a user wants of a result: an error that it stays within, and how surely."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

from slackwater.progress.student import student_factor


@dataclass(frozen=True)
class Target:
    """Want `P(relative error <= relative) >= confidence`.

    It holds for the total over all groups, or, with `group_share`, for every group that has at
    least this share of the window's rows.

    >>> round(Target(0.05, 0.95).deviations, 2)
    1.96
    """

    relative: float
    confidence: float
    group_share: float | None = None

    @property
    def deviations(self) -> float:
        """Return how many standard deviations the confidence stands for (the paper's z)."""
        return NormalDist().inv_cdf((1.0 + self.confidence) / 2)

    def deviations_of(self, rows: float) -> float:
        """Return the same for an estimate from so few rows that their spread is uncertain too."""
        return student_factor(self.confidence, max(1, int(rows) - 1))
