"""Views per campaign and purchases per kind of advertisement for four shops, on generated events.

Run it with

    slackwater run examples/ads.py --journal state/ads --seconds 60

stop it with Ctrl-C at any moment, and run it again: it goes on where it was.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import slackwater as sw


def describe(ads: DataFrame) -> sw.App:
    """Describe the queries; what they read is said on deployment."""

    def with_campaign(events: DataFrame) -> DataFrame:
        return events.where("event_type = 'view'").join(F.broadcast(ads), "ad_id")

    app = sw.App("ads")
    events = app.source("events")
    (
        events.transform(with_campaign)
        .window(sw.tumbling("3 seconds"), by="campaign_id")
        .aggregate(views=sw.count(), users=sw.approx_distinct("user_id"))
        .to(sw.parquet("out/views"), name="views", lateness="5 seconds")
    )
    (
        events.transform(lambda df: df.where("event_type = 'purchase'"))
        .window(sw.sliding("10 seconds", "5 seconds"), by="ad_type")
        .aggregate(purchases=sw.count())
        .to(sw.parquet("out/purchases"), name="purchases")
    )
    return app


def deploy(rt: sw.Runtime, spark: SparkSession) -> None:
    """Deploy the app once for each shop."""
    app = describe(sw.ysb_ads(spark))
    for number in range(4):
        events = sw.ysb(rate=500, delay="uniform", seed=number)
        rt.deploy(app, f"shop-{number}", events=events)
