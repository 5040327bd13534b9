"""A source that makes its records by arithmetic: any rate, delay and schema, always the same."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import SparkSession

from slackwater.app.checks import is_system_name
from slackwater.app.durations import Duration, to_ms
from slackwater.app.watermarks import WatermarkStrategy, from_source
from slackwater.errors import DescriptionError
from slackwater.progress.distributions import DelayDistribution, delay_named
from slackwater.progress.times import END_OF_TIME_MS
from slackwater.spark.sources.base import SourceDescription
from slackwater.spark.sources.generated_rows import RECORD_FIELDS, RowShape, shape_schema
from slackwater.spark.sources.generator_reader import GeneratorReader

Gap = Literal["constant", "gamma"]

DEFAULT_COLUMNS: Mapping[str, str] = {
    "key": "key",
    "value": "shiftrightunsigned(xxhash64(h), 11) * 1.1102230246251565E-16D",
}
_FROM_SOURCE = from_source()


@dataclass(frozen=True)
class Generator(SourceDescription):
    """Describe a generated stream; `generator()` writes one with less ado."""

    rate: float
    delay: DelayDistribution
    gap: Gap
    partitions: int
    seed: int
    keys: int
    skew: float
    columns: tuple[tuple[str, str], ...]
    event_time: str
    start_ms: int | None
    limit: int | None
    watermark: WatermarkStrategy
    watermark_period_ms: int
    watermark_lag_ms: int
    max_ahead_ms: int
    helpers: tuple[tuple[str, str], ...] = ()
    parameters: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        for field in ("rate", "partitions", "keys", "skew", "seed"):
            value = getattr(self, field)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            _require(number, field, value, "a number")
        _require(0 < self.rate <= 1e9, "rate", self.rate, "records a second, more than zero")
        _require(self.gap in ("constant", "gamma"), "gap", self.gap, "'constant' or 'gamma'")
        _require(self.partitions >= 1, "partitions", self.partitions, "one or more")
        _require(1 <= self.keys < 2**31, "keys", self.keys, "one or more, below 2**31")
        _require(0 <= self.skew <= 10, "skew", self.skew, "a Zipf exponent from 0 to 10")
        _require(
            self.skew == 0 or self.keys <= 10_000, "keys", self.keys, "at most 10000 with a skew"
        )
        _require(self.limit is None or self.limit >= 0, "limit", self.limit, "zero or more")
        _require(
            self.start_ms is None or 0 <= self.start_ms < END_OF_TIME_MS,
            "start_ms",
            self.start_ms,
            "milliseconds since 1970",
        )
        names = [name.lower() for name, _ in self.columns] + [self.event_time.lower()]
        for name in names:
            _require(names.count(name) == 1, "columns", name, "each name once")
            _require(not is_system_name(name), "columns", name, "names without _sw_")
        for name, _ in (*self.parameters, *self.helpers):
            _require(not is_system_name(name), "parameters or helpers", name, "names without _sw_")
        taken = {*RECORD_FIELDS}
        for name, value in self.parameters:
            _require(name not in taken, "parameters", name, "a name that no record has already")
            _require(math.isfinite(value), f"parameters[{name!r}]", value, "a finite number")
        taken |= {name for name, _ in self.parameters}
        for name, _ in self.helpers:
            _require(name not in taken, "helpers", name, "a name that no record has already")

    def open(self, spark: SparkSession) -> GeneratorReader:
        """Make the reader; a stream without `start_ms` starts now."""
        start_ms = int(time.time() * 1_000) if self.start_ms is None else self.start_ms
        return GeneratorReader(self, shape_schema(spark, self.shape), start_ms)

    @property
    def shape(self) -> RowShape:
        """Return what the rows of this generator have in common."""
        return RowShape(
            delay=self.delay,
            irregular=self.gap == "gamma",
            columns=self.columns,
            event_time=self.event_time,
            keys=self.keys,
            skew=float(self.skew),
            helpers=self.helpers,
            parameters=tuple(name for name, _ in self.parameters),
        )


def generator(
    *,
    rate: float = 1_000,
    delay: str | DelayDistribution = "none",
    gap: Gap = "constant",
    partitions: int = 1,
    seed: int = 0,
    keys: int = 100,
    skew: float = 0.0,
    columns: Mapping[str, str] | None = None,
    helpers: Mapping[str, str] | None = None,
    parameters: Mapping[str, float] | None = None,
    event_time: str = "event_time",
    start_ms: int | None = None,
    seconds: float | None = None,
    limit: int | None = None,
    watermark: WatermarkStrategy = _FROM_SOURCE,
    watermark_period: Duration = "100 ms",
    watermark_lag: Duration | None = None,
    max_ahead: Duration = "1 minute",
) -> Generator:
    """Generate `rate` records a second, in order of arrival, each delayed by `delay`.

    `columns` maps names to Spark SQL expressions over `n` (the record's number within its
    partition), `h` (64 random bits, the upper half of which decide the delay) and `key` (0 to
    `keys` - 1, from the lower half of `h`; by Zipf's law with exponent `skew`). The types are those
    of the expressions. `xxhash64(h)` gives further random bits. Event time is added as a column.
    `helpers` are named expressions that the columns use, each computed once, after those before it.
    `parameters` are named numbers (doubles) that both use: streams that differ in nothing but their
    numbers can share steps, for they travel with what is to be read and are not part of the plan.

    `gap="gamma"` spaces records irregularly, by Gamma(2). `seconds` or `limit` end the stream.
    Watermarks are sent every `watermark_period`, `watermark_lag` behind (by default the delay
    that 99.9 % of records stay within; for `LateDelay`, none), and travel as long as records do.
    """
    if seconds is not None:
        _require(limit is None, "limit", limit, "either seconds or limit")
        _require(seconds >= 0, "seconds", seconds, "zero or more")
        limit = round(seconds * rate)
    distribution = delay_named(delay) if isinstance(delay, str) else delay
    _require(
        isinstance(distribution, DelayDistribution), "delay", delay, "a name or a distribution"
    )
    return Generator(
        rate=rate,
        delay=distribution,
        gap=gap,
        partitions=partitions,
        seed=seed,
        keys=keys,
        skew=skew,
        columns=tuple((DEFAULT_COLUMNS if columns is None else columns).items()),
        event_time=event_time,
        start_ms=start_ms,
        limit=limit,
        watermark=watermark,
        watermark_period_ms=to_ms(watermark_period, "watermark_period"),
        watermark_lag_ms=math.ceil(distribution.waited_for_ms)
        if watermark_lag is None
        else to_ms(watermark_lag, "watermark_lag", allow_zero=True),
        max_ahead_ms=to_ms(max_ahead, "max_ahead", allow_zero=True),
        helpers=tuple((helpers or {}).items()),
        parameters=tuple((name, float(value)) for name, value in (parameters or {}).items()),
    )


def _require(holds: bool, field: str, value: object, wanted: str) -> None:
    if not holds:
        raise DescriptionError(f"{field}={value!r} cannot be: give {wanted}")
