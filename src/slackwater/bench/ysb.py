"""The Yahoo Streaming Benchmark as an app: views per campaign, every three seconds.

S. Chintapalli et al., "Benchmarking Streaming Computation Engines: Storm, Flink and Spark
Streaming", IPDPS workshops, 2016. Written to be read as an example: one app, deployed once for each
stream of events.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import slackwater as sw
from slackwater.app.windows import Windows
from slackwater.progress.arrivals import stream_salt
from slackwater.spark.sinks.base import Sink
from slackwater.spark.sources.generator import Generator

WINDOW: Final = "3 seconds"

# Nearly every event passes each of these, at next to no cost; yet each makes a plan of its own.
_VARIATIONS: Final = ("user_id <> {v}", "page_id <> {v}", "user_id <> page_id + {v}")


def views_app(ads: DataFrame, sink: Sink, *, phase: str = "spread", variant: int = 0) -> sw.App:
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


def windows(phase: str) -> Windows:
    """Place the windows: "aligned" on full multiples, or "spread" over time, query by query."""
    return sw.tumbling(WINDOW, offset="spread") if phase == "spread" else sw.tumbling(WINDOW)


def events(*, rate: float, delay: str, seed: int, query: int, start_ms: int) -> Generator:
    """Generate the events of one query, unlike those of any other."""
    return sw.ysb(rate=rate, delay=delay, seed=stream_salt(seed, query), start_ms=start_ms)
