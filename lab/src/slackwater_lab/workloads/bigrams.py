"""The most frequent pairs of words of each window, from texts that may come late.

The workload *bigrams* of S. Esteves et al., "Aion: Better Late than Never in Event-Time Streams":
texts of 1.5 to 3.5 KB, windows of 30 s. Written to be read as an example of `apply` with a ranking,
which no incremental aggregate can give.
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
from slackwater_lab.workloads.late_wishes import STALENESS, kept_for
from slackwater_lab.workloads.payloads import text_sql
from slackwater_lab.workloads.workload import (
    Feed,
    Phase,
    Workload,
    spark_window,
    varied,
    windows_of,
)

WINDOW_MS: Final = 30_000
MOST: Final = 100


def bigrams_app(sink: Sink, *, phase: Phase = "spread", variant: int = 0) -> sw.App:
    """Rank the pairs of neighbouring words; late texts amend the window that they belong to."""
    app = sw.App("bigrams" if variant == 0 else f"bigrams-{variant}")
    (
        app.source("texts")
        .transform(lambda texts: varied(texts, "author", variant))
        .window(windows_of(WINDOW_MS, phase))
        .apply(most_frequent)
        .to(sink, lateness=kept_for(WINDOW_MS), staleness=STALENESS)
    )
    return app


def most_frequent(texts: DataFrame) -> DataFrame:
    """Rank the pairs of one window; pairs as frequent as others go by the alphabet."""
    counted = pairs(texts).groupBy("first", "second").agg(F.count("*").alias("times"))
    return counted.orderBy(F.desc("times"), "first", "second").limit(MOST)


def pairs(texts: DataFrame) -> DataFrame:
    """List the pairs of neighbouring words of all texts, with the texts' own columns."""
    listed = texts.withColumn("words", F.split("text", " "))
    neighbours = F.expr(
        "transform(sequence(0, size(words) - 2), i -> "
        "named_struct('first', words[i], 'second', words[i + 1]))"
    )
    return listed.withColumn("pair", F.explode(neighbours)).select("*", "pair.first", "pair.second")


@dataclass(frozen=True)
class Bigrams(Workload):
    """Rank pairs of words."""

    name: ClassVar[str] = "bigrams"

    def stages(self, phase: Phase) -> tuple[Windows, ...]:
        """Return windows of 30 s."""
        return (windows_of(WINDOW_MS, phase),)

    def sources(self, feed: Feed) -> dict[str, Generator]:
        """Generate texts of 300 to 630 words."""
        texts = sw.generator(
            rate=feed.rate,
            delay=feed.delay,
            seed=feed.salt(),
            start_ms=feed.start_ms,
            columns={"author": "key", "text": text_sql()},
        )
        return {"texts": texts}

    def app(self, spark: SparkSession, sink: Sink, *, phase: Phase, variant: int) -> sw.App:
        """Write the query."""
        return bigrams_app(sink, phase=phase, variant=variant)

    def streaming_frame(
        self,
        inputs: Mapping[str, DataFrame],
        lag_ms: int,
        *,
        grids: Sequence[WindowGrid],
        variant: int,
    ) -> DataFrame:
        """Write the query for Structured Streaming, which counts, and cannot rank in append."""
        texts = varied(inputs["texts"], "author", variant)
        texts = texts.withWatermark("event_time", f"{lag_ms} milliseconds")
        return pairs(texts).groupBy(spark_window(grids[0]), "first", "second").count()
