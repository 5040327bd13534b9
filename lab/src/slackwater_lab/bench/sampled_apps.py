"""The queries that bounded results are measured on, written to be read as examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession

import slackwater as sw
from slackwater.app.bounds import WEIGHT, ErrorWish
from slackwater.app.outputs import Output
from slackwater.sampling.applied import NumberBounds, ResultErrorFunction, SampledWindow
from slackwater.spark.sinks.base import Sink
from slackwater.spark.sources.generator import Generator
from slackwater_lab.workloads.nyt import PIPELINE
from slackwater_lab.workloads.nyt_trips import nyt
from slackwater_lab.workloads.ysb import viewed_campaigns

WINDOW_MS = 3_000
ROUNDS = 10  # of k-means
HASHES = 40  # of each record, in a row
CENTRES = ((0, 0), (6, 1), (2, 7), (-5, 4), (-3, -6), (8, -5), (-9, 0), (5, 12))


@dataclass(frozen=True)
class SampledApp:
    """Name a query, its input, and how the result of a window adds up over its groups."""

    source: Callable[..., Generator]
    describe: Callable[[SparkSession, sw.App], Any]
    aggregate: str
    functions: Mapping[str, ResultErrorFunction] = field(default_factory=dict)

    def app(self, spark: SparkSession, sink: Sink, wish: ErrorWish | None) -> tuple[sw.App, Output]:
        """Write the query, with or without an error wish."""
        app = sw.App("bounded")
        result = self.describe(spark, app)
        if wish is None:
            return app, result.to(sink)
        return app, result.to(sink, error=replace(wish, functions=self.functions))


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


def clustered(spark: SparkSession, app: sw.App) -> Any:
    """Find the centres of each window's points by k-means, and what it makes small."""
    return app.source("events").window(sw.tumbling("3 s")).apply(centres)


def centres(points: DataFrame) -> DataFrame:
    """Run Lloyd's algorithm over points, each of which stands for `_sw_weight` of them.

    Every row is a centre with the number of its points, and has the cost: the mean squared distance
    of all points to the nearest centre.
    """
    starts = [(x + 0.1, float(y)) for x, y in CENTRES]

    def lloyd(batches: Iterator[Any]) -> Iterator[Any]:
        import numpy as np
        import pyarrow as pa

        parts = [[column.to_numpy() for column in batch.columns] for batch in batches]
        if not parts:
            return
        x, y, weight = (np.concatenate(each) for each in zip(*parts, strict=True))
        at, cost = np.array(starts), 0.0
        held: NDArray[Any] = np.zeros(len(starts))
        for _ in range(ROUNDS):
            away = (x[:, None] - at[:, 0]) ** 2 + (y[:, None] - at[:, 1]) ** 2
            nearest = away.argmin(axis=1)
            cost = float(away.min(axis=1) @ weight / weight.sum())
            held = np.bincount(nearest, weight, len(at))
            for axis, values in enumerate((x, y)):
                sums = np.bincount(nearest, weight * values, len(at))
                at[:, axis] = np.where(held > 0, sums / np.maximum(held, 1e-300), at[:, axis])
        columns = [at[:, 0], at[:, 1], held, np.full(len(at), cost)]
        arrays = [pa.array(column) for column in columns]
        yield pa.RecordBatch.from_arrays(arrays, names=["x", "y", "points", "cost"])

    weight = WEIGHT if WEIGHT in points.columns else "1D"
    rows = points.selectExpr("x", "y", f"{weight} AS weight").coalesce(1)
    return rows.mapInArrow(lloyd, "x double, y double, points double, cost double")


def clustering_error(window: SampledWindow) -> NumberBounds:
    """Bound the cost of clustering all points of the window, from that of its sample.

    It is the mean of something that each point has: the squared distance to its nearest centre. The
    centres fit the points that they were found from better than others, by one part in as many as
    each centre has points; a sample flatters them by that much more than all points would.
    """
    points, found = window.rows, window.result
    away = [
        (points["x"].to_numpy() - x) ** 2 + (points["y"].to_numpy() - y) ** 2
        for x, y in zip(found["x"].to_pylist(), found["y"].to_pylist(), strict=True)
    ]
    flattered = 1.0 - len(away) / max(len(points), 2 * len(away))
    of_all = 1.0 - len(away) / max(window.weights.sum(), 2.0 * len(away))
    return window.mean(np.min(away, axis=0)).scaled(of_all / flattered)


def records(**settings: Any) -> Generator:
    """Generate records that have nothing but a number of their own."""
    return sw.generator(columns={"id": "h"}, **settings)


def scores(spark: SparkSession, app: sw.App) -> Any:
    """Take the mean of something that is costly to find out: each record is hashed many times."""
    digest = f"aggregate(sequence(1, {HASHES}), string(id), (text, i) -> sha2(text, 256))"
    score = f"conv(substr({digest}, 1, 8), 16, 10) / 4294967296D AS score"
    scored = app.source("events").transform(lambda events: events.selectExpr("*", score))
    return scored.window(sw.tumbling("3 s")).aggregate(score=sw.mean("score"))


SAMPLED_APPS = {
    "ysb": SampledApp(sw.ysb, views, "views"),
    "nyt": SampledApp(nyt, distances, "kilometres"),
    "costly": SampledApp(records, scores, "score"),
    "kmeans": SampledApp(points, clustered, "cost", {"cost": clustering_error}),
}
