"""The Linear Road Benchmark's tolls as an app: three streams joined, then windowed once more.

A. Arasu et al., "Linear Road: A Stream Data Management Benchmark", VLDB 2004. Cars report where
they are and how fast. For each segment of an expressway, over five seconds, every three, come

- from one stream of reports the mean speed,
- from a second the number of cars,
- from a third the cars that stand,

which are joined and give the segment's toll. A last window, a third as long as the three seconds
from one result to the next, adds the tolls up for each direction of each expressway.

The benchmark's rule is kept: a car pays 2 * (cars - 50)**2 where more than 50 cars go at less than
40 mph on average and there is no accident. What is scaled down, to have results within seconds:

- It looks at one minute for cars and five for speeds, this at five seconds, in which every sixth
  car reports (each does so every 30 s). So each report counts for six cars. (`lrb_minute` looks at
  a minute for all, in which each car reports twice.)
- It calls a car stopped after four reports from one place; here, one report of speed 0 is enough,
  and two stopped cars in a segment are an accident.
- An accident closes its own segment to tolls, not the four before it as well.

Written to be read as an example of `join`, `derive` and windows over results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import slackwater as sw
from slackwater.app.windows import Windows
from slackwater.lateness.cleanup import Cover
from slackwater.progress.grid import WindowGrid
from slackwater.spark.sinks.base import Sink
from slackwater.spark.sources.generator import Generator
from slackwater_lab.workloads.late_wishes import STALENESS, kept_for
from slackwater_lab.workloads.lrb_reports import lrb
from slackwater_lab.workloads.workload import Feed, Phase, Workload, spark_window

SEGMENT: Final = ("expressway", "direction", "segment")
INPUTS: Final = ("speeds", "cars", "stops")
REPORT_MS: Final = 30_000  # how often a car reports

# Every report passes each of these, at next to no cost; yet each makes a plan of its own.
_VARIATIONS: Final = ("vehicle <> -{v}", "speed <> 1000 + {v}", "position <> -{v}")


@dataclass(frozen=True)
class Scale:
    """Say over how much time tolls are found, and how often."""

    size_ms: int
    slide_ms: int

    @property
    def cars_per_report(self) -> float:
        """Return for how many cars a report counts, as each reports so often in a window."""
        return REPORT_MS / self.size_ms

    def windows(self, phase: Phase) -> tuple[Windows, Windows]:
        """Place both windows: "aligned" on full multiples, or "spread" over time, by query.

        Of the last windows only those are described that results can fall into: each ends with one
        of the first ones, as a result is an event of its window's last millisecond.
        """
        spread, last_ms = phase == "spread", self.slide_ms // 3
        offset_ms = self.size_ms % self.slide_ms - last_ms
        return (
            Windows(self.size_ms, self.slide_ms, spread=spread),
            Windows(last_ms, self.slide_ms, offset_ms=offset_ms, spread=spread),
        )


SECONDS: Final = Scale(5_000, 3_000)
MINUTE: Final = Scale(60_000, 60_000)


def tolls_app(
    sink: Sink,
    *,
    phase: Phase = "spread",
    variant: int = 0,
    scale: Scale = SECONDS,
    lateness: str | Cover = "0 s",
    staleness: float | None = None,
) -> sw.App:
    """Find each segment's toll from its speeds, cars and accidents; add them up by direction."""
    app = sw.App("lrb" if variant == 0 else f"lrb-{variant}")
    first, last = scale.windows(phase)
    speeds = (
        app.source("speeds")
        .transform(lambda reports: varied(travelling(reports), variant))
        .window(first, by=SEGMENT)
        .aggregate(mph=sw.mean("speed"))
    )
    cars = app.source("cars").window(first, by=SEGMENT).aggregate(reports=sw.count())
    stops = (
        app.source("stops")
        .transform(standing)
        .window(first, by=SEGMENT)
        .aggregate(stopped=sw.count())
    )
    (
        speeds.join(cars, stops, on=SEGMENT, how="left")
        .derive(toll=partial(toll, cars_per_report=scale.cars_per_report))
        .window(last, by=["expressway", "direction"])
        .aggregate(
            segments=sw.count(),
            reports=sw.sum("reports"),
            slowest=sw.min("mph"),
            tolls=sw.sum("toll"),
        )
        .to(sink, lateness=lateness, staleness=staleness)
    )
    return app


def travelling(reports: DataFrame) -> DataFrame:
    """Leave out cars that are just entering or leaving."""
    return reports.where("lane BETWEEN 1 AND 3")


def standing(reports: DataFrame) -> DataFrame:
    """Keep the cars that do not move."""
    return reports.where("speed = 0")


def toll(segments: pa.Table, cars_per_report: float) -> pa.Array:
    """Work out what a car pays in each segment; a side of the join that has no rows is null."""
    cars = pc.multiply(pc.fill_null(segments["reports"], 0), cars_per_report)
    accident = pc.greater_equal(pc.fill_null(segments["stopped"], 0), 2)
    crowded = pc.and_(pc.less(segments["mph"], 40), pc.greater(cars, 50))
    beyond = pc.subtract(cars, 50)
    due = pc.and_(crowded, pc.invert(accident))
    return pc.if_else(due, pc.multiply(pc.multiply(beyond, beyond), 2), 0)


def varied(reports: DataFrame, variant: int) -> DataFrame:
    """Let variants differ in one cheap condition."""
    if variant == 0:
        return reports
    return reports.where(_VARIATIONS[variant % len(_VARIATIONS)].format(v=variant))


@dataclass(frozen=True)
class Lrb(Workload):
    """Join three streams of position reports, each a third of the rate, and find the tolls."""

    name: ClassVar[str] = "lrb"
    scale: ClassVar[Scale] = SECONDS

    def stages(self, phase: Phase) -> tuple[Windows, ...]:
        """Return windows of five seconds every three, and those of one over their results."""
        return self.scale.windows(phase)

    def sources(self, feed: Feed) -> dict[str, Generator]:
        """Generate the reports of the same cars three times, each with delays of its own."""
        return {
            name: lrb(
                rate=feed.rate / len(INPUTS),
                delay=feed.delay,
                seed=feed.salt(place),
                start_ms=feed.start_ms,
            )
            for place, name in enumerate(INPUTS)
        }

    def app(self, spark: SparkSession, sink: Sink, *, phase: Phase, variant: int) -> sw.App:
        """Write the query."""
        return tolls_app(sink, phase=phase, variant=variant)

    def streaming_frame(
        self,
        inputs: Mapping[str, DataFrame],
        lag_ms: int,
        *,
        grids: Sequence[WindowGrid],
        variant: int,
    ) -> DataFrame:
        """Write the query for Structured Streaming, with the join as one grouping of all reports.

        A join of aggregated streams would need state of its own there, and another batch.
        """
        speeds, cars, stops = (
            inputs[name].withWatermark("event_time", f"{lag_ms} milliseconds") for name in INPUTS
        )
        reports = (
            _tagged(varied(travelling(speeds), variant), 0)
            .union(_tagged(cars, 1))
            .union(_tagged(standing(stops), 2))
        )
        first, last = grids
        segments = reports.groupBy(spark_window(first), *SEGMENT).agg(
            F.expr("avg(speed) FILTER (WHERE leg = 0)").alias("mph"),
            F.expr("count_if(leg = 1)").alias("reports"),
            F.expr("count_if(leg = 2)").alias("stopped"),
        )
        cars_sql = f"reports * {self.scale.cars_per_report!r}D"
        tolled = segments.where("mph IS NOT NULL").selectExpr(
            "*",
            f"if(mph < 40 AND {cars_sql} > 50 AND stopped < 2, "
            f"2 * ({cars_sql} - 50) * ({cars_sql} - 50), 0) AS toll",
        )
        # Spark knows no windows with gaps between; those without results stay empty.
        tumbling = WindowGrid(last.size_ms, last.size_ms, last.offset_ms % last.size_ms)
        return tolled.groupBy(
            spark_window(tumbling, F.window_time("window")), "expressway", "direction"
        ).agg(
            F.count("*").alias("segments"),
            F.sum("reports").alias("reports"),
            F.min("mph").alias("slowest"),
            F.sum("toll").alias("tolls"),
        )


class LrbMinute(Lrb):
    """Find tolls minute by minute, with reports that may come many minutes late."""

    name: ClassVar[str] = "lrb_minute"
    scale: ClassVar[Scale] = MINUTE

    def app(self, spark: SparkSession, sink: Sink, *, phase: Phase, variant: int) -> sw.App:
        """Write the query, with wishes about late reports."""
        return tolls_app(
            sink,
            phase=phase,
            variant=variant,
            scale=self.scale,
            lateness=kept_for(self.scale.size_ms),
            staleness=STALENESS,
        )


def _tagged(reports: DataFrame, leg: int) -> DataFrame:
    return reports.selectExpr("event_time", *SEGMENT, "speed", f"{leg} AS leg")
