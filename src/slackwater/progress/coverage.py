"""How often sweeping watermarks came in when forecast: the measure of an estimator.

>>> counter = CoverageCounter()
>>> forecast = SweepForecast(100.0, 10.0, 80.0, 120.0, 0.95, 0.025, 40)
>>> for arrived_ms in (90, 110, 120, 121):
...     counter.record(forecast, arrived_ms)
>>> counter.coverage.share
0.75
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from slackwater.progress.sweeps import SweepForecast

RECENT = 100


@dataclass(frozen=True)
class Coverage:
    """Count forecasts, and those whose interval held the arrival: ever, and of late."""

    forecasts: int = 0
    held: int = 0
    recent_forecasts: int = 0
    recent_held: int = 0
    width_ms: float = 0.0  # of all intervals together

    @property
    def share(self) -> float | None:
        """Return the share of forecasts that held; None where there were none."""
        return self.held / self.forecasts if self.forecasts else None

    @property
    def recent_share(self) -> float | None:
        """Return that share over the last forecasts only."""
        return self.recent_held / self.recent_forecasts if self.recent_forecasts else None

    @property
    def mean_width_ms(self) -> float | None:
        """Return how long an interval was on average: coverage is cheap where it is long."""
        return self.width_ms / self.forecasts if self.forecasts else None

    @classmethod
    def total(cls, coverages: Iterable[Coverage]) -> Coverage:
        """Add up the coverages of many queries."""
        parts = list(coverages)
        return cls(
            forecasts=sum(part.forecasts for part in parts),
            held=sum(part.held for part in parts),
            recent_forecasts=sum(part.recent_forecasts for part in parts),
            recent_held=sum(part.recent_held for part in parts),
            width_ms=sum(part.width_ms for part in parts),
        )


class CoverageCounter:
    """Compare each arrival with the forecast made before it."""

    def __init__(self) -> None:
        self._forecasts = self._held = 0
        self._width_ms = 0.0
        self._recent: deque[bool] = deque(maxlen=RECENT)

    def record(self, forecast: SweepForecast | None, arrived_ms: float) -> None:
        """Take in an arrival; where nothing was forecast there is nothing to count."""
        if forecast is None:
            return
        held = forecast.holds(arrived_ms)
        self._forecasts += 1
        self._held += held
        self._width_ms += forecast.width_ms
        self._recent.append(held)

    @property
    def coverage(self) -> Coverage:
        """Return the counts so far."""
        return Coverage(
            forecasts=self._forecasts,
            held=self._held,
            recent_forecasts=len(self._recent),
            recent_held=sum(self._recent),
            width_ms=self._width_ms,
        )
