"""Averages over all rows of a window, held until its late events are in.

The workload *average* of S. Esteves et al., "Aion: Better Late than Never in Event-Time Streams":
sensors report values with a payload of some KB; windows of 20 s keep the rows themselves, and the
function over them is any DataFrame -> DataFrame function. Written to be read as an example of
`apply` with wishes about late events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import slackwater as sw
from slackwater.app.windows import Windows
from slackwater.progress.grid import WindowGrid
from slackwater.spark.sinks.base import Sink
from slackwater.spark.sources.generator import Generator
from slackwater_lab.workloads.late_wishes import STALENESS, kept_for
from slackwater_lab.workloads.payloads import payload_sql
from slackwater_lab.workloads.workload import (
    Feed,
    Phase,
    Workload,
    spark_window,
    varied,
    windows_of,
)

WINDOW_MS: Final = 20_000
SENSORS: Final = 100


def average_app(sink: Sink, *, phase: Phase = "spread", variant: int = 0) -> sw.App:
    """Average what each sensor reported; late reports amend the window that they belong to."""
    app = sw.App("average" if variant == 0 else f"average-{variant}")
    (
        app.source("reports")
        .transform(lambda reports: varied(reports, "sensor", variant))
        .window(windows_of(WINDOW_MS, phase))
        .apply(averages)
        .to(sink, lateness=kept_for(WINDOW_MS), staleness=STALENESS)
    )
    return app


def averages(reports: DataFrame) -> DataFrame:
    """Compute the averages of one window's rows, as a batch would."""
    return reports.groupBy("sensor").agg(*measures())


def measures() -> list[Column]:
    """List what is computed of each sensor's reports."""
    return [
        F.count("*").alias("reports"),
        F.avg("value").alias("value"),
        F.avg(F.length("payload")).alias("bytes"),
    ]


@dataclass(frozen=True)
class Average(Workload):
    """Average rows that are kept, by sensor."""

    name: ClassVar[str] = "average"

    def stages(self, phase: Phase) -> tuple[Windows, ...]:
        """Return windows of 20 s."""
        return (windows_of(WINDOW_MS, phase),)

    def sources(self, feed: Feed) -> dict[str, Generator]:
        """Generate reports with a payload of 1.5 to 3.5 KB."""
        reports = sw.generator(
            rate=feed.rate,
            delay=feed.delay,
            seed=feed.salt(),
            start_ms=feed.start_ms,
            keys=SENSORS,
            columns={
                "sensor": "key",
                "value": "shiftrightunsigned(xxhash64(h), 11) * 1.1102230246251565E-16D",
                "payload": payload_sql(),
            },
        )
        return {"reports": reports}

    def app(self, spark: SparkSession, sink: Sink, *, phase: Phase, variant: int) -> sw.App:
        """Write the query."""
        return average_app(sink, phase=phase, variant=variant)

    def streaming_frame(
        self,
        inputs: Mapping[str, DataFrame],
        lag_ms: int,
        *,
        grids: Sequence[WindowGrid],
        variant: int,
    ) -> DataFrame:
        """Write the query for Structured Streaming, which averages as reports come in."""
        reports = varied(inputs["reports"], "sensor", variant)
        return (
            reports.withWatermark("event_time", f"{lag_ms} milliseconds")
            .groupBy(spark_window(grids[0]), "sensor")
            .agg(*measures())
        )
