"""Run the workload on Spark Structured Streaming, at its best, and measure.

It is given the cheapest source and the cheapest sink (`noop`: nothing is stored), one shuffle
partition, a pool of its own for each query in a fair scheduler, and none of Slackwater's durability
to pay for but its own checkpoints.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from slackwater.errors import SlackwaterError
from slackwater_lab.bench.figures import Measured, figures
from slackwater_lab.bench.inputs import (
    by_query,
    due_windows,
    inputs_of,
    query_name,
    start_after_ms,
    workload_of,
)
from slackwater_lab.bench.options import STOCK, BenchOptions
from slackwater_lab.bench.ours import DRAIN_MS, Progress
from slackwater_lab.workloads.due import Span, WindowKey
from slackwater_lab.workloads.ticks import Feeder, TickStream

SETTINGS: Final = {
    "spark_driver_extraJavaOptions": "-Xss4m",  # many streaming threads overflow a smaller stack
    "spark_scheduler_mode": "FAIR",
    "spark_sql_shuffle_partitions": "1",
    "spark_sql_streaming_numRecentProgressUpdates": "100000",
}
_LOOK_S: Final = 0.25


def triggers(options: BenchOptions) -> tuple[str, str]:
    """List the triggers to try: as soon as can be, and once for each result."""
    return "0 seconds", f"{workload_of(options).slide_ms / 1_000:g} seconds"


def run_stock(
    spark: SparkSession,
    options: BenchOptions,
    trigger: str,
    directory: Path,
    *,
    progress: Progress = lambda text, share: None,
    own_step_ms: Sequence[float] | None = None,
) -> tuple[dict[str, Any], Span]:
    """Measure one trigger; return its results, and the span of time that they are about."""
    workload = workload_of(options)
    inputs = [
        {name: TickStream(spark, source, number) for name, source in sources.items()}
        for number, sources in enumerate(inputs_of(options, start_ms=0))
    ]
    streams = [stream for streams in inputs for stream in streams.values()]
    queries: list[StreamingQuery] = []
    try:
        for number, named in enumerate(inputs):
            progress("starting queries", 0.0)
            spark.sparkContext.setLocalProperty("spark.scheduler.pool", query_name(number))
            frame = workload.streaming_frame(
                {name: stream.frame() for name, stream in named.items()},
                max(stream.lag_ms for stream in named.values()),
                grids=workload.grids(options.phase, number),
                variant=number % options.distinct,
            )
            writer = frame.writeStream.format("noop")
            queries.append(start(writer, trigger, directory / query_name(number)))
        start_ms = int(time.time() * 1_000)
        for number, named in enumerate(inputs):
            for stream in named.values():
                stream.begin(start_ms + start_after_ms(options, number))
        first_ms = start_ms + options.warmup * 1_000
        span = Span(first_ms, first_ms + options.seconds * 1_000)
        due = due_windows(spark, options, inputs_of(options, start_ms), span)
        with Feeder(streams) as feeder:
            wait_for(queries, feeder, due, span, progress)
        progresses = [query.recentProgress for query in queries]
    finally:
        for query in queries:
            query.stop()
    seen = _measured(span, due, [list(named.values()) for named in inputs], progresses, trigger)
    seen = replace(seen, own_step_ms=by_query(options, own_step_ms))
    return figures(options, STOCK, seen), span


def start(writer: DataStreamWriter, trigger: str, checkpoint: Path) -> StreamingQuery:
    """Start a query, each result of which comes once, when its window has closed."""
    return (
        writer.outputMode("append")
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime=trigger)
        .start()
    )


def emitted(progresses: Iterable[Mapping[str, Any]], ends_ms: Sequence[int]) -> dict[int, float]:
    """Find out from a query's progress when the results of each window end were out.

    A batch emits the windows that end at or before the watermark it runs with, and its results are
    committed when its trigger ends.
    """
    out: dict[int, float] = {}
    for batch in batches(progresses):
        watermark_ms = moment_ms(batch["eventTime"]["watermark"])
        for end_ms in ends_ms:
            if end_ms <= watermark_ms and end_ms not in out:
                out[end_ms] = batch_end_ms(batch)
    return out


def batches(progresses: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Leave out reports of triggers that ran no batch."""
    return [
        report
        for report in progresses
        if "addBatch" in report["durationMs"] and "watermark" in report.get("eventTime", {})
    ]


def batch_end_ms(batch: Mapping[str, Any]) -> float:
    """Tell when a batch was committed."""
    return moment_ms(batch["timestamp"]) + float(batch["durationMs"]["triggerExecution"])


def moment_ms(text: str) -> float:
    """Read a moment as progress reports write it.

    >>> moment_ms("1970-01-01T00:00:01.250Z")
    1250.0
    """
    return float(round(datetime.fromisoformat(text).timestamp() * 1_000))


def better(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Choose the trigger with the lower mean latency; one that fired nothing comes last."""
    return min(
        results, key=lambda result: float("inf") if result["mean_ms"] is None else result["mean_ms"]
    )


class Feeding(Protocol):
    """Bring events, from another thread or process."""

    def check(self) -> None:
        """Raise what went wrong there, if anything did."""


def wait_for(
    queries: Sequence[StreamingQuery],
    feeder: Feeding,
    due: Mapping[WindowKey, float],
    span: Span,
    progress: Progress,
) -> None:
    """Wait until all windows that are due have fired, or the drain is over."""
    began_ms = time.time() * 1_000
    last_ends = {query_name(number): 0 for number in range(len(queries))}
    for name, end_ms in due:
        last_ends[name] = max(last_ends[name], end_ms)
    missing = dict(zip(last_ends, queries, strict=True))
    while (now_ms := time.time() * 1_000) < span.until_ms + DRAIN_MS and missing:
        feeder.check()
        for name, query in list(missing.items()):
            if not query.isActive:
                raise SlackwaterError(f"query {name} of Structured Streaming: {query.exception()}")
            if now_ms >= span.until_ms and _passed(query, last_ends[name]):
                del missing[name]
        text = "warming up" if now_ms < span.first_ms else "measuring"
        progress(text, min(1.0, (now_ms - began_ms) / (span.until_ms - began_ms)))
        time.sleep(1.0 if now_ms < span.until_ms - 1_000 else _LOOK_S)


def _passed(query: StreamingQuery, end_ms: int) -> bool:
    last = query.lastProgress
    return last is not None and end_ms in emitted([last], [end_ms])


def _measured(
    span: Span,
    due: Mapping[WindowKey, float],
    inputs: Sequence[Sequence[TickStream]],
    progresses: Sequence[Sequence[Mapping[str, Any]]],
    trigger: str,
) -> Measured:
    out: dict[WindowKey, float] = {}
    events = steps = 0
    for number, (streams, reports) in enumerate(zip(inputs, progresses, strict=True)):
        name = query_name(number)
        ends = [end_ms for query, end_ms in due if query == name]
        out |= {(name, end_ms): at_ms for end_ms, at_ms in emitted(reports, ends).items()}
        for batch in batches(reports):
            if batch_end_ms(batch) in span:
                steps += 1
                for stream, source in zip(streams, batch["sources"], strict=True):
                    events += stream.records_until(source["endOffset"])
                    events -= stream.records_until(source["startOffset"])
    return Measured(
        span=span,
        due=due,
        out=out,
        events=events,
        steps=steps,
        served=steps,
        trigger=trigger,
    )
