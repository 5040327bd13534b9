"""Run a benchmark: each policy in a fresh process, one after the other, on the same events."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from slackwater.bench.due import Span
from slackwater.bench.meter import TreeMeter
from slackwater.bench.options import BenchOptions
from slackwater.bench.provenance import provenance
from slackwater.bench.stock import better
from slackwater.bench.worker import Task, tasks_of
from slackwater.errors import SlackwaterError

Progress = Callable[[str, float], None]


def run_bench(options: BenchOptions, progress: Progress | None = None) -> list[dict[str, Any]]:
    """Measure every policy asked for; return one result each, in the order asked.

    `progress` is told what is being done, and which share of all there is to do has been done.
    """
    tell: Progress = progress or (lambda text, share: None)
    plan = tasks_of(options)
    total = sum(len(tasks) for tasks in plan)
    results: list[dict[str, Any]] = []
    done = 0
    for tasks in plan:
        tried = []
        for task in tasks:
            before = done / total

            def tell_share(
                text: str, share: float, task: Task = task, before: float = before
            ) -> None:
                tell(f"{task.label}: {text}", before + share / total)

            tried.append(run_task(task, tell_share))
            done += 1
        results.append(better(tried))
        if options.json is not None:
            write_json(options.json, results)  # after each, so that little is lost if one fails
    tell("done", 1.0)
    return results


def run_task(task: Task, progress: Progress) -> dict[str, Any]:
    """Have one worker measure, and add what it used of the machine."""
    with tempfile.TemporaryDirectory(
        prefix="slackwater-bench-", dir=task.options.directory, ignore_cleanup_errors=True
    ) as directory:
        task_file, result_file, log_file = (
            Path(directory) / name for name in ("task.json", "result.json", "worker.log")
        )
        task_file.write_text(task.to_json())
        command = [sys.executable, "-m", "slackwater.bench.worker"]
        with (
            log_file.open("w") as log,
            subprocess.Popen(
                [*command, str(task_file), str(result_file)],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            ) as worker,
        ):
            try:
                with TreeMeter(worker.pid) as meter:
                    _follow(worker, progress)
            except BaseException:
                _end(worker)
                raise
        if worker.returncode != 0 or not result_file.exists():
            tail = "\n".join(log_file.read_text(errors="replace").splitlines()[-20:])
            raise SlackwaterError(
                f"the benchmark of {task.label} failed (exit code {worker.returncode}); "
                f"the end of its log:\n{tail}"
            )
        outcome = json.loads(result_file.read_text())
        usage = meter.usage(Span(outcome["first_ms"], outcome["until_ms"]))
        result: dict[str, Any] = outcome["result"] | usage | provenance()
        return result


def write_json(path: str | Path, results: Sequence[dict[str, Any]]) -> None:
    """Write results as a JSON list, one object for each policy."""
    Path(path).write_text(json.dumps(list(results), indent=2) + "\n")


def _follow(worker: subprocess.Popen[str], progress: Progress) -> None:
    assert worker.stdout is not None
    for line in worker.stdout:
        if line.startswith('{"progress"'):
            told = json.loads(line)
            progress(told["progress"], told["share"])
    worker.wait()


def _end(worker: subprocess.Popen[str]) -> None:
    """End a worker and its JVM, when the benchmark is interrupted."""
    try:
        family = [psutil.Process(worker.pid), *psutil.Process(worker.pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for process in family:
        if process.is_running():
            process.terminate()
    psutil.wait_procs(family, timeout=5)
