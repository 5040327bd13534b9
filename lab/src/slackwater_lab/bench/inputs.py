"""The inputs of all queries of a run, and what they make due: alike for every engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import SparkSession

from slackwater.progress.arrivals import hash64_one, stream_salt
from slackwater.spark.sources.generator import Generator
from slackwater_lab.bench.options import BenchOptions
from slackwater_lab.workloads.average import Average
from slackwater_lab.workloads.bigrams import Bigrams
from slackwater_lab.workloads.due import Span, WindowKey
from slackwater_lab.workloads.late_wishes import delay_of
from slackwater_lab.workloads.lrb import Lrb, LrbMinute
from slackwater_lab.workloads.nyt import Nyt
from slackwater_lab.workloads.stock_market import StockMarket
from slackwater_lab.workloads.workload import Feed, Workload, due_in
from slackwater_lab.workloads.ysb import Ysb

QueryInputs = Mapping[str, Generator]  # of one query, by the names that its app gives them

MOST_START_S: Final = 20.0


def workload_of(options: BenchOptions) -> Workload:
    """Return the workload that is asked for."""
    known: dict[str, Workload] = {
        Ysb.name: Ysb(),
        Lrb.name: Lrb(),
        Nyt.name: Nyt(data=options.data),
        Average.name: Average(),
        Bigrams.name: Bigrams(),
        StockMarket.name: StockMarket(),
        LrbMinute.name: LrbMinute(),
    }
    return known[options.workload]


def query_name(number: int) -> str:
    """Name a query of the benchmark."""
    return f"query-{number:04d}"


def by_query(options: BenchOptions, by_variant: Sequence[float] | None) -> dict[str, float] | None:
    """Tell of each query what is known of the pipeline that it is made from."""
    if by_variant is None:
        return None
    return {
        query_name(number): by_variant[number % options.distinct]
        for number in range(options.queries)
    }


def start_after_ms(options: BenchOptions, query: int) -> int:
    """Tell how long after the first moment a query's inputs start.

    At random they start within the first 20 s, and within the first half of the warm-up.
    """
    if options.start == "together":
        return 0
    within_ms = 1_000 * min(MOST_START_S, options.warmup / 2)
    # Hashed once more, for the salt itself draws the delays.
    return int(hash64_one(stream_salt(options.seed, query)) * 2.0**-64 * within_ms)


def inputs_of(options: BenchOptions, start_ms: int) -> list[QueryInputs]:
    """Generate the inputs of all queries; none starts before a moment."""
    workload = workload_of(options)
    delay = delay_of(options.delay, workload.stages("aligned")[0].size_ms)
    return [
        workload.sources(
            Feed(
                rate=options.rate,
                delay=delay,
                seed=options.seed,
                query=number,
                start_ms=start_ms + start_after_ms(options, number),
            )
        )
        for number in range(options.queries)
    ]


def due_windows(
    spark: SparkSession, options: BenchOptions, inputs: Sequence[QueryInputs], span: Span
) -> dict[WindowKey, float]:
    """Find the windows of all queries that are due within a span, and when each becomes so."""
    workload = workload_of(options)
    return {
        (query_name(number), end_ms): due_ms
        for number, sources in enumerate(inputs)
        for end_ms, due_ms in due_in(
            spark, workload.grids(options.phase, number), list(sources.values()), span
        )
    }
