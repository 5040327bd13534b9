"""Run the workload on Flink, at its best, and measure.

All queries are one job in an embedded cluster, in one JVM. Each is one chain of operators in one
task, from the generated event to a sink that stores nothing: no record is serialised or exchanged.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from slackwater.errors import MissingRequirementError, SlackwaterError
from slackwater_lab.bench.figures import Measured, figures
from slackwater_lab.bench.flink.installation import MISSING, FlinkInstallation
from slackwater_lab.bench.flink.job import FlinkJob
from slackwater_lab.bench.inputs import query_name
from slackwater_lab.bench.options import FLINK_DURABLE, BenchOptions
from slackwater_lab.bench.ours import DRAIN_MS, Progress
from slackwater_lab.workloads.due import Span, WindowKey

# Flink's own default is 200 ms.
INTERVALS_MS: Final = {f"watermarks every {each_ms} ms": each_ms for each_ms in (50, 200)}
_END_S: Final = 15.0


def run_flink(
    options: BenchOptions,
    policy: str,
    interval: str,
    directory: Path,
    *,
    progress: Progress = lambda text, share: None,
) -> tuple[dict[str, Any], Span]:
    """Measure one watermark interval; return its results, and the span that they are about."""
    durable = policy == FLINK_DURABLE
    job = FlinkJob(options, INTERVALS_MS[interval], checkpoints=durable)
    watched = Watched(job)
    with running(job, directory) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                watched.take(json.loads(line))
            if watched.over(time.time() * 1_000, progress):
                break
        else:
            raise SlackwaterError(f"the Flink job ended early (exit code {process.wait()})")
    assert watched.span is not None
    result = figures(options, policy, watched.measured(interval))
    return result | {"durable": durable, "sink": "none"}, watched.span


@contextmanager
def running(job: FlinkJob, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """Start the job, and end it by closing its input: so it ends, too, if this process does."""
    installation = FlinkInstallation.find()
    if installation is None:
        raise MissingRequirementError(f"Flink is {MISSING}")
    spec_file = directory / "flink.json"
    spec_file.write_text(json.dumps(job.spec(directory)))
    with subprocess.Popen(
        installation.command("YsbJob", str(spec_file)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()


@dataclass
class Watched:
    """Gather what the job tells: when its streams started, its windows, the events so far."""

    job: FlinkJob
    span: Span | None = None
    due: dict[WindowKey, float] = field(default_factory=dict)
    out: dict[WindowKey, float] = field(default_factory=dict)
    windows: list[dict[str, Any]] = field(default_factory=list)
    moments_ms: list[float] = field(default_factory=list)
    events: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    _start_ms: float = 0.0

    def take(self, told: dict[str, Any]) -> None:
        """Take in one line."""
        if "start_ms" in told:
            options = self.job.options
            self._start_ms = told["start_ms"]
            first_ms = self._start_ms + options.warmup * 1_000
            self.span = Span(first_ms, first_ms + options.seconds * 1_000)
            self.due = self.job.due(told["start_ms"], self.span)
        elif "end_ms" in told:
            self.windows.append(told)
            key = (query_name(told["query"]), told["end_ms"])
            self.out.setdefault(key, told["out_ms"])  # windows before the due ones do no harm
        elif "events" in told:
            self.moments_ms.append(told["at_ms"])
            self.events.append(told["events"])
            self.late.append(told["late"])

    def over(self, now_ms: float, progress: Progress) -> bool:
        """Tell whether all windows that are due have fired, or the drain is over."""
        if self.span is None:
            progress("starting queries", 0.0)
            return False
        whole_ms = self.span.until_ms - self._start_ms
        text = "warming up" if now_ms < self.span.first_ms else "measuring"
        progress(text, min(1.0, max(0.0, now_ms - self._start_ms) / whole_ms))
        if not self.moments_ms or self.moments_ms[-1] < self.span.until_ms:
            return False
        return self.due.keys() <= self.out.keys() or now_ms >= self.span.until_ms + DRAIN_MS

    def measured(self, variant: str) -> Measured:
        """Put together what was seen within the span."""
        assert self.span is not None
        return Measured(
            span=self.span,
            due=self.due,
            out=self.out,
            events=self._within(self.events),
            steps=0,  # records flow: there are none
            served=0,
            late_rows=self._within(self.late),
            trigger=variant,
        )

    def _within(self, counted: list[float]) -> int:
        """Tell by how much a count, taken once a second, grew within the span."""
        assert self.span is not None
        edges = [self.span.first_ms, self.span.until_ms]
        before, after = np.interp(edges, self.moments_ms, counted)
        return round(float(after - before))
