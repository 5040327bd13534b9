"""New York taxi trips as an app: a long stateless pipeline, then means over a sliding window.

A trip passes a dozen small transforms (conversions, ratios, and filters that drop what cannot be)
before the mean distance and fare of each borough are taken, over two seconds, every second. Written
to be read as an example of `transform`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import ClassVar, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import slackwater as sw
from slackwater.app.windows import Windows
from slackwater.progress.grid import WindowGrid
from slackwater.spark.sinks.base import Sink
from slackwater.spark.sources.generator import Generator
from slackwater_lab.workloads.nyt_trips import nyt
from slackwater_lab.workloads.tlc_trips import Trips, sample_trips
from slackwater_lab.workloads.workload import Feed, Phase, Workload, spark_window

WINDOW: Final = "2 seconds"
SLIDE: Final = "1 second"

# Nearly every trip passes each of these, at next to no cost; yet each makes a plan of its own.
_VARIATIONS: Final = ("trip_seconds <> -{v}", "fare_amount <> -{v}", "trip_distance <> -{v}")


def paid_trips(trips: DataFrame) -> DataFrame:
    """Leave out trips that were not charged, and those without passengers."""
    return trips.where("payment_type <> 3 AND passenger_count > 0")


def with_kilometres(trips: DataFrame) -> DataFrame:
    """Convert miles."""
    return trips.withColumn("kilometres", F.expr("trip_distance * 1.609344D"))


def plausible_distances(trips: DataFrame) -> DataFrame:
    """Leave out trips round the block, and to other states."""
    return trips.where("kilometres BETWEEN 0.1D AND 160D")


def with_hours(trips: DataFrame) -> DataFrame:
    """Convert seconds."""
    return trips.withColumn("hours", F.expr(f"trip_seconds * {1 / 3_600!r}D"))


def plausible_durations(trips: DataFrame) -> DataFrame:
    """Leave out meters that were never, or never not, running."""
    return trips.where("hours BETWEEN 0.005D AND 6D")


def with_speed(trips: DataFrame) -> DataFrame:
    """Work out the mean speed."""
    return trips.withColumn("kilometres_per_hour", F.expr("kilometres / hours"))


def plausible_speeds(trips: DataFrame) -> DataFrame:
    """Leave out what is slower than walking backwards, or faster than the highway."""
    return trips.where("kilometres_per_hour BETWEEN 0.5D AND 130D")


def plausible_fares(trips: DataFrame) -> DataFrame:
    """Leave out refunds and typing errors."""
    return trips.where("fare_amount BETWEEN 1D AND 500D")


def with_fare_per_kilometre(trips: DataFrame) -> DataFrame:
    """Work out what a kilometre cost."""
    return trips.withColumn("fare_per_kilometre", F.expr("fare_amount / kilometres"))


def with_tip_share(trips: DataFrame) -> DataFrame:
    """Set the tip against the fare."""
    return trips.withColumn("tip_share", F.expr("tip_amount / fare_amount"))


def plausible_prices(trips: DataFrame) -> DataFrame:
    """Leave out the gold-plated, and tips beyond the fare."""
    return trips.where("fare_per_kilometre <= 100D AND tip_share <= 1D")


def with_fare_per_passenger(trips: DataFrame) -> DataFrame:
    """Share the fare among those who ride."""
    return trips.withColumn("fare_per_passenger", F.expr("fare_amount / passenger_count"))


PIPELINE: Final = (
    paid_trips,
    with_kilometres,
    plausible_distances,
    with_hours,
    plausible_durations,
    with_speed,
    plausible_speeds,
    plausible_fares,
    with_fare_per_kilometre,
    with_tip_share,
    plausible_prices,
    with_fare_per_passenger,
)


def boroughs_app(sink: Sink, *, phase: Phase = "spread", variant: int = 0) -> sw.App:
    """Take the mean distance and fare of the trips from each borough."""
    app = sw.App("nyt" if variant == 0 else f"nyt-{variant}")
    trips = app.source("trips").transform(lambda frame: varied(frame, variant))
    for function in PIPELINE:
        trips = trips.transform(function)
    (
        trips.window(windows(phase), by=["borough"])
        .aggregate(
            trips=sw.count(),
            kilometres=sw.mean("kilometres"),
            fare=sw.mean("fare_amount"),
            fare_per_passenger=sw.mean("fare_per_passenger"),
        )
        .to(sink)
    )
    return app


def varied(trips: DataFrame, variant: int) -> DataFrame:
    """Let variants differ in one cheap condition."""
    if variant == 0:
        return trips
    return trips.where(_VARIATIONS[variant % len(_VARIATIONS)].format(v=variant))


def windows(phase: Phase) -> Windows:
    """Place the windows: "aligned" on full multiples, or "spread" over time, query by query."""
    offset = {"offset": "spread"} if phase == "spread" else {}
    return sw.sliding(WINDOW, SLIDE, **offset)


@dataclass(frozen=True)
class Nyt(Workload):
    """Take means per borough in sliding windows; `data` is a directory of real trips."""

    name: ClassVar[str] = "nyt"
    data: str | None = None

    @cached_property
    def _trips(self) -> Trips | None:
        return None if self.data is None else sample_trips(self.data)

    def stages(self, phase: Phase) -> tuple[Windows, ...]:
        """Return windows of two seconds, one every second."""
        return (windows(phase),)

    def sources(self, feed: Feed) -> dict[str, Generator]:
        """Generate trips."""
        source = nyt(
            rate=feed.rate,
            data=self._trips,
            delay=feed.delay,
            seed=feed.salt(),
            start_ms=feed.start_ms,
        )
        return {"trips": source}

    def app(self, spark: SparkSession, sink: Sink, *, phase: Phase, variant: int) -> sw.App:
        """Write the query."""
        return boroughs_app(sink, phase=phase, variant=variant)

    def streaming_frame(
        self,
        inputs: Mapping[str, DataFrame],
        lag_ms: int,
        *,
        grids: Sequence[WindowGrid],
        variant: int,
    ) -> DataFrame:
        """Write the query for Structured Streaming."""
        start = varied(inputs["trips"], variant)
        trips = reduce(lambda frame, function: function(frame), PIPELINE, start)
        return (
            trips.withWatermark("event_time", f"{lag_ms} milliseconds")
            .groupBy(spark_window(grids[0]), "borough")
            .agg(
                F.count("*").alias("trips"),
                F.mean("kilometres").alias("kilometres"),
                F.mean("fare_amount").alias("fare"),
                F.mean("fare_per_passenger").alias("fare_per_passenger"),
            )
        )
