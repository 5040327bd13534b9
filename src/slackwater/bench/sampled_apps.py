"""The queries that bounded results are measured on, written to be read as examples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import SparkSession

import slackwater as sw
from slackwater.app.bounds import ErrorWish
from slackwater.app.outputs import Output
from slackwater.bench.nyt import PIPELINE
from slackwater.bench.ysb import viewed_campaigns
from slackwater.spark.sinks.base import Sink
from slackwater.spark.sources.generator import Generator

WINDOW_MS = 3_000
CENTRES = ((0, 0), (6, 1), (2, 7), (-5, 4), (-3, -6), (8, -5), (-9, 0), (5, 12))


@dataclass(frozen=True)
class SampledApp:
    """Name a query, its input, and how the result of a window adds up over its groups."""

    source: Callable[..., Generator]
    describe: Callable[[SparkSession, sw.App], Any]
    aggregate: str

    def app(self, spark: SparkSession, sink: Sink, wish: ErrorWish | None) -> tuple[sw.App, Output]:
        """Write the query, with or without an error wish."""
        app = sw.App("bounded")
        result = self.describe(spark, app)
        return app, result.to(sink) if wish is None else result.to(sink, error=wish)


def views(spark: SparkSession, app: sw.App) -> Any:
    """Count the views of each campaign's advertisements."""
    ads = sw.ysb_ads(spark)
    viewed = app.source("events").transform(lambda events: viewed_campaigns(events, ads))
    return viewed.window(sw.tumbling("3 s"), by="campaign_id").aggregate(views=sw.count())


def distances(spark: SparkSession, app: sw.App) -> Any:
    """Take the mean distance of trips, behind a long pipeline."""
    trips = reduce(lambda stream, step: stream.transform(step), PIPELINE, app.source("events"))
    return trips.window(sw.tumbling("3 s")).aggregate(kilometres=sw.mean("kilometres"))


def points(**settings: Any) -> Generator:
    """Generate points around centres, each coordinate off by the sum of three uniform numbers."""
    columns = {}
    for axis, name in enumerate("xy"):
        noise = " + ".join(
            f"(shiftright(xxhash64(h + {axis}), {16 * part}) & 65535)" for part in range(3)
        )
        cells = ", ".join(f"{centre[axis]}D" for centre in CENTRES)
        columns[name] = f"array({cells})[cast(key AS int)] + ({noise}) / 65536D - 1.5D"
    return sw.generator(columns=columns, keys=len(CENTRES), **settings)


def clustering_cost(spark: SparkSession, app: sw.App) -> Any:
    """Take what k-means makes small: the mean squared distance of points to the nearest centre.

    Bounds of this mean are how k-means brings an error function of its own: centres found from
    the sample serve all points as well as those of the sample, within that error.
    """
    away = ", ".join(
        f"(x - {x + 0.1}D) * (x - {x + 0.1}D) + (y - {y}D) * (y - {y}D)" for x, y in CENTRES
    )
    measured = app.source("events").transform(
        lambda df: df.selectExpr("*", f"least({away}) AS away")
    )
    return measured.window(sw.tumbling("3 s")).aggregate(cost=sw.mean("away"))


SAMPLED_APPS = {
    "ysb": SampledApp(sw.ysb, views, "views"),
    "nyt": SampledApp(sw.nyt, distances, "kilometres"),
    "kmeans": SampledApp(points, clustering_cost, "cost"),
}
