"""How much memory the state of past windows takes: ours on storage, ours in memory, and stock's.

    python -m slackwater.bench.past_windows --systems tiered,memory,stock --json past.json

Each system gets the same events in a process of its own, with the same heap: rows with a payload,
in windows that late events may still reach, so that the rows of every past window are kept. Nothing
waits for time to pass: all events have arrived. What the process tree holds is read from the
operating system when each window closes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import slackwater as sw
from slackwater.app.sizes import to_bytes
from slackwater.runtime.reports import StepReport
from slackwater.scheduling.snapshot import Decision, FleetSnapshot
from slackwater.spark.latebound import fixed_specification
from slackwater.spark.sources.base import Range
from slackwater.spark.sources.generator import Generator

SYSTEMS = ("tiered", "memory", "stock")
WINDOW_S = 20
START_MS = 1_700_000_000_000
_MB = 1024 * 1024


@dataclass(frozen=True)
class Load:
    """Describe the events: so many windows of so many rows, each with a payload."""

    windows: int = 51
    rows: int = 20_000
    payload: int = 1_500
    budget: str = "256 MB"
    heap: str = "1 GB"
    seed: int = 7

    @property
    def events(self) -> int:
        """Count them all."""
        return self.windows * self.rows

    def source(self) -> Generator:
        """Describe the input: text that compresses about as prose does."""
        words = self.payload // 5
        text = f"array_join(transform(sequence(1, {words}), i -> hex(hash(h, i) & 65535)), ' ')"
        return sw.generator(
            rate=self.rows / WINDOW_S,
            columns={"key": "key", "value": "h & 65535", "payload": text},
            limit=self.events + 2 * self.rows,  # so that the stream has not ended, nor its windows
            start_ms=START_MS,
            seed=self.seed,
        )


@dataclass(frozen=True)
class Point:
    """Say what was held once so many windows had passed."""

    past_windows: int
    process_mb: float  # of the whole process tree, as the operating system counts
    state_mb: float | None  # of window state in the driver
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


class Watcher:
    """Write down a point whenever a window closes."""

    def __init__(self, runtime: sw.Runtime) -> None:
        """Begin."""
        self._runtime, self._started, self._seen, self._events = runtime, time.time(), 0, 0

    def step_committed(self, report: StepReport) -> None:
        """Count windows that closed for the first time."""
        self._events += report.events
        closed = sum(pane.timing == "on_time" for pane in report.panes)
        if closed:
            self._seen += closed
            tell(self._seen, self._started, self._events, self._runtime.state_bytes / _MB)


def tell(past: int, started: float, events: int, state_mb: float | None = None) -> None:
    """Print a point for the parent to read."""
    tree = psutil.Process()
    held = sum(each.memory_info().rss for each in (tree, *tree.children(recursive=True)))
    point = Point(past, held / _MB, state_mb, events, time.time() - started)
    print(json.dumps(asdict(point)), flush=True)


def average(rows: DataFrame) -> DataFrame:
    """Compute what needs all rows of a window."""
    return rows.groupBy("key").agg({"value": "avg", "payload": "max"})


def run_ours(spark: SparkSession, load: Load, state: Any, directory: Path) -> None:
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
    ) as runtime:
        runtime.deploy(app, "average", events=load.source())
        runtime.warm()
        runtime.observe(Watcher(runtime))
        runtime.run(until=lambda: _closed(runtime) >= load.windows - 1)
        for query in runtime.queries():
            assert query.quarantined is None, query.quarantined


def _closed(runtime: sw.Runtime) -> int:
    return runtime.queries()[0].panes


def run_stock(spark: SparkSession, load: Load, directory: Path) -> None:
    """Keep the rows of each window in Structured Streaming's state, until late events are over.

    `applyInPandasWithState` with its usual in-memory store; one window arrives in each batch.
    """
    rows = _all_rows(spark, load)
    window = f"CAST(unix_millis(event_time) - pmod(unix_millis(event_time), {WINDOW_S}000) AS LONG)"
    for number in range(load.windows):
        first_ms = START_MS - START_MS % (WINDOW_S * 1_000) + number * WINDOW_S * 1_000
        mine = rows.where(f"{window} = {first_ms}L").coalesce(1)
        mine.write.parquet(str(directory / "input" / f"part={number:03d}"))
    stream = (
        spark.readStream.schema(rows.schema)
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
            "payloads array<string>, total long",
            "update",
            "EventTimeTimeout",
        )
    )
    started = time.time()
    query = (
        kept.writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .start()
    )
    told = 0
    while query.isActive and told < load.windows:
        time.sleep(0.2)
        last = query.lastProgress
        if last is not None and last["batchId"] + 1 > told:
            told = last["batchId"] + 1
            tell(told, started, told * load.rows)
    if query.exception() is not None:
        raise SystemExit(str(query.exception())[:300])
    query.stop()


def _keep(key: Any, parts: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """Add a batch's rows to those kept, and compute over all."""
    payloads, total = (list(state.get[0]), state.get[1]) if state.exists else ([], 0)
    for part in parts:
        payloads += part["payload"].tolist()
        total += int(part["value"].sum())
    state.update((payloads, total))
    yield pd.DataFrame({"window": [key[0]], "mean": [total / max(len(payloads), 1)]})


def _all_rows(spark: SparkSession, load: Load) -> DataFrame:
    """Make all events in one batch."""
    reader = load.source().open(spark)
    cells = [
        [json.dumps([reader.entry(0, Range(0, first, first + load.rows, load.rows))])]
        for first in range(0, load.events, load.rows)
    ]
    entries = fixed_specification(spark, cells).selectExpr(
        f"explode(from_json(s0, 'array<{reader.entry_type}>')) AS r"
    )
    return reader.expand(entries).select("event_time", "key", "value", "payload")


def child(system: str, load: Load, directory: Path) -> None:
    """Run one system in this process, with no more memory than it may have."""
    heap = to_bytes(load.heap, "heap")
    spark = sw.session("local[2]", spark_driver_memory=f"{heap // _MB}m")
    # The driver's Python has the same limit, beyond what it needs when nothing runs.
    limit = psutil.Process().memory_info().vms + heap
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    if system == "stock":
        run_stock(spark, load, directory)
    else:
        run_ours(spark, load, system, directory)
    print("finished", flush=True)
    os._exit(0)  # what is left in temporary directories is the parent's to remove


def measure(system: str, load: Load, seconds: float) -> dict[str, Any]:
    """Run one system in a child process; return how far it came, and what it held."""
    points: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="slackwater-bench-") as directory:
        told = json.dumps(asdict(load))
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "slackwater.bench.past_windows",
                "--child",
                system,
                told,
                directory,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        timer = threading.Timer(seconds, _end, [process])
        timer.start()
        assert process.stdout is not None
        finished = False
        for line in process.stdout:
            if line.startswith("{"):
                points.append(json.loads(line))
            finished = finished or line.startswith("finished")
        _, problem = process.communicate()
        timer.cancel()
        _end(process)
    reached = points[-1]["past_windows"] if points else 0
    failure = None if finished else (problem.strip().splitlines() or ["killed"])[-1][:200]
    return {"system": system, "reached": reached, "failure": failure, "points": points}


def _end(process: subprocess.Popen[str]) -> None:
    """End a child and all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def summary(result: dict[str, Any]) -> str:
    """Say in a line what came out."""
    points = result["points"]
    if not points:
        return f"{result['system']}: nothing measured ({result['failure']})"
    settled = [point for point in points if point["past_windows"] >= 3]
    held = [point["process_mb"] for point in settled or points]
    state = [point["state_mb"] for point in points if point["state_mb"] is not None]
    last = points[-1]
    text = (
        f"{result['system']}: {result['reached']} past windows, process {held[0]:,.0f} MB "
        f"at first, {max(held):,.0f} MB at most, {last['events'] / last['seconds']:,.0f} events/s"
    )
    text += f", state in memory at most {max(state):,.1f} MB" if state else ""
    return text + (f"; failed: {result['failure']}" if result["failure"] else "")


def draw(results: Sequence[dict[str, Any]], path: Path) -> None:
    """Plot memory over past windows, one line for each system."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for result in results:
        past = [point["past_windows"] for point in result["points"]]
        held = [point["process_mb"] for point in result["points"]]
        axes.plot(past, held, label=result["system"])
        if result["failure"] and past:
            axes.plot(past[-1:], held[-1:], "x", color="black")
    axes.set_xlabel("past windows that late events may still reach")
    axes.set_ylabel("memory of the process tree (MB)")
    axes.set_ylim(bottom=0)
    axes.legend()
    figure.savefig(path, dpi=144, format="png")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and write down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--windows", type=int, default=Load.windows)
    parser.add_argument("--rows", type=int, default=Load.rows)
    parser.add_argument("--payload", type=int, default=Load.payload)
    parser.add_argument("--budget", default=Load.budget)
    parser.add_argument("--heap", default=Load.heap)
    parser.add_argument("--seconds", type=float, default=180.0, help="at most, for each system")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.child:
        system, load, directory = given.child
        child(system, Load(**json.loads(load)), Path(directory))
        return
    load = Load(given.windows, given.rows, given.payload, given.budget, given.heap)
    results = []
    for system in given.systems.split(","):
        if system not in SYSTEMS:
            parser.error(f"--systems {system!r}: use {', '.join(SYSTEMS)}")
        results.append(measure(system, load, given.seconds))
        print(summary(results[-1]), flush=True)
    if given.json:
        given.json.write_text(json.dumps({"load": asdict(load), "results": results}, indent=1))
    if given.plot:
        draw(results, given.plot)


if __name__ == "__main__":
    main()
