"""How much memory the state of past windows takes: ours on storage, ours in memory, and stock's.

    python lab/experiments/past_windows.py --systems tiered,memory,stock --json past.json

Each system gets the same events in a process of its own, with the same heap and the same limit for
all its processes together, as a container has: rows with a payload, in windows that late events may
still reach, so that the rows of every past window are kept. Nothing waits for time to pass: all
events have arrived. A point is written down when each window closes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from past_window_systems import SYSTEMS, Load, run_system

from slackwater.app.sizes import to_bytes

_MB = 1024 * 1024
_LOOK_EVERY_S = 0.1
_LOOKS = 5  # a process that is just being forked seems to hold all that its parent does
TABLE_AT = (1, 5, 10, 15, 20, 25, 30, 40, 50)


class Warden:
    """End a process and all that it has started once they hold too much, or take too long."""

    def __init__(self, process: subprocess.Popen[str], limit_bytes: int, seconds: float) -> None:
        """Begin to watch."""
        self._process = process
        self._limit_bytes = limit_bytes
        self._seconds = seconds
        self._over = threading.Event()
        self.reason: str | None = None
        self._thread = threading.Thread(target=self._watch, name="bench-warden", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End what is left."""
        self._over.set()
        self._thread.join()
        self._end()

    def _watch(self) -> None:
        ends = time.monotonic() + self._seconds
        above = 0
        while self.reason is None and not self._over.wait(_LOOK_EVERY_S):
            held = _resident(self._process.pid)
            above = above + 1 if held > self._limit_bytes else 0
            if above == _LOOKS:
                self.reason = f"held {held // _MB:,} MB, above {self._limit_bytes // _MB:,} MB"
            elif time.monotonic() > ends:
                self.reason = f"took more than {self._seconds:,.0f} s"
        if self.reason is not None:
            self._end()

    def _end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


def _resident(pid: int) -> int:
    """Add up what a process and its descendants hold."""
    held = 0
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                held += process.memory_info().rss
    return held


def measure(system: str, load: Load, seconds: float) -> dict[str, Any]:
    """Run one system in a child process; return how far it came, and what it held."""
    points: list[dict[str, Any]] = []
    finished = False
    with tempfile.TemporaryDirectory(prefix="slackwater-bench-") as directory:
        problems = Path(directory, "stderr")
        command = [sys.executable, __file__, "--child", system]
        # Into a file: a pipe that nobody reads fills up, and then the child waits for ever.
        with problems.open("w") as errors:
            process = subprocess.Popen(
                [*command, json.dumps(asdict(load)), directory],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        warden = Warden(process, to_bytes(load.limit, "limit"), seconds)
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            if line.startswith("{"):
                points.append(json.loads(line))
            else:
                said += line  # where the JVM says that its heap is full
            finished = finished or line.startswith("finished")
        process.wait()
        warden.close()
        said += problems.read_text(errors="replace")
    failure = None if finished else warden.reason or _cause(said)
    reached = points[-1]["past_windows"] if points else 0
    return {"system": system, "reached": reached, "failure": failure, "points": points}


def _cause(said: str) -> str:
    """Find in what a process said why it ended."""
    lines = said.strip().splitlines() or ["ended without a word"]
    memory = [line for line in lines if "OutOfMemoryError" in line]
    return (memory or lines[-1:])[0].strip()[:200]


def held_mb(point: dict[str, Any]) -> float:
    """Add up what Python and the JVM hold."""
    return float(point["python_mb"] + point["heap_mb"])


def summary(result: dict[str, Any]) -> str:
    """Say in a line what came out."""
    points = result["points"]
    if not points:
        return f"{result['system']}: nothing measured ({result['failure']})"
    held = [held_mb(point) for point in points]
    state = [point["state_mb"] for point in points if point["state_mb"] is not None]
    last = points[-1]
    text = (
        f"{result['system']}: {result['reached']} past windows; held {held[0]:,.0f} MB with one, "
        f"{max(held):,.0f} MB at most ({max(held) / held[0]:.2f} times), "
        f"{last['events'] / last['seconds']:,.0f} events/s"
    )
    text += f", state in memory at most {max(state):,.1f} MB" if state else ""
    return text + (f"; failed: {result['failure']}" if result["failure"] else "")


def table(results: Sequence[dict[str, Any]]) -> str:
    """Write what each system held at some numbers of past windows, as Markdown."""
    columns = [{point["past_windows"]: point for point in each["points"]} for each in results]
    lines = [
        f"| past windows | {' | '.join(result['system'] for result in results)} |",
        "|---" * (len(results) + 1) + "|",
    ]
    for past in TABLE_AT:
        if any(past in column for column in columns):
            cells = (
                f"{held_mb(column[past]):,.0f} MB" if past in column else "failed"
                for column in columns
            )
            lines.append(f"| {past} | {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(results: Sequence[dict[str, Any]], path: Path) -> None:
    """Plot memory over past windows, one line for each system."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for result in results:
        past = [point["past_windows"] for point in result["points"]]
        held = [held_mb(point) for point in result["points"]]
        axes.plot(past, held, label=result["system"])
        if result["failure"] and past:
            axes.plot(past[-1:], held[-1:], "x", color="black")
            axes.annotate("failed", (past[-1], held[-1]), (6, 0), textcoords="offset points")
    axes.set_xlabel("past windows that late events may still reach")
    axes.set_ylabel("memory held (MB)")
    axes.set_ylim(bottom=0)
    axes.legend()
    figure.savefig(path, dpi=100, format="png")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and write down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--windows", type=int, default=Load.windows)
    parser.add_argument("--rows", type=int, default=Load.rows)
    parser.add_argument("--payload", type=int, default=Load.payload)
    parser.add_argument("--budget", default=Load.budget)
    parser.add_argument("--heap", default=Load.heap)
    parser.add_argument("--limit", default=Load.limit)
    parser.add_argument("--seconds", type=float, default=100.0, help="at most, for each system")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.child:
        system, load, directory = given.child
        run_system(system, Load(**json.loads(load)), Path(directory))
        return
    systems = given.systems.split(",")
    for system in systems:
        if system not in SYSTEMS:
            parser.error(f"--systems {system!r}: use {', '.join(SYSTEMS)}")
    load = Load(given.windows, given.rows, given.payload, given.budget, given.heap, given.limit)
    results = []
    for system in systems:
        results.append(measure(system, load, given.seconds))
        print(summary(results[-1]), flush=True)
    print(table(results))
    if given.json:
        given.json.write_text(json.dumps({"load": asdict(load), "results": results}, indent=1))
    if given.plot:
        draw(results, given.plot)


if __name__ == "__main__":
    main()
