"""Measure how well each estimator forecasts sweeping watermarks.

No Spark, no clock: delays are drawn from the named distributions with fixed seeds, and the figures
are the same on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from slackwater.progress.coverage import Coverage, CoverageCounter
from slackwater.progress.distributions import (
    NAMED_DELAYS,
    DelayDistribution,
    ExponentialDelay,
    GammaDelay,
    LogNormalDelay,
    UniformDelay,
    ZipfDelay,
)
from slackwater.progress.epochs import DelayMoments
from slackwater.progress.estimators import (
    NormalEstimator,
    QuantileEstimator,
    RegressionEstimator,
    SweepEstimator,
)
from slackwater.progress.periodic import PeriodicWatermarks
from slackwater.progress.sweeps import SweepForecast, SweepGeneration, combined

WINDOWS = 2_000
WARM_UP = 400  # windows that the tables leave out: a full history
_START_MS = 1_700_000_000_000
_WINDOW_MS = 3_000
_RECORDS = 250  # of an epoch

DELAYS = {name: delay for name, delay in NAMED_DELAYS.items() if name != "none"}
THREEFOLD: Mapping[str, DelayDistribution] = {
    "uniform": UniformDelay(0.0, 1_500.0),
    "zipf": ZipfDelay(0.99, 3_000),
    "exp": ExponentialDelay(720.0),
    "gamma": GammaDelay(60.0, 12.0),
    "lognormal": LogNormalDelay(600.0, 1.0),
}

MakeEstimator = Callable[[SweepGeneration], SweepEstimator]


@dataclass(frozen=True)
class Sweep:
    """Say when a window's sweeping watermark came in, and how late its epoch's records were."""

    deadline_ms: int
    arrived_ms: int
    delays: DelayMoments


@dataclass(frozen=True)
class WatermarkedStream:
    """Send a watermark every `period_ms`, `lag_ms` behind, delayed like the records."""

    delay: DelayDistribution
    period_ms: int
    lag_ms: int

    @property
    def generation(self) -> SweepGeneration:
        """Tell when watermarks are sent."""
        return SweepGeneration.periodic(self.period_ms, self.lag_ms)

    def sweeps(self, windows: range, seed: int) -> Iterator[Sweep]:
        """Draw the sweeps of these windows, one after the other."""
        sent = PeriodicWatermarks(
            self.delay,
            salt=seed,
            period_ms=self.period_ms,
            lag_ms=self.lag_ms,
            start_ms=_START_MS,
        )
        random = np.random.default_rng([seed, windows.start])
        for window in windows:
            deadline_ms = _START_MS + window * _WINDOW_MS
            delays_ms = self.delay.draw(random.random(_RECORDS))
            moments = DelayMoments(_RECORDS, float(delays_ms.sum()), float(delays_ms @ delays_ms))
            yield Sweep(deadline_ms, sent.sweep_arrival_ms(deadline_ms), moments)


class PrintedEstimator(NormalEstimator):
    """Take the variance as Klink's equation 6 prints it: that of the mean over all epochs.

    With all epochs of one size it comes to `(chi - mean of mu_i^2) / h`, and so to next to nothing.
    """

    def __init__(self, generation: SweepGeneration, *, confidence: float = 0.95) -> None:
        super().__init__(generation, confidence=confidence)
        self._deviations = NormalDist().inv_cdf((1.0 + confidence) / 2)

    def _forecast(self, deadline_ms: int, generated_ms: int) -> SweepForecast:
        sound = super()._forecast(deadline_ms, generated_ms)
        # The squares of the epochs' means are taken as the square of their mean: with 250 records
        # an epoch they differ by less than a hundredth of the variance.
        deviation_ms = math.sqrt(self._delays.variance_ms2 / len(self._delays))
        return SweepForecast(
            mean_ms=sound.mean_ms,
            deviation_ms=deviation_ms,
            low_ms=sound.mean_ms - self._deviations * deviation_ms,
            high_ms=sound.mean_ms + self._deviations * deviation_ms,
            confidence=sound.confidence,
            early=sound.early,
            epochs=sound.epochs,
        )


ESTIMATORS: Mapping[str, MakeEstimator] = {
    "quantile": QuantileEstimator,
    "normal": NormalEstimator,
    "regression": RegressionEstimator,
    "as printed": PrintedEstimator,
}


def stream_of(name: str, period_ms: int) -> WatermarkedStream:
    """Return the stream of a named delay; watermarks trail by its 99.9 % quantile."""
    return WatermarkedStream(DELAYS[name], period_ms, round(DELAYS[name].quantile(0.999)))


def measure(
    make: MakeEstimator,
    stream: WatermarkedStream,
    seed: int,
    *,
    windows: int = WINDOWS,
    warm_up: int = WARM_UP,
) -> Coverage:
    """Forecast each window's sweep from those before it, and count what held."""
    estimator, counter = make(stream.generation), CoverageCounter()
    for window, sweep in enumerate(stream.sweeps(range(1, windows + 1), seed)):
        if window >= warm_up:
            counter.record(estimator.forecast(sweep.deadline_ms), sweep.arrived_ms)
        estimator.observe(sweep.deadline_ms, sweep.arrived_ms, sweep.delays)
    return counter.coverage


@dataclass(frozen=True)
class Recovery:
    """Say how an estimator took a change: coverage by stretches of epochs after it."""

    noticed_after: int | None  # epochs
    first_20: Coverage
    next_40: Coverage


def measure_shift(make: MakeEstimator, name: str, period_ms: int, seed: int) -> Recovery:
    """Let delays grow threefold after 300 windows, and watch the 60 that follow."""
    before, change = stream_of(name, period_ms), 301
    after = WatermarkedStream(THREEFOLD[name], period_ms, before.lag_ms)
    estimator = make(before.generation)
    for sweep in before.sweeps(range(1, change), seed):
        estimator.observe(sweep.deadline_ms, sweep.arrived_ms, sweep.delays)
    unnoticed, noticed_after = estimator.changes, None
    first_20, next_40 = CoverageCounter(), CoverageCounter()
    for epoch, sweep in enumerate(after.sweeps(range(change, change + 60), seed)):
        counter = first_20 if epoch < 20 else next_40
        counter.record(estimator.forecast(sweep.deadline_ms), sweep.arrived_ms)
        estimator.observe(sweep.deadline_ms, sweep.arrived_ms, sweep.delays)
        if noticed_after is None and estimator.changes > unnoticed:
            noticed_after = epoch + 1
    return Recovery(noticed_after, first_20.coverage, next_40.coverage)


def measure_joined(names: Sequence[str], period_ms: int, seed: int) -> Coverage:
    """Join streams of these delays, and forecast when each window's last watermark comes in."""
    streams = [stream_of(name, period_ms) for name in names]
    estimators = [QuantileEstimator(stream.generation) for stream in streams]
    counter = CoverageCounter()
    runs = [stream.sweeps(range(1, 1_001), 10 * seed + i) for i, stream in enumerate(streams)]
    for sweeps in zip(*runs, strict=True):
        deadline_ms = sweeps[0].deadline_ms
        forecast = combined(estimator.forecast(deadline_ms) for estimator in estimators)
        counter.record(forecast, max(sweep.arrived_ms for sweep in sweeps))
        for estimator, sweep in zip(estimators, sweeps, strict=True):
            estimator.observe(deadline_ms, sweep.arrived_ms)
    return counter.coverage


def measure_wandering(correlation: float, drift: float, seed: int) -> Coverage:
    """Forecast normal lags that depend on the one before, or drift by deviations a window."""
    noise = np.random.default_rng(seed).normal(size=1_500)
    estimator, counter, state = QuantileEstimator(SweepGeneration.unknown()), CoverageCounter(), 0.0
    for window, own in enumerate(noise.tolist()):
        state = correlation * state + math.sqrt(1.0 - correlation**2) * own
        deadline_ms = _WINDOW_MS * window
        arrived_ms = deadline_ms + 500.0 + 60.0 * (state + drift * window)
        counter.record(estimator.forecast(deadline_ms), arrived_ms)
        estimator.observe(deadline_ms, arrived_ms)
    return counter.coverage
