"""A window far larger than its budget: ten million rows, more than a million distinct late keys.

    python lab/experiments/large_window.py --rows 10000000 --memory "512 MB"

One query counts by key, another passes all rows of the window to a function. Half of the events
come after the window has closed. Event time ends when all is read; then the last pane must hold
every event.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import slackwater as sw
from slackwater.progress.distributions import UniformDelay
from slackwater.runtime.reports import StepReport
from slackwater.spark.latebound import fixed_specification
from slackwater.spark.sources.base import Range
from slackwater.spark.sources.generator import Generator
from slackwater_lab.bench.meter import TreeMeter
from slackwater_lab.workloads.due import Span

WINDOW_S = 100
MOST_DELAY_S = 66
START_MS = 1_700_000_000_000  # where a window begins
SEED = 1
_MB = 1024 * 1024


class Progress:
    """Note how much window state was in memory at most, how many panes came, and what took long."""

    def __init__(self, runtime: sw.Runtime) -> None:
        """Begin."""
        self._runtime = runtime
        self.state_bytes = self.steps = self.late_panes = 0
        self.spent_s: Counter[str] = Counter()

    def step_committed(self, report: StepReport) -> None:
        """Look at the state after each step."""
        self.steps += 1
        self.state_bytes = max(self.state_bytes, self._runtime.state_bytes)
        self.late_panes += sum(pane.timing != "on_time" for pane in report.panes)
        times = {name: took_ms / 1_000 for name, took_ms in asdict(report.times).items()}
        self.spent_s.update(times)

    def __str__(self) -> str:
        """Say where time went, what took longest first."""
        parts = (f"{name} {took_s:,.1f} s" for name, took_s in self.spent_s.most_common(5))
        return f"{self.steps} steps: {', '.join(parts)}"


def source(rows: int, keys: int, seed: int) -> Generator:
    """Describe events around one window, delayed by up to two thirds of it.

    They come from two thirds of the window on, for as long as a window takes. No watermark waits
    for them: about a third belongs to the window and is on time, a third belongs to it and is late,
    and a third belongs to the next one.
    """
    return sw.generator(
        rate=1.5 * rows / WINDOW_S,
        delay=UniformDelay(0.0, MOST_DELAY_S * 1_000.0),
        keys=keys,
        watermark_lag="0 s",
        limit=round(1.5 * rows),
        start_ms=START_MS + MOST_DELAY_S * 1_000,
        seed=seed,
    )


def in_window(df: DataFrame) -> DataFrame:
    """Leave out the events of the next window."""
    return df.where(f"unix_millis(event_time) < {START_MS + WINDOW_S * 1_000}L")


def expected(spark: SparkSession, events: Generator) -> int:
    """Count the window's events in one batch."""
    assert events.limit is not None
    reader = events.open(spark)
    entry = reader.entry(0, Range(0, 0, events.limit, events.limit))
    entries = fixed_specification(spark, [[json.dumps([entry])]]).selectExpr(
        f"explode(from_json(s0, 'array<{reader.entry_type}>')) AS r"
    )
    return in_window(reader.expand(entries)).count()


def run(rows: int, keys: int, memory: str, directory: Path) -> None:
    """Run both queries to the end of their inputs, and check that nothing is missing."""
    spark = sw.session("local[2]", spark_driver_memory="2g")
    counts, whole = sw.App("counts"), sw.App("whole")
    wish: dict[str, Any] = {"lateness": f"{WINDOW_S} seconds", "staleness": 0.3}
    windows = sw.tumbling(f"{WINDOW_S} seconds")
    by_key = counts.source("events").transform(in_window).window(windows, by="key")
    by_key.aggregate(n=sw.count()).to(sw.parquet(directory / "counts"), **wish)
    in_all = whole.source("events").transform(in_window).window(windows)
    in_all.apply(
        lambda df: df.agg(F.count("*").alias("n"), F.countDistinct("key").alias("keys"))
    ).to(sw.parquet(directory / "whole"), **wish)
    with sw.Runtime(spark, journal=directory / "state", memory=memory) as runtime:
        for app in (counts, whole):
            runtime.deploy(app, app.name, events=source(rows, keys, SEED))
        progress, started = Progress(runtime), time.time()
        runtime.observe(progress)
        with TreeMeter(psutil.Process().pid) as meter:
            runtime.run()
        took_s = time.time() - started
        for query in runtime.queries():
            assert query.quarantined is None, query.quarantined
        used = meter.usage(Span(started * 1_000, time.time() * 1_000))
    there = expected(spark, source(rows, keys, SEED))
    for app in (counts, whole):
        held = _last_panes(spark, directory / app.name).groupBy("window_start").agg(F.sum("n"))
        found = [tuple(row) for row in held.selectExpr("unix_millis(window_start)", "*").collect()]
        assert [(first, n) for first, _, n in found] == [(START_MS, there)], (
            app.name,
            there,
            found,
        )
    print(
        f"{there:,} rows of {keys:,} keys, twice, in {took_s:,.0f} s; {progress.late_panes} late "
        f"panes; {_late_keys(spark, directory / 'counts'):,} keys with late events; state in "
        f"memory at most {progress.state_bytes / _MB:,.0f} MB of {memory}; process tree "
        f"{used['memory_peak_mb']:,.0f} MB at most"
    )
    print(progress)
    spark.stop()


def _last_panes(spark: SparkSession, path: Path) -> DataFrame:
    """Read the last pane of each window."""
    panes = spark.read.parquet(str(path))
    last = panes.groupBy("window_start").agg(F.max("pane").alias("pane"))
    return panes.join(last, ["window_start", "pane"])


def _late_keys(spark: SparkSession, path: Path) -> int:
    """Count the keys of which the last pane has more events than the first one had."""
    first = spark.read.parquet(str(path)).where("pane = 0").selectExpr("key", "n AS before")
    both = _last_panes(spark, path).join(first, "key", "left")
    return both.where("n > coalesce(before, 0)").count()


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=5_000_000)
    parser.add_argument("--memory", default="512 MB")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="slackwater-bench-") as directory:
        run(given.rows, given.keys, given.memory, Path(directory))


if __name__ == "__main__":
    main()
