"""When a window's sweeping watermark is sent, and when it may come in.

The *sweeping watermark* of a window is the first to arrive that reaches the window's end. It is
sent at an instant that the watermark strategy tells (`SweepGeneration`); its *lag* is the time from
there to its arrival, which an estimator learns and turns into a `SweepForecast`.

>>> SweepGeneration.periodic(period_ms=200, lag_ms=500).generated_ms(3_000)
3600
>>> SweepGeneration.bounded(500).generated_ms(3_000)
3500
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from statistics import NormalDist

from slackwater.errors import DescriptionError

_NORMAL = NormalDist()
_HALVINGS = 8


@dataclass(frozen=True)
class SweepGeneration:
    """Tell when the watermark that sweeps a deadline is sent, as far as that is known.

    Build one with `periodic`, `bounded` or `unknown`. What it does not know (the gap to the record
    that carries the watermark, a period nobody told) becomes part of the lag, and is learned.
    """

    behind_ms: int = 0  # a watermark sent at t announces t - behind_ms
    period_ms: int = 1
    phase_ms: int = 0

    def __post_init__(self) -> None:
        if self.period_ms < 1:
            raise DescriptionError(f"period_ms={self.period_ms!r} cannot be: give 1 or more")

    @classmethod
    def periodic(cls, period_ms: int, lag_ms: int, phase_ms: int = 0) -> SweepGeneration:
        """Send the watermark `t - lag_ms` at every `t = phase_ms + k * period_ms`."""
        return cls(lag_ms, period_ms, phase_ms)

    @classmethod
    def bounded(cls, bound_ms: int) -> SweepGeneration:
        """Let the first record at or past `deadline + bound_ms` carry the watermark."""
        return cls(bound_ms)

    @classmethod
    def unknown(cls) -> SweepGeneration:
        """Count lags from the deadline itself."""
        return cls()

    def generated_ms(self, deadline_ms: int) -> int:
        """Tell the first instant whose watermark reaches the deadline."""
        reaches_ms = deadline_ms + self.behind_ms
        return reaches_ms + (self.phase_ms - reaches_ms) % self.period_ms


@dataclass(frozen=True)
class SweepForecast:
    """Say when a sweeping watermark is expected; times are absolute.

    It arrives from `low_ms` to `high_ms` with probability `confidence`, and before with `early`.
    `epochs` is how many past ones this rests on: few make the interval wide.
    """

    mean_ms: float
    deviation_ms: float
    low_ms: float
    high_ms: float
    confidence: float
    early: float
    epochs: int

    def __post_init__(self) -> None:
        require_confidence(self.confidence)
        if not 0.0 <= self.early <= 1.0 - self.confidence:
            raise DescriptionError(
                f"early={self.early!r} cannot be: give 0 to {1.0 - self.confidence!r}, what the "
                "confidence leaves"
            )
        if not self.low_ms <= self.high_ms or self.deviation_ms < 0:
            raise DescriptionError(
                f"low_ms={self.low_ms!r}, high_ms={self.high_ms!r}, "
                f"deviation_ms={self.deviation_ms!r} cannot be: give low_ms <= high_ms and a "
                "deviation of zero or more"
            )

    @property
    def late(self) -> float:
        """Return the probability of an arrival after `high_ms`."""
        return 1.0 - self.confidence - self.early

    @property
    def width_ms(self) -> float:
        """Return how long the interval is."""
        return self.high_ms - self.low_ms

    def holds(self, arrived_ms: float) -> bool:
        """Tell whether an arrival lies in the interval."""
        return self.low_ms <= arrived_ms <= self.high_ms


def require_confidence(confidence: float) -> None:
    """Refuse a confidence that is no share."""
    if not 0.0 < confidence < 1.0:
        raise DescriptionError(
            f"confidence={confidence!r} cannot be: give a share between 0 and 1, such as 0.95"
        )


def combined(forecasts: Iterable[SweepForecast | None]) -> SweepForecast | None:
    """Forecast the latest of several inputs' sweeping watermarks: it closes a joined window.

    None if an input is unknown: the window waits for all of them. The interval errs on the safe
    side: its misses before are at most, those behind about, what the confidence allows.

    >>> one = SweepForecast(100.0, 10.0, 80.4, 119.6, 0.95, 0.025, 40)
    >>> both = combined([one, one])
    >>> round(both.mean_ms, 1), round(both.low_ms, 1), round(both.high_ms, 1)
    (105.6, 80.4, 126.5)
    """
    known = list(forecasts)
    first = known[0] if known else None
    if first is None or len(known) == 1:
        return first
    inputs: list[SweepForecast] = []
    for forecast in known:
        if forecast is None:
            return None
        if forecast.confidence != first.confidence:
            raise DescriptionError(
                f"confidence={forecast.confidence!r} and {first.confidence!r} cannot be "
                "combined: give all inputs of a query the same"
            )
        inputs.append(forecast)
    mean_ms, variance_ms2 = reduce(
        _later, [(forecast.mean_ms, forecast.deviation_ms**2) for forecast in inputs]
    )
    last = max(inputs, key=lambda forecast: forecast.low_ms)
    return SweepForecast(
        mean_ms=mean_ms,
        deviation_ms=math.sqrt(variance_ms2),
        low_ms=last.low_ms,
        high_ms=_all_in_by(inputs, late=last.late),
        confidence=first.confidence,
        early=last.early,
        epochs=min(forecast.epochs for forecast in inputs),
    )


def _later(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    """Return mean and variance of the later of two normal times.

    C. E. Clark, "The greatest of a finite set of random variables", Operations Research 9, 1961.
    """
    (mean, variance), (other_mean, other_variance) = one, other
    spread = math.sqrt(variance + other_variance)
    if spread == 0.0:
        return max(one, other)
    apart = mean - other_mean  # small, where the times themselves have thirteen digits
    ahead = _NORMAL.cdf(apart / spread)
    density = _NORMAL.pdf(apart / spread) * spread
    gain = apart * ahead + density
    square = (apart**2 + variance) * ahead + other_variance * (1.0 - ahead) + apart * density
    return other_mean + gain, max(square - gain**2, 0.0)


def _all_in_by(inputs: Sequence[SweepForecast], late: float) -> float:
    """Return the time after which some input is still missing with probability `late` at most.

    Beyond its interval, an input's chance to be missing is taken to fall exponentially, by its
    deviation: just so for exponential delays, and slower than for shorter tails.
    """
    low_ms = max(forecast.high_ms for forecast in inputs)
    high_ms = max(
        forecast.high_ms
        + forecast.deviation_ms * math.log(max(len(inputs) * forecast.late / late, 1.0))
        for forecast in inputs
    )
    for _ in range(_HALVINGS):
        middle_ms = (low_ms + high_ms) / 2
        if sum(_missing(forecast, middle_ms) for forecast in inputs) > late:
            low_ms = middle_ms
        else:
            high_ms = middle_ms
    return high_ms


def _missing(forecast: SweepForecast, time_ms: float) -> float:
    """Return the chance that an input has not arrived by a time after its interval."""
    if forecast.deviation_ms == 0.0:
        return 0.0
    return forecast.late * math.exp((forecast.high_ms - time_ms) / forecast.deviation_ms)
