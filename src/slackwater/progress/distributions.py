"""How long records travel: delay distributions, drawn alike by the driver and by Spark SQL.

>>> delay_named("exp").mean_ms
240.0
>>> round(delay_named("exp").quantile(0.999))
1658
>>> UniformDelay(0, 500).sql("u")
'(0.0D + u * 500.0D)'
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from slackwater.errors import DescriptionError
from slackwater.progress.tables import AliasTable, Floats, QuantileTable, zipf_shares


class DelayDistribution(ABC):
    """Say how long records travel, in milliseconds, never less than nothing."""

    @property
    @abstractmethod
    def mean_ms(self) -> float:
        """Return the mean delay."""

    @abstractmethod
    def quantile(self, p: float) -> float:
        """Return the milliseconds that a share `p` (0 <= p < 1) of records stays within."""

    @abstractmethod
    def draw(self, u: Floats) -> Floats:
        """Turn uniform numbers in [0, 1) into delays in milliseconds."""

    @abstractmethod
    def sql(self, u: str) -> str:
        """Say `draw` in Spark SQL, over an expression that is a uniform double in [0, 1)."""

    @property
    def waited_for_ms(self) -> float:
        """Return how long a source's watermarks wait for records, unless it is said otherwise."""
        return self.quantile(0.999)


@dataclass(frozen=True)
class ConstantDelay(DelayDistribution):
    """Delay every record by the same time."""

    delay_ms: float

    def __post_init__(self) -> None:
        _require(self.delay_ms >= 0, "delay_ms", self.delay_ms, "zero or more")

    @property
    def mean_ms(self) -> float:
        return float(self.delay_ms)

    def quantile(self, p: float) -> float:
        _share(p)
        return float(self.delay_ms)

    def draw(self, u: Floats) -> Floats:
        return np.full(np.shape(u), float(self.delay_ms))

    def sql(self, u: str) -> str:
        return f"{float(self.delay_ms)!r}D"


@dataclass(frozen=True)
class UniformDelay(DelayDistribution):
    """Spread delays evenly over an interval."""

    low_ms: float
    high_ms: float

    def __post_init__(self) -> None:
        _require(self.low_ms >= 0, "low_ms", self.low_ms, "zero or more")
        _require(self.high_ms > self.low_ms, "high_ms", self.high_ms, "more than low_ms")

    @property
    def mean_ms(self) -> float:
        return (self.low_ms + self.high_ms) / 2.0

    def quantile(self, p: float) -> float:
        return self.low_ms + _share(p) * (self.high_ms - self.low_ms)

    def draw(self, u: Floats) -> Floats:
        return float(self.low_ms) + u * float(self.high_ms - self.low_ms)

    def sql(self, u: str) -> str:
        return f"({float(self.low_ms)!r}D + {u} * {float(self.high_ms - self.low_ms)!r}D)"


@dataclass(frozen=True)
class ZipfDelay(DelayDistribution):
    """Delay by 1 to `max_ms` whole milliseconds, each with a share of `1 / ms ** exponent`."""

    exponent: float
    max_ms: int

    def __post_init__(self) -> None:
        _require(self.exponent >= 0, "exponent", self.exponent, "zero or more")
        _require(1 <= self.max_ms <= 10_000, "max_ms", self.max_ms, "1 to 10000")

    @property
    def mean_ms(self) -> float:
        shares = zipf_shares(self.max_ms, self.exponent)
        return float(shares @ np.arange(1, self.max_ms + 1))

    def quantile(self, p: float) -> float:
        within = np.cumsum(zipf_shares(self.max_ms, self.exponent))
        return float(min(int(np.searchsorted(within, _share(p))) + 1, self.max_ms))

    @property
    def table(self) -> AliasTable:
        """Return the table that is drawn from: outcome 0 is a delay of one millisecond."""
        return _alias_table(self.max_ms, self.exponent)

    def draw(self, u: Floats) -> Floats:
        return (self.table.draw(u) + 1).astype(np.float64)

    def sql(self, u: str) -> str:
        return f"({self.table.sql(u)} + 1.0D)"


class TabulatedDelay(DelayDistribution):
    """Draw from a table of quantiles."""

    @abstractmethod
    def _quantiles(self, p: Floats) -> Floats:
        """Return the quantiles at all `p`, where 0 < p < 1."""

    def quantile(self, p: float) -> float:
        return float(self._quantiles(np.array([p]))[0]) if _share(p) > 0 else 0.0

    @property
    def table(self) -> QuantileTable:
        """Return the table that is drawn from."""
        return _quantile_table(self)

    def draw(self, u: Floats) -> Floats:
        return self.table.draw(u)

    def sql(self, u: str) -> str:
        return self.table.sql(u)


@dataclass(frozen=True)
class ExponentialDelay(TabulatedDelay):
    """Draw delays from an exponential distribution."""

    scale_ms: float

    def __post_init__(self) -> None:
        _require(self.scale_ms > 0, "scale_ms", self.scale_ms, "more than zero")

    @property
    def mean_ms(self) -> float:
        return float(self.scale_ms)

    def _quantiles(self, p: Floats) -> Floats:
        quantiles: Floats = -self.scale_ms * np.log1p(-p)
        return quantiles


@dataclass(frozen=True)
class GammaDelay(TabulatedDelay):
    """Draw delays from a Gamma distribution."""

    shape: float
    scale_ms: float

    def __post_init__(self) -> None:
        _require(1 <= self.shape <= 10_000, "shape", self.shape, "1 to 10000")
        _require(self.scale_ms > 0, "scale_ms", self.scale_ms, "more than zero")

    @property
    def mean_ms(self) -> float:
        return float(self.shape * self.scale_ms)

    def _quantiles(self, p: Floats) -> Floats:
        # The density summed up on a fine grid: right to about 1e-7 of the probability.
        top = self.shape + 12 * math.sqrt(self.shape) + 40
        x = np.linspace(0.0, top, 200_001)
        density = np.full(len(x), 1.0 if self.shape == 1 else 0.0)
        density[1:] = np.exp((self.shape - 1) * np.log(x[1:]) - x[1:] - math.lgamma(self.shape))
        within = np.concatenate(([0.0], np.cumsum((density[1:] + density[:-1]) / 2)))
        quantiles: Floats = np.interp(p, within / within[-1], x) * self.scale_ms
        return quantiles


@dataclass(frozen=True)
class LogNormalDelay(TabulatedDelay):
    """Draw delays whose logarithms are normally distributed."""

    median_ms: float
    sigma: float

    def __post_init__(self) -> None:
        _require(self.median_ms > 0, "median_ms", self.median_ms, "more than zero")
        _require(0 < self.sigma <= 3, "sigma", self.sigma, "more than zero, at most 3")

    @property
    def mean_ms(self) -> float:
        return self.median_ms * math.exp(self.sigma**2 / 2)

    def _quantiles(self, p: Floats) -> Floats:
        deviations = np.array([NormalDist().inv_cdf(share) for share in p.tolist()])
        quantiles: Floats = self.median_ms * np.exp(self.sigma * deviations)
        return quantiles


@dataclass(frozen=True)
class NormalDelay(TabulatedDelay):
    """Draw delays from a normal distribution; what would be negative is no delay."""

    centre_ms: float
    deviation_ms: float

    def __post_init__(self) -> None:
        _require(self.centre_ms >= 0, "centre_ms", self.centre_ms, "zero or more")
        _require(self.deviation_ms > 0, "deviation_ms", self.deviation_ms, "more than zero")

    @property
    def mean_ms(self) -> float:
        normal, from_zero = NormalDist(), self.centre_ms / self.deviation_ms
        return self.centre_ms * normal.cdf(from_zero) + self.deviation_ms * normal.pdf(from_zero)

    def _quantiles(self, p: Floats) -> Floats:
        deviations = np.array([NormalDist().inv_cdf(share) for share in p.tolist()])
        return np.maximum(self.centre_ms + self.deviation_ms * deviations, 0.0)


@dataclass(frozen=True)
class BurstDelay(TabulatedDelay):
    """Draw delays about several moments, each as often as the others: bursts of late records."""

    centres_ms: tuple[float, ...]
    deviation_ms: float

    def __post_init__(self) -> None:
        if not self.centres_ms:
            raise DescriptionError("centres_ms=() cannot be: give one or more")
        for centre_ms in self.centres_ms:
            _require(centre_ms >= 0, "centres_ms", centre_ms, "zero or more")
        _require(self.deviation_ms > 0, "deviation_ms", self.deviation_ms, "more than zero")

    @property
    def mean_ms(self) -> float:
        bursts = [NormalDelay(centre_ms, self.deviation_ms) for centre_ms in self.centres_ms]
        return sum(burst.mean_ms for burst in bursts) / len(bursts)

    def _quantiles(self, p: Floats) -> Floats:
        # The distribution function on a fine grid, read the other way round.
        reach_ms = 8.0 * self.deviation_ms
        low_ms = max(min(self.centres_ms) - reach_ms, 0.0)
        x = np.linspace(low_ms, max(self.centres_ms) + reach_ms, 100_001)
        bursts = [NormalDist(centre_ms, self.deviation_ms) for centre_ms in self.centres_ms]
        within = np.array([sum(burst.cdf(each) for burst in bursts) for each in x.tolist()])
        quantiles: Floats = np.interp(p * len(bursts), within, x)
        return quantiles


@dataclass(frozen=True)
class LateDelay(DelayDistribution):
    """Delay a share of the records by a distribution of its own, and the others not at all.

    Watermarks do not wait for the late ones.
    """

    share: float
    lateness: DelayDistribution

    def __post_init__(self) -> None:
        _require(0 < self.share <= 1, "share", self.share, "more than zero, at most 1")

    @property
    def mean_ms(self) -> float:
        return self.share * self.lateness.mean_ms

    @property
    def waited_for_ms(self) -> float:
        return 0.0

    def quantile(self, p: float) -> float:
        prompt = 1.0 - self.share
        return 0.0 if _share(p) < prompt else self.lateness.quantile((p - prompt) / self.share)

    def draw(self, u: Floats) -> Floats:
        late = np.maximum((u - (1.0 - self.share)) * (1.0 / self.share), 0.0)
        return np.where(u < 1.0 - self.share, 0.0, self.lateness.draw(late))

    def sql(self, u: str) -> str:
        prompt, times = 1.0 - self.share, 1.0 / self.share
        drawn = self.lateness.sql(f"(({u} - {prompt!r}D) * {times!r}D)")
        return f"if({u} < {prompt!r}D, 0.0D, {drawn})"


@lru_cache(maxsize=64)
def _quantile_table(delay: TabulatedDelay) -> QuantileTable:
    return QuantileTable.of(delay._quantiles)


@lru_cache(maxsize=64)
def _alias_table(size: int, exponent: float) -> AliasTable:
    return AliasTable.of(zipf_shares(size, exponent))


def _share(p: float) -> float:
    if not 0 <= p < 1:
        raise DescriptionError(f"p={p!r} is no share: give 0 <= p < 1")
    return p


def _require(holds: bool, field: str, value: float, wanted: str) -> None:
    if not holds or not math.isfinite(value):
        raise DescriptionError(f"{field}={value!r} cannot be: give {wanted}")


NAMED_DELAYS: dict[str, DelayDistribution] = {
    "none": ConstantDelay(0.0),
    "uniform": UniformDelay(0.0, 500.0),
    "zipf": ZipfDelay(0.99, 1_000),
    "exp": ExponentialDelay(240.0),
    "gamma": GammaDelay(60.0, 4.0),
    "lognormal": LogNormalDelay(200.0, 1.0),
}


def delay_named(name: str) -> DelayDistribution:
    """Return the distribution that benchmarks and examples know under a name."""
    if name not in NAMED_DELAYS:
        raise DescriptionError(
            f"delay={name!r} is unknown: use one of {', '.join(NAMED_DELAYS)}, or give a "
            "distribution such as ConstantDelay(50)"
        )
    return NAMED_DELAYS[name]
