"""Run the workload on Spark Structured Streaming over topics of Kafka, with its own connector."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from slackwater_lab.bench.figures import Measured, figures
from slackwater_lab.bench.inputs import by_query, query_name, workload_of
from slackwater_lab.bench.options import STOCK, BenchOptions
from slackwater_lab.bench.ours import Progress
from slackwater_lab.bench.stock import batch_end_ms, batches, emitted, start, wait_for
from slackwater_lab.bench.topics import TopicFeed
from slackwater_lab.workloads.due import Span, WindowKey


def run_stock_on_topics(
    spark: SparkSession,
    options: BenchOptions,
    trigger: str,
    directory: Path,
    *,
    progress: Progress = lambda text, share: None,
    own_step_ms: Sequence[float] | None = None,
) -> tuple[dict[str, Any], Span]:
    """Measure one trigger; return its results, and the span of time that they are about."""
    workload, topics = workload_of(options), TopicFeed.of(options, STOCK)
    queries: list[StreamingQuery] = []
    try:
        for number in range(options.queries):
            progress("starting queries", 0.0)
            spark.sparkContext.setLocalProperty("spark.scheduler.pool", query_name(number))
            frame = workload.streaming_frame(
                {"events": topics.frame(spark, number)},
                topics.lag_ms,
                grids=workload.grids(options.phase, number),
                variant=number % options.distinct,
            )
            writer = frame.writeStream.format("noop")
            queries.append(start(writer, trigger, directory / query_name(number)))
        first_ms = topics.start(directory) + options.warmup * 1_000
        span = Span(first_ms, first_ms + options.seconds * 1_000)
        due = topics.due(span)
        wait_for(queries, topics, due, span, progress)
        progresses = [query.recentProgress for query in queries]
    finally:
        for query in queries:
            query.stop()
        topics.close()
    seen = _measured(span, due, progresses, trigger)
    seen = replace(seen, own_step_ms=by_query(options, own_step_ms))
    return figures(options, STOCK, seen), span


def _measured(
    span: Span,
    due: Mapping[WindowKey, float],
    progresses: Sequence[Sequence[Mapping[str, Any]]],
    trigger: str,
) -> Measured:
    out: dict[WindowKey, float] = {}
    events = steps = lag = 0
    for number, reports in enumerate(progresses):
        name = query_name(number)
        ends = [end_ms for query, end_ms in due if query == name]
        out |= {(name, end_ms): at_ms for end_ms, at_ms in emitted(reports, ends).items()}
        counted = [batch for batch in batches(reports) if batch_end_ms(batch) in span]
        steps += len(counted)
        events += sum(int(batch["numInputRows"]) for batch in counted)
        lag += max((_lag(batch) for batch in counted), default=0)
    return Measured(
        span=span,
        due=due,
        out=out,
        events=events,
        steps=steps,
        served=steps,
        lag_peak=lag,
        trigger=trigger,
    )


def _lag(batch: Mapping[str, Any]) -> int:
    """Count the records that had come when a batch began, and were not in it."""
    (source,) = batch["sources"]
    return _records(source["latestOffset"]) - _records(source["endOffset"])


def _records(offsets: str | None) -> int:
    by_topic = {} if offsets is None else json.loads(offsets)
    return sum(until for partitions in by_topic.values() for until in partitions.values())
