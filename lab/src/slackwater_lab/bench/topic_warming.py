"""Read topics of Kafka until the code for it is compiled, before any latency counts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

import slackwater as sw
from slackwater_lab.bench.inputs import workload_of
from slackwater_lab.bench.options import BenchOptions
from slackwater_lab.bench.topics import TopicFeed

_RECORDS: Final = 400_000  # of all topics together, read again and again


def warm_up_on_topics(
    spark: SparkSession, options: BenchOptions, directory: Path, *, seconds: float
) -> None:
    """Run every pipeline over topics of its own, in steps as large as they come."""
    topics = TopicFeed.of(options, "warm-up")
    topics.fill(_RECORDS // options.queries)
    workload, ends = workload_of(options), time.monotonic() + seconds
    turn = 0
    while turn == 0 or time.monotonic() < ends:
        sink = sw.memory()
        apps = [
            workload.app(spark, sink, phase=options.phase, variant=variant)
            for variant in range(options.distinct)
        ]
        journal = directory / f"journal-{turn}"
        with sw.Runtime(spark, journal=journal, slots=options.slots) as runtime:
            for number in range(options.queries):
                source = topics.source(number, follow=False)
                runtime.deploy(apps[number % len(apps)], f"warm-up-{number}", events=source)
            runtime.run()
        turn += 1
