"""Learn when sweeping watermarks come in, and forecast the next.

>>> estimator = QuantileEstimator(SweepGeneration.bounded(500))
>>> estimator.forecast(3_000) is None  # nothing was seen yet
True
>>> for window in range(1, 101):
...     estimator.observe(3_000 * window, 3_000 * window + 500 + 37 * window % 50)
>>> forecast = estimator.forecast(303_000)
>>> forecast.epochs, forecast.low_ms, forecast.mean_ms, forecast.high_ms
(100, 303500.0, 303524.5, 303546.6875)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from statistics import NormalDist

from slackwater.errors import DescriptionError
from slackwater.progress.changes import ChangeDetector
from slackwater.progress.epochs import HISTORY, DelayMoments, Epochs
from slackwater.progress.misses import AllowedMisses
from slackwater.progress.sketch import RecentLags
from slackwater.progress.student import student_factor
from slackwater.progress.sweeps import SweepForecast, SweepGeneration, require_confidence


class SweepEstimator(ABC):
    """Learn from the sweeping watermarks of one input of one query.

    Every estimator keeps the last lags and watches them for a change: when the network has become
    another, what was learned before is forgotten, and the forecast starts anew from the lags since.
    """

    def __init__(
        self,
        generation: SweepGeneration,
        *,
        confidence: float = 0.95,
        history: int = HISTORY,
    ) -> None:
        require_confidence(confidence)
        self.generation = generation
        self.confidence = confidence
        self.changes = 0
        self._lags = RecentLags(history)
        self._detector = ChangeDetector()

    @property
    def epochs(self) -> int:
        """Return how many epochs the next forecast rests on."""
        return len(self._lags)

    def observe(
        self, deadline_ms: int, arrived_ms: float, delays: DelayMoments | None = None
    ) -> None:
        """Take in the arrival of a deadline's sweeping watermark, and the delays of its epoch."""
        lag_ms = arrived_ms - self.generation.generated_ms(deadline_ms)
        if not math.isfinite(lag_ms):
            raise DescriptionError(
                f"arrived_ms={arrived_ms!r} cannot be: leave out watermarks without an arrival"
            )
        since_change = None
        if self._lags:
            since_change = self._detector.observe(self._lags.share_below(lag_ms))
        self._lags.add(deadline_ms, lag_ms)
        if since_change is not None:
            self.changes += 1
            self._lags.keep_last(since_change)

    def forecast(self, deadline_ms: int) -> SweepForecast | None:
        """Forecast the arrival of a deadline's sweeping watermark; None before any was seen."""
        if not self._lags:
            return None
        return self._forecast(deadline_ms, self.generation.generated_ms(deadline_ms))

    @abstractmethod
    def _forecast(self, deadline_ms: int, generated_ms: int) -> SweepForecast: ...


class QuantileEstimator(SweepEstimator):
    """Take the interval from the quantiles of past lags: any shape of delay, and the default.

    No watermark is expected before it was sent, unless clocks have shown otherwise. So there are
    two intervals of the same confidence: with half of the misses on either side, or from the
    instant of sending, with all of them behind. The shorter is taken: the second where short
    delays are the most frequent. Too few lags have no such quantiles: then the interval is
    Student's, and holds at least what was seen. How many misses quantiles aim at is adapted
    (`AllowedMisses`): a longer tail, which no rank betrays, shows in misses.
    """

    def __init__(
        self,
        generation: SweepGeneration,
        *,
        confidence: float = 0.95,
        history: int = HISTORY,
    ) -> None:
        super().__init__(generation, confidence=confidence, history=history)
        self._misses = AllowedMisses(1.0 - confidence)

    def observe(
        self, deadline_ms: int, arrived_ms: float, delays: DelayMoments | None = None
    ) -> None:
        said = self.forecast(deadline_ms)
        super().observe(deadline_ms, arrived_ms, delays)
        if said is not None:
            self._misses.observe(missed=not said.holds(arrived_ms))

    @property
    def lags(self) -> RecentLags:
        """Return the lags this rests on: to be sent to another node, or kept over a restart."""
        return self._lags

    def absorb(self, lags: RecentLags) -> None:
        """Learn from lags of the same input that were seen elsewhere."""
        self._lags = self._lags.merged(lags)

    def _forecast(self, deadline_ms: int, generated_ms: int) -> SweepForecast:
        lags, n, mean_ms = self._lags, self.epochs, self._lags.mean_ms
        # One lag shows no deviation. Many delays deviate by about their mean: assume that.
        deviation_ms = (lags.deviation_ms if n > 1 else abs(mean_ms)) * math.sqrt(1.0 + 1.0 / n)
        early, earliest_ms = (1.0 - self.confidence) / 2, min(lags.least_ms, 0.0)
        tail = self._misses.share / 2
        low_ms, high_ms = lags.quantile_ms(tail), lags.quantile_ms(1.0 - tail)
        if early * (n + 1) < 1.0:
            reach_ms = deviation_ms * student_factor(self.confidence, max(n - 1, 1))
            low_ms = max(min(low_ms, mean_ms - reach_ms), earliest_ms)
            high_ms = max(high_ms, mean_ms + reach_ms)
        else:
            all_but_late_ms = lags.quantile_ms(1.0 - 2 * tail)
            if all_but_late_ms - earliest_ms < high_ms - low_ms:
                early, low_ms, high_ms = 0.0, earliest_ms, all_but_late_ms
        return SweepForecast(
            mean_ms=generated_ms + mean_ms,
            deviation_ms=deviation_ms,
            low_ms=generated_ms + low_ms,
            high_ms=generated_ms + high_ms,
            confidence=self.confidence,
            early=early,
            epochs=n,
        )


class NormalEstimator(SweepEstimator):
    """Take the watermark's delay to be normal, with the moments of the records' delays.

    O. Farhat, K. Daudjee, L. Querzoni, "Klink: Progress-Aware Scheduling for Streaming Data
    Systems", SIGMOD 2021, section 3.1. Equation 6 there gives the variance of the *mean* over `h`
    epochs; one watermark deviates by that and by its own delay: `(chi - mu^2) * (1 + 1/h)`.
    Where an epoch brings no delays of records, the watermark's own lag stands for them.
    """

    def __init__(
        self,
        generation: SweepGeneration,
        *,
        confidence: float = 0.95,
        history: int = HISTORY,
    ) -> None:
        super().__init__(generation, confidence=confidence, history=history)
        self._factor = NormalDist().inv_cdf((1.0 + confidence) / 2)
        self._delays = Epochs(history)

    def observe(
        self, deadline_ms: int, arrived_ms: float, delays: DelayMoments | None = None
    ) -> None:
        super().observe(deadline_ms, arrived_ms, delays)
        if not delays or not delays.count:
            delays = DelayMoments.of([arrived_ms - self.generation.generated_ms(deadline_ms)])
        self._delays.add(delays)
        if len(self._delays) > self.epochs:  # a change was noticed, and the lags before forgotten
            self._delays.keep_last(self.epochs)

    def _forecast(self, deadline_ms: int, generated_ms: int) -> SweepForecast:
        n = len(self._delays)
        mean_ms = generated_ms + self._delays.mean_ms
        deviation_ms = math.sqrt(self._delays.variance_ms2 * (1.0 + 1.0 / n))
        return SweepForecast(
            mean_ms=mean_ms,
            deviation_ms=deviation_ms,
            low_ms=mean_ms - self._factor * deviation_ms,
            high_ms=mean_ms + self._factor * deviation_ms,
            confidence=self.confidence,
            early=(1.0 - self.confidence) / 2,
            epochs=n,
        )


class RegressionEstimator(SweepEstimator):
    """Draw a straight line through past lags over their deadlines: a baseline to compare with.

    It follows a drift, and takes chance for one. The line is fitted anew for each forecast.
    """

    def _forecast(self, deadline_ms: int, generated_ms: int) -> SweepForecast:
        at_ms, lags_ms = self._lags.columns()
        n, middle_ms, mean_ms = len(lags_ms), float(at_ms.mean()), float(lags_ms.mean())
        at_ms -= middle_ms
        lags_ms -= mean_ms
        along, across = float(at_ms @ at_ms), float(at_ms @ lags_ms)
        total = float(lags_ms @ lags_ms)
        slope = across / along if along else 0.0
        ahead_ms = deadline_ms - middle_ms
        degrees = max(n - 2, 1)
        variance_ms2 = max(total - slope * across, 0.0) / degrees
        leverage = 1.0 + 1.0 / n + (ahead_ms**2 / along if along else 0.0)
        deviation_ms = math.sqrt(variance_ms2 * leverage)
        reach_ms = deviation_ms * student_factor(self.confidence, degrees)
        expected_ms = generated_ms + mean_ms + slope * ahead_ms
        return SweepForecast(
            mean_ms=expected_ms,
            deviation_ms=deviation_ms,
            low_ms=expected_ms - reach_ms,
            high_ms=expected_ms + reach_ms,
            confidence=self.confidence,
            early=(1.0 - self.confidence) / 2,
            epochs=n,
        )
