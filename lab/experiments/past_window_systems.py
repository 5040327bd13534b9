"""Systems that keep the rows of past windows, each told to say what it holds as windows close."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import slackwater as sw
from slackwater.app.sizes import to_bytes
from slackwater.runtime.reports import StepReport
from slackwater.scheduling.snapshot import Decision, FleetSnapshot
from slackwater.spark.latebound import fixed_specification
from slackwater.spark.sources.base import Range
from slackwater.spark.sources.generator import Generator
from slackwater_lab.workloads.payloads import digest_sql

SYSTEMS = ("tiered", "memory", "stock")
WINDOW_S = 20
WARM_WINDOWS = 5
START_MS = 1_700_000_000_000  # where a window begins
_MB = 1024 * 1024


@dataclass(frozen=True)
class Load:
    """Describe the events: so many past windows of so many rows, each with a payload."""

    windows: int = 50
    rows: int = 10_000
    payload: int = 2_048
    budget: str = "64 MB"  # of window state, for `tiered`
    heap: str = "512 MB"  # of the JVM
    limit: str = "2560 MB"  # of all processes together, as a container's
    seed: int = 7

    @property
    def events(self) -> int:
        """Count the events of all windows, that which closes the last included."""
        return (self.windows + 1) * self.rows

    def source(self) -> Generator:
        """Describe the input."""
        return sw.generator(
            rate=self.rows / WINDOW_S,
            columns={"key": "key", "value": "h & 65535", "payload": digest_sql(self.payload)},
            limit=self.events + 2 * self.rows,  # so that the stream has not ended, nor its windows
            start_ms=START_MS,
            seed=self.seed,
        )


@dataclass(frozen=True)
class Point:
    """Say what was held once so many windows had passed."""

    past_windows: int
    python_mb: float  # by Python's processes
    heap_mb: float  # by the JVM, in its heap after a collection
    resident_mb: float  # by all processes, as the operating system counts
    state_mb: float | None  # window state in the driver, as the runtime counts
    events: int
    seconds: float


@dataclass(frozen=True)
class WindowSteps:
    """Read half a window in each step, so that windows close one after the other."""

    rows: int
    name: str = "window_steps"

    def decide(self, fleet: FleetSnapshot) -> Decision:
        """Limit every step."""
        decision = sw.round_robin().decide(fleet)
        steps = tuple(replace(step, max_events=self.rows // 2) for step in decision.steps)
        return replace(decision, steps=steps)


class Teller:
    """Print points for the parent process to read. Looking is not counted as time that passes."""

    def __init__(self, spark: SparkSession) -> None:
        """Begin to count time."""
        self._jvm: Any = spark.sparkContext._jvm
        self._started = time.perf_counter()

    def tell(self, past: int, events: int, state_mb: float | None = None) -> None:
        """Collect garbage, so that what is held is told from what could be freed; print a point."""
        looked = time.perf_counter()
        pa.default_memory_pool().release_unused()
        self._jvm.java.lang.System.gc()
        heap = self._jvm.java.lang.management.ManagementFactory.getMemoryMXBean()
        heap_bytes = int(heap.getHeapMemoryUsage().getUsed())
        resident = python = 0
        for process in (me := psutil.Process(), *me.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                resident += process.memory_info().rss
                if process.name() != "java":
                    python += process.memory_full_info().pss  # forked workers share much
        sizes = (python / _MB, heap_bytes / _MB, resident / _MB, state_mb)
        point = Point(past, *sizes, events, looked - self._started)
        print(json.dumps(asdict(point)), flush=True)
        self._started += time.perf_counter() - looked


class WindowWatcher:
    """Tell a point whenever a window closes for the first time."""

    def __init__(self, runtime: sw.Runtime, teller: Teller) -> None:
        """Begin."""
        self._runtime, self._teller = runtime, teller
        self._closed = self._events = 0

    def step_committed(self, report: StepReport) -> None:
        """Count events and windows."""
        self._events += report.events
        closed = sum(pane.timing == "on_time" for pane in report.panes)
        if closed:
            self._closed += closed
            self._teller.tell(self._closed, self._events, self._runtime.state_bytes / _MB)


def average(rows: DataFrame) -> DataFrame:
    """Compute what needs all rows of a window."""
    return rows.groupBy("key").agg({"value": "avg", "payload": "max"})


def run_ours(
    spark: SparkSession, load: Load, state: Any, directory: Path, *, tells: bool = True
) -> None:
    """Run Slackwater with one of its two places for state."""
    app = sw.App("average")
    app.source("events").window(sw.tumbling(f"{WINDOW_S} seconds")).apply(average).to(
        sw.parquet(directory / "out"), lateness=f"{WINDOW_S * (load.windows + 5)} seconds"
    )
    with sw.Runtime(
        spark,
        journal=directory / "state",
        memory=load.budget,
        state=state,
        policy=WindowSteps(load.rows),
        slots=1,  # so that nothing runs, and holds rows, while what is held is counted
    ) as runtime:
        runtime.deploy(app, "average", events=load.source())
        runtime.warm()
        if tells:
            runtime.observe(WindowWatcher(runtime, Teller(spark)))
        runtime.run(until=lambda: _over(runtime, load))
        if (problem := runtime.queries()[0].quarantined) is not None:
            raise SystemExit(f"quarantined: {problem}")


def _over(runtime: sw.Runtime, load: Load) -> bool:
    """Tell whether all windows have passed, or none will any more."""
    (query,) = runtime.queries()
    return query.panes >= load.windows or query.quarantined is not None


def run_stock(spark: SparkSession, load: Load, directory: Path) -> None:
    """Keep the rows of each window in Structured Streaming's state, until late events are over.

    `applyInPandasWithState` with its usual in-memory store; one window arrives in each batch.
    """
    for number in range(load.windows):
        target = directory / "input" / f"part={number:03d}"
        _window_rows(spark, load, number).write.parquet(str(target))
    window = f"CAST(unix_millis(event_time) - pmod(unix_millis(event_time), {WINDOW_S}000) AS LONG)"
    stream = (
        spark.readStream.schema("event_time timestamp, key long, value long, payload string")
        .option("maxFilesPerTrigger", 1)
        .option("recursiveFileLookup", "true")
        .parquet(str(directory / "input"))
    )
    kept = (
        stream.withColumn("window", F.expr(window))
        .withWatermark("event_time", f"{WINDOW_S * (load.windows + 5)} seconds")
        .groupBy("window")
        .applyInPandasWithState(
            _keep,
            "window long, mean double",
            "payloads string, rows long, total long",
            "update",
            "EventTimeTimeout",
        )
    )
    teller, told = Teller(spark), 0
    query = (
        kept.writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .start()
    )
    while query.isActive and told < load.windows:
        time.sleep(0.1)
        last = query.lastProgress
        if last is not None and last["batchId"] + 1 > told:
            told = last["batchId"] + 1
            teller.tell(told, told * load.rows)
    if (problem := query.exception()) is not None:
        raise SystemExit(str(problem))
    query.stop()


def _keep(key: Any, parts: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """Add a batch's rows to those kept, and compute over all."""
    kept, rows, total = state.get if state.exists else ("", 0, 0)
    payloads = [kept] if rows else []
    for part in parts:
        payloads += part["payload"].tolist()
        rows += len(part)
        total += int(part["value"].sum())
    state.update(("\n".join(payloads), rows, total))
    yield pd.DataFrame({"window": [key[0]], "mean": [total / max(rows, 1)]})


def _window_rows(spark: SparkSession, load: Load, number: int) -> DataFrame:
    """Make the events of one window, in one partition."""
    reader = load.source().open(spark)
    first = number * load.rows
    entry = reader.entry(0, Range(0, first, first + load.rows, load.rows))
    entries = fixed_specification(spark, [[json.dumps([entry])]]).selectExpr(
        f"explode(from_json(s0, 'array<{reader.entry_type}>')) AS r"
    )
    rows = reader.expand(entries).coalesce(1)
    columns = ("event_time", "CAST(key AS LONG)", "CAST(value AS LONG)", "payload")
    return rows.selectExpr(*columns).toDF("event_time", "key", "value", "payload")


def run_system(system: str, load: Load, directory: Path) -> None:
    """Run one system in this process; its JVM ends when its heap is full."""
    heap_mb = to_bytes(load.heap, "heap") // _MB
    spark = sw.session(
        "local[2]",
        spark_driver_memory=f"{heap_mb}m",
        spark_driver_extraJavaOptions="-XX:+ExitOnOutOfMemoryError",
    )
    if system == "stock":
        run_stock(spark, load, directory)
    else:
        # What a process holds in its first moments is not what it holds for one window.
        warming = replace(load, windows=WARM_WINDOWS)
        run_ours(spark, warming, system, directory / "warming", tells=False)
        run_ours(spark, load, system, directory)
    print("finished", flush=True)
    os._exit(0)  # what is left in temporary directories is the parent's to remove
