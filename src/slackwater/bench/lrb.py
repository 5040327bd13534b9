"""The Linear Road Benchmark's tolls as an app: three streams of position reports, set together.

A. Arasu et al., "Linear Road: A Stream Data Management Benchmark", VLDB 2004. From position reports
come, for each segment of an expressway, the mean speed, the number of cars and the accidents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import slackwater as sw
from slackwater.app.windows import Windows
from slackwater.bench.workload import Feed, Phase, Workload, spark_window
from slackwater.progress.grid import WindowGrid
from slackwater.spark.sinks.base import Sink
from slackwater.spark.sources.generator import Generator

WINDOW: Final = "5 seconds"
SLIDE: Final = "3 seconds"
SEGMENT: Final = ("expressway", "direction", "segment")
INPUTS: Final = ("speeds", "cars", "stops")

# Every report passes each of these, at next to no cost; yet each makes a plan of its own.
_VARIATIONS: Final = ("vehicle <> -{v}", "speed <> 1000 + {v}", "position <> -{v}")


def segments_app(sink: Sink, *, phase: Phase = "spread", variant: int = 0) -> sw.App:
    """Take the mean speed, the cars and the stopped cars of each segment."""
    app = sw.App("lrb" if variant == 0 else f"lrb-{variant}")
    speeds, cars, stops = (app.source(name) for name in INPUTS)
    (
        speeds.transform(lambda reports: varied(measured_speeds(reports), variant))
        .union(cars.transform(counted_cars))
        .union(stops.transform(stopped_cars))
        .window(windows(phase), by=SEGMENT)
        .aggregate(mph=sw.mean("mph"), cars=sw.count("counted"), stopped=sw.count("stopped"))
        .to(sink)
    )
    return app


def measured_speeds(reports: DataFrame) -> DataFrame:
    """Keep the speed of cars that are neither entering nor leaving."""
    return reports.where("lane BETWEEN 1 AND 3").selectExpr(
        "*", "speed AS mph", "CAST(NULL AS BIGINT) AS counted", "CAST(NULL AS BIGINT) AS stopped"
    )


def counted_cars(reports: DataFrame) -> DataFrame:
    """Count each car; one reports at most once in a window."""
    return reports.selectExpr(
        "*", "CAST(NULL AS INT) AS mph", "vehicle AS counted", "CAST(NULL AS BIGINT) AS stopped"
    )


def stopped_cars(reports: DataFrame) -> DataFrame:
    """Keep the cars that stand."""
    return reports.where("speed = 0").selectExpr(
        "*", "CAST(NULL AS INT) AS mph", "CAST(NULL AS BIGINT) AS counted", "vehicle AS stopped"
    )


def varied(reports: DataFrame, variant: int) -> DataFrame:
    """Let variants differ in one cheap condition."""
    if variant == 0:
        return reports
    return reports.where(_VARIATIONS[variant % len(_VARIATIONS)].format(v=variant))


def windows(phase: Phase) -> Windows:
    """Place the windows: "aligned" on full multiples, or "spread" over time, query by query."""
    offset = {"offset": "spread"} if phase == "spread" else {}
    return sw.sliding(WINDOW, SLIDE, **offset)


@dataclass(frozen=True)
class Lrb(Workload):
    """Set three streams of position reports together, each a third of the rate."""

    name: ClassVar[str] = "lrb"

    def stages(self, phase: Phase) -> tuple[Windows, ...]:
        """Return windows of five seconds, one every three."""
        return (windows(phase),)

    def sources(self, feed: Feed) -> dict[str, Generator]:
        """Generate the reports of the same cars three times, each with delays of its own."""
        return {
            name: sw.lrb(
                rate=feed.rate / len(INPUTS),
                delay=feed.delay,
                seed=feed.salt(place),
                start_ms=feed.start_ms,
            )
            for place, name in enumerate(INPUTS)
        }

    def app(self, spark: SparkSession, sink: Sink, *, phase: Phase, variant: int) -> sw.App:
        """Write the query."""
        return segments_app(sink, phase=phase, variant=variant)

    def streaming_frame(
        self,
        inputs: Mapping[str, DataFrame],
        lag_ms: int,
        *,
        grids: Sequence[WindowGrid],
        variant: int,
    ) -> DataFrame:
        """Write the query for Structured Streaming."""
        speeds, cars, stops = (
            inputs[name].withWatermark("event_time", f"{lag_ms} milliseconds") for name in INPUTS
        )
        reports = (
            varied(measured_speeds(speeds), variant)
            .unionByName(counted_cars(cars))
            .unionByName(stopped_cars(stops))
        )
        return reports.groupBy(spark_window(grids[0]), *SEGMENT).agg(
            F.mean("mph").alias("mph"),
            F.count("counted").alias("cars"),
            F.count("stopped").alias("stopped"),
        )
