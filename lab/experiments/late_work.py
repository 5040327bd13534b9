"""What late work on storage costs results that are on time, against state kept in memory.

    python lab/experiments/late_work.py

Queries over events of which a third is late, and whose past windows are amended again and again.
Each place of state first gets a backlog, as fast as it can: that gives the rate. Then it gets
events in real time: that gives the latencies of panes that are on time. State in memory has room
for all of it; on storage, a budget that is a fraction of it. Both take turns, in one Spark that was
warmed up, so that neither gains by being the later one.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

import slackwater as sw
from slackwater.progress.distributions import ExponentialDelay
from slackwater.runtime.reports import StepReport
from slackwater.spark.sources.generator import Generator
from slackwater_lab.workloads.payloads import digest_sql

WINDOW_S = 2
START_MS = 1_700_000_000_000
TURNS = ("memory", "tiered", "tiered", "memory")
_MB = 1024 * 1024


class Watcher:
    """Note how long after its closing watermark each pane was out, from some moment on."""

    def __init__(self, runtime: sw.Runtime, from_ms: float) -> None:
        """Leave out what comes before a moment."""
        self._runtime, self._from_ms = runtime, from_ms
        self.on_time_ms: list[float] = []
        self.late = self.events = self.state_bytes = 0

    def step_committed(self, report: StepReport) -> None:
        """Take in a step's panes."""
        self.state_bytes = max(self.state_bytes, self._runtime.state_bytes)
        if report.committed_ms < self._from_ms:
            return
        self.events += report.events
        for pane in report.panes:
            if pane.timing != "on_time":
                self.late += 1
            elif pane.propagation_ms is not None:
                self.on_time_ms.append(pane.propagation_ms)


@dataclass
class Findings:
    """Collect what one place of state gave, over all of its turns."""

    rates: list[float] = field(default_factory=list)  # events a second
    on_time_ms: list[float] = field(default_factory=list)
    late_panes: int = 0
    state_bytes: int = 0

    @property
    def rate(self) -> float:
        """Return the mean rate at which backlogs were read."""
        return float(np.mean(self.rates))

    def percentile_ms(self, percent: float) -> float:
        """Return a percentile of the latencies of panes that were on time."""
        return float(np.percentile(self.on_time_ms, percent))

    def row(self, state: str) -> str:
        """Write a row of a table."""
        rates = ", ".join(f"{rate:,.0f}" for rate in self.rates)
        return (
            f"| {state} | {self.rate:,.0f} ({rates}) | {len(self.on_time_ms)} | "
            f"{self.percentile_ms(50):,.0f} ms | {self.percentile_ms(99):,.0f} ms | "
            f"{self.late_panes} | {self.state_bytes / _MB:,.0f} MB |"
        )


def source(given: argparse.Namespace, seed: int, backlog_s: float | None) -> Generator:
    """Describe events of which a third is late; with a backlog, all have arrived long ago."""
    return sw.generator(
        rate=given.rate,
        delay=ExponentialDelay(scale_ms=WINDOW_S * 500.0),
        watermark_lag=f"{WINDOW_S * 500} ms",
        columns={"key": "key", "value": "h & 65535", "payload": digest_sql(given.payload)},
        keys=20_000,
        seed=seed,
        start_ms=None if backlog_s is None else START_MS,
        limit=None if backlog_s is None else round(given.rate * backlog_s),
    )


def run(
    spark: SparkSession, state: Any, given: argparse.Namespace, backlog_s: float | None
) -> tuple[Watcher, float]:
    """Run all queries with one place for state; return what was seen, and for how long."""
    app = sw.App("late")
    windows = app.source("events").window(sw.tumbling(f"{WINDOW_S} s", offset="spread"), by="key")
    memory = given.budget if state == "tiered" else given.room
    with tempfile.TemporaryDirectory(prefix="slackwater-bench-") as directory:
        windows.aggregate(n=sw.count(), longest=sw.max("payload")).to(
            sw.parquet(Path(directory, "out")), lateness=f"{WINDOW_S * 20} s", staleness=0.05
        )
        with sw.Runtime(
            spark, journal=Path(directory, "state"), memory=memory, state=state
        ) as runtime:
            for seed in range(given.queries):
                runtime.deploy(app, f"late-{seed}", events=source(given, seed, backlog_s))
            runtime.warm()
            started = time.time()
            warmup_s = given.warmup if backlog_s is None else 0.0
            seen = Watcher(runtime, (started + warmup_s) * 1_000)
            runtime.observe(seen)
            runtime.run(seconds=given.warmup + given.seconds if backlog_s is None else None)
            took_s = time.time() - started
            for query in runtime.queries():
                assert query.quarantined is None, query.quarantined
    return seen, took_s


def compare(spark: SparkSession, given: argparse.Namespace) -> Mapping[str, Findings]:
    """Give each place of state its turns."""
    findings = {state: Findings() for state in TURNS}
    for state in findings:
        run(spark, state, given, min(given.backlog, 10.0))  # warms up, and is not counted
    for state in TURNS:
        found = findings[state]
        drained, took_s = run(spark, state, given, given.backlog)
        found.rates.append(drained.events / took_s)
        paced, _ = run(spark, state, given, None)
        found.on_time_ms += paced.on_time_ms
        found.late_panes += paced.late
        found.state_bytes = max(found.state_bytes, drained.state_bytes, paced.state_bytes)
        tail = np.percentile(paced.on_time_ms, 99)
        print(f"{state}: {found.rates[-1]:,.0f} events/s, p99 {tail:,.0f} ms", flush=True)
    return findings


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure both, and print how they compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=20)
    parser.add_argument("--rate", type=float, default=100, help="events a second of each query")
    parser.add_argument("--payload", type=int, default=1_536)
    parser.add_argument("--backlog", type=float, default=60, help="seconds of events")
    parser.add_argument("--seconds", type=float, default=25, help="in real time, for each turn")
    parser.add_argument("--warmup", type=float, default=8)
    parser.add_argument("--budget", default="32 MB", help="for state on storage")
    parser.add_argument("--room", default="4 GB", help="for state in memory")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    spark = sw.session("local[2]", spark_driver_memory="2g")
    findings = compare(spark, given)
    spark.stop()
    print("| state | events/s | panes on time | p50 | p99 | late panes | state in memory |")
    print("|---|---|---|---|---|---|---|")
    for state, found in findings.items():
        print(found.row(state))
    tiered, memory = findings["tiered"], findings["memory"]
    print(
        f"tiered against memory: rate {tiered.rate / memory.rate:.2f}, "
        f"p99 {tiered.percentile_ms(99) / memory.percentile_ms(99):.2f}"
    )
    if given.json:
        content = {state: vars(found) for state, found in findings.items()}
        given.json.write_text(json.dumps(content, indent=1))


if __name__ == "__main__":
    main()
