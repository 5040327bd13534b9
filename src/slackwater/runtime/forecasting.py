"""When a query's next window can close: learned from the watermarks that closed earlier ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slackwater.progress.coverage import CoverageCounter
from slackwater.progress.epochs import DelayMoments
from slackwater.progress.estimators import QuantileEstimator
from slackwater.progress.sweeps import SweepForecast, SweepGeneration, combined


class SweepWatch:
    """Follow the sweeping watermarks of one query, input by input.

    A window over several inputs closes with the last of their watermarks; each input has its own
    period and delays, so each is forecast by itself.
    """

    def __init__(self, generations: Sequence[SweepGeneration]) -> None:
        """Know how each input's watermarks are made."""
        self._estimators = [QuantileEstimator(generation) for generation in generations]
        self._moments: dict[int, DelayMoments] = {}
        self._expected: tuple[int, SweepForecast | None] | None = None
        self.coverage = CoverageCounter()

    def delayed(self, index: int, delays: DelayMoments) -> None:
        """Take in the delays of records that a step read, until the next window closes."""
        before = self._moments.get(index)
        self._moments[index] = delays if before is None else before + delays

    def expect(self, deadline_ms: int) -> SweepForecast | None:
        """Forecast when the watermark that passes a deadline comes in; None at first."""
        if self._expected is None or self._expected[0] != deadline_ms:
            found = combined(one.forecast(deadline_ms) for one in self._estimators)
            self._expected = deadline_ms, found
        return self._expected[1]

    def swept(self, deadline_ms: int, arrived_ms: Mapping[int, float]) -> None:
        """Learn when each input's watermark passed a deadline."""
        if self._expected is not None and self._expected[0] == deadline_ms and arrived_ms:
            self.coverage.record(self._expected[1], max(arrived_ms.values()))
        for index, arrival_ms in arrived_ms.items():
            delays = self._moments.pop(index, None)
            self._estimators[index].observe(deadline_ms, arrival_ms, delays)
        self._expected = None
