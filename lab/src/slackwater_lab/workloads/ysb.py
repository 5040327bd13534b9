"""The Yahoo Streaming Benchmark as an app: views per campaign, every three seconds.

S. Chintapalli et al., "Benchmarking Streaming Computation Engines: Storm, Flink and Spark
Streaming", IPDPS workshops, 2016. Written to be read as an example: one app, deployed once for each
stream of events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import slackwater as sw
from slackwater.app.windows import Windows
from slackwater.progress.grid import WindowGrid
from slackwater.spark.sinks.base import Sink
from slackwater.spark.sources.generator import Generator
from slackwater_lab.workloads.workload import Feed, Phase, Workload, spark_window

WINDOW: Final = "3 seconds"

# Nearly every event passes each of these, at next to no cost; yet each makes a plan of its own.
_VARIATIONS: Final = ("user_id <> {v}", "page_id <> {v}", "user_id <> page_id + {v}")


def views_app(ads: DataFrame, sink: Sink, *, phase: Phase = "spread", variant: int = 0) -> sw.App:
    """Count the views of each campaign's advertisements."""
    app = sw.App("ysb" if variant == 0 else f"ysb-{variant}")
    (
        app.source("events")
        .transform(lambda events: viewed_campaigns(events, ads, variant))
        .window(windows(phase), by=["campaign_id"])
        .aggregate(views=sw.count())
        .to(sink)
    )
    return app


def viewed_campaigns(events: DataFrame, ads: DataFrame, variant: int = 0) -> DataFrame:
    """Keep the views, and find the campaign of each; variants differ in one cheap condition."""
    views = events.where("event_type = 'view'")
    if variant:
        views = views.where(_VARIATIONS[variant % len(_VARIATIONS)].format(v=variant))
    return views.join(F.broadcast(ads), "ad_id")


def windows(phase: Phase) -> Windows:
    """Place the windows: "aligned" on full multiples, or "spread" over time, query by query."""
    return sw.tumbling(WINDOW, offset="spread") if phase == "spread" else sw.tumbling(WINDOW)


def events(*, rate: float, delay: str, seed: int, query: int, start_ms: int) -> Generator:
    """Generate the events of one query, unlike those of any other."""
    return Ysb().sources(Feed(rate, delay, seed, query, start_ms))["events"]


@dataclass(frozen=True)
class Ysb(Workload):
    """Count views per campaign in tumbling windows."""

    name: ClassVar[str] = "ysb"

    def stages(self, phase: Phase) -> tuple[Windows, ...]:
        """Return windows of three seconds."""
        return (windows(phase),)

    def sources(self, feed: Feed) -> dict[str, Generator]:
        """Generate advertisement events."""
        source = sw.ysb(rate=feed.rate, delay=feed.delay, seed=feed.salt(), start_ms=feed.start_ms)
        return {"events": source}

    def app(self, spark: SparkSession, sink: Sink, *, phase: Phase, variant: int) -> sw.App:
        """Write the query."""
        return views_app(sw.ysb_ads(spark), sink, phase=phase, variant=variant)

    def streaming_frame(
        self,
        inputs: Mapping[str, DataFrame],
        lag_ms: int,
        *,
        grids: Sequence[WindowGrid],
        variant: int,
    ) -> DataFrame:
        """Write the query for Structured Streaming."""
        events = inputs["events"]
        views = viewed_campaigns(events, sw.ysb_ads(events.sparkSession), variant)
        return (
            views.withWatermark("event_time", f"{lag_ms} milliseconds")
            .groupBy(spark_window(grids[0]), "campaign_id")
            .count()
        )
