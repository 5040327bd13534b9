"""Run a benchmark: each policy in a fresh process, one after the other, on the same events."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from slackwater.errors import SlackwaterError
from slackwater.testing.kafka_broker import KafkaBroker
from slackwater_lab.bench.calibration import Calibration
from slackwater_lab.bench.meter import TreeMeter
from slackwater_lab.bench.options import BenchOptions
from slackwater_lab.bench.provenance import provenance
from slackwater_lab.bench.repeats import summary
from slackwater_lab.bench.stock import better
from slackwater_lab.bench.worker import CALIBRATION, Task, tasks_of
from slackwater_lab.workloads.due import Span

Progress = Callable[[str, float], None]


def run_bench(options: BenchOptions, progress: Progress | None = None) -> list[dict[str, Any]]:
    """Measure every policy asked for, with every seed; return one result each, policy by policy.

    With a load to reach, what steps cost is measured first, and the rate follows for all policies.
    `progress` is told what is being done, and which share of all there is to do has been done.
    """
    tell: Progress = progress or (lambda text, share: None)
    if options.source == "kafka" and options.servers is None:
        tell("starting a broker", 0.0)
        with KafkaBroker() as broker:
            return run_bench(replace(options, servers=broker.servers), progress)
    total = run_count(options)
    done = 0

    def follow(task: Task) -> Progress:
        before = done / total
        return lambda text, share: tell(f"{task.label}: {text}", before + share / total)

    calibration = own_step_ms = None
    if options.load is not None:
        task = Task(options, CALIBRATION)
        calibration = run_calibration(task, follow(task))
        done += 1
        rate = calibration.rate_for(options.load, options.queries, options.distinct)
        options = replace(options, rate=float(f"{rate:.4g}"))
        own_step_ms = tuple(calibration.own_step_ms(options.rate, options.distinct))
    results: list[dict[str, Any]] = []
    for tasks in tasks_of(options, own_step_ms):
        tried = []
        for task in tasks:
            tried.append(run_task(task, follow(task)))
            done += 1
        results.append(better(tried))
        results.sort(key=lambda it: (options.policies.index(it["policy"]), it["seed"]))
        if options.json is not None:
            # After each, so that little is lost if one fails.
            write_json(options.json, results, calibration)
    tell("done", 1.0)
    return results


def run_count(options: BenchOptions) -> int:
    """Count the processes that a benchmark takes."""
    return sum(len(tasks) for tasks in tasks_of(options)) + (options.load is not None)


def run_task(task: Task, progress: Progress) -> dict[str, Any]:
    """Have one worker measure, and add what it used of the machine."""
    outcome, meter = _run_worker(task, progress)
    span = Span(outcome["first_ms"], outcome["until_ms"])
    result: dict[str, Any] = outcome["result"] | meter.usage(span) | provenance()
    if task.options.profile:
        result["samples"] = meter.samples(span)
    return result


def run_calibration(task: Task, progress: Progress) -> Calibration:
    """Have one worker find out what steps cost."""
    outcome, _ = _run_worker(task, progress)
    return Calibration.from_dict(outcome["result"])


def write_json(
    path: str | Path,
    results: Sequence[dict[str, Any]],
    calibration: Calibration | None = None,
) -> None:
    """Write results as a JSON list; as an object where there is more to tell than results.

    Then it holds `results`, a `summary` of each policy over its seeds, and the `calibration`.
    """
    content: Any = list(results)
    repeated = len({result["seed"] for result in results}) > 1
    if repeated or calibration is not None:
        content = {
            "results": content,
            "summary": summary(results) if repeated else None,
            "calibration": None if calibration is None else calibration.to_dict(),
        }
    Path(path).write_text(json.dumps(content, indent=2) + "\n")


def _run_worker(task: Task, progress: Progress) -> tuple[dict[str, Any], TreeMeter]:
    with tempfile.TemporaryDirectory(
        prefix="slackwater-bench-", dir=task.options.directory, ignore_cleanup_errors=True
    ) as directory:
        task_file, result_file, log_file = (
            Path(directory) / name for name in ("task.json", "result.json", "worker.log")
        )
        task_file.write_text(task.to_json())
        command = [sys.executable, "-m", "slackwater_lab.bench.worker"]
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
        outcome: dict[str, Any] = json.loads(result_file.read_text())
        if "error" in outcome:
            raise SlackwaterError(f"{task.label}: {outcome['error']}")
        return outcome, meter


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
