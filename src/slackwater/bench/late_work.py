"""What late work on storage costs results that are on time, against state kept in memory.

    python -m slackwater.bench.late_work --seconds 40

The same events, in real time, once for each place of state: queries over rows, whose past windows
late events go on amending. Reported are the latencies of panes that were on time, and the rate.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import slackwater as sw
from slackwater.progress.distributions import ExponentialDelay
from slackwater.runtime.reports import StepReport
from slackwater.spark.sources.generator import Generator

WINDOW_S = 2


class Latencies:
    """Note how long after its closing watermark each pane was out, once all is warm."""

    def __init__(self, from_ms: float) -> None:
        """Leave out what comes before a moment."""
        self._from_ms = from_ms
        self.on_time_ms: list[float] = []
        self.late = self.events = 0

    def step_committed(self, report: StepReport) -> None:
        """Take in a step's panes."""
        if report.committed_ms < self._from_ms:
            return
        self.events += report.events
        for pane in report.panes:
            if pane.timing != "on_time":
                self.late += 1
            elif pane.propagation_ms is not None:
                self.on_time_ms.append(pane.propagation_ms)


def source(rate: float, payload: int, seed: int) -> Generator:
    """Describe events of which a third is late."""
    words = payload // 5
    text = f"array_join(transform(sequence(1, {words}), i -> hex(hash(h, i) & 65535)), ' ')"
    return sw.generator(
        rate=rate,
        delay=ExponentialDelay(scale_ms=WINDOW_S * 500.0),
        watermark_lag=f"{WINDOW_S * 500} ms",
        columns={"key": "key", "value": "h & 65535", "payload": text},
        keys=20_000,
        seed=seed,
    )


def run(state: Any, given: argparse.Namespace) -> Latencies:
    """Run all queries with one place for state."""
    app = sw.App("late")
    windows = app.source("events").window(sw.tumbling(f"{WINDOW_S} s", offset="spread"), by="key")
    with tempfile.TemporaryDirectory(prefix="slackwater-bench-") as directory:
        windows.aggregate(n=sw.count(), longest=sw.max("payload")).to(
            sw.parquet(Path(directory, "out")), lateness=f"{WINDOW_S * 20} s", staleness=0.05
        )
        spark = sw.session("local[2]", spark_driver_memory="2g")
        with sw.Runtime(
            spark, journal=Path(directory, "state"), memory="64 MB", state=state
        ) as runtime:
            for seed in range(given.queries):
                runtime.deploy(app, f"late-{seed}", events=source(given.rate, given.payload, seed))
            runtime.warm()
            seen = Latencies((time.time() + given.warmup) * 1_000)
            runtime.observe(seen)
            runtime.run(seconds=given.warmup + given.seconds)
            for query in runtime.queries():
                assert query.quarantined is None, query.quarantined
        spark.stop()
    return seen


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure both, and print how they compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=4)
    parser.add_argument("--rate", type=float, default=2_000)
    parser.add_argument("--payload", type=int, default=1_500)
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--warmup", type=float, default=15)
    given = parser.parse_args(arguments)
    tails, rates = {}, {}
    for state in ("memory", "tiered"):
        seen = run(state, given)
        middle, tail = np.percentile(seen.on_time_ms, [50, 99])
        tails[state], rates[state] = tail, seen.events / given.seconds
        print(
            f"{state}: {len(seen.on_time_ms)} panes on time, p50 {middle:,.0f} ms, "
            f"p99 {tail:,.0f} ms; {seen.late} late panes; {rates[state]:,.0f} events/s",
            flush=True,
        )
    print(
        f"tiered against memory: p99 {tails['tiered'] / tails['memory']:.2f}, "
        f"rate {rates['tiered'] / rates['memory']:.2f}"
    )


if __name__ == "__main__":
    main()
