"""Measure one policy in a process of its own, so that none inherits another's warmth or waste.

    python -m slackwater.bench.worker task.json result.json

Progress goes to standard output, one JSON object to a line.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import slackwater as sw
from slackwater.bench.options import STOCK, BenchOptions
from slackwater.bench.ours import run_ours
from slackwater.bench.stock import SETTINGS, run_stock, triggers

DRIVER_MEMORY = "2g"


@dataclass(frozen=True)
class Task:
    """Name what one worker measures; `trigger` only for Structured Streaming."""

    options: BenchOptions
    policy: str
    trigger: str | None = None

    @property
    def label(self) -> str:
        """Say it in a word or two."""
        return self.policy if self.trigger is None else f"{self.policy}, trigger {self.trigger}"

    def to_json(self) -> str:
        """Write the task down for the worker."""
        values = {"options": self.options.to_dict(), "policy": self.policy, "trigger": self.trigger}
        return json.dumps(values)

    @classmethod
    def from_json(cls, text: str) -> Task:
        """Read what `to_json` wrote."""
        values = json.loads(text)
        return cls(BenchOptions.from_dict(values["options"]), values["policy"], values["trigger"])


def tasks_of(options: BenchOptions) -> list[list[Task]]:
    """List what to measure for each policy: Structured Streaming is tried with each trigger."""
    return [
        [Task(options, policy, trigger) for trigger in triggers(options)]
        if policy == STOCK
        else [Task(options, policy)]
        for policy in options.policies
    ]


def perform(task: Task, directory: Path) -> dict[str, Any]:
    """Start Spark, measure, and return the result with the span of time it is about."""
    settings = {"spark_driver_memory": DRIVER_MEMORY}
    _tell("starting Spark", 0.0)
    if task.trigger is not None:
        spark = sw.session("local[*]", **settings, **SETTINGS)
        result, span = run_stock(spark, task.options, task.trigger, directory, progress=_tell)
    else:
        spark = sw.session("local[*]", **settings)
        result, span = run_ours(spark, task.options, task.policy, directory, progress=_tell)
    spark.stop()
    return {"result": result, "first_ms": span.first_ms, "until_ms": span.until_ms}


def _tell(text: str, share: float) -> None:
    print(json.dumps({"progress": text, "share": round(share, 3)}), flush=True)


def main(arguments: list[str]) -> None:
    """Do the task in the one file, and write what came of it to the other."""
    task_file, result_file = (Path(argument) for argument in arguments)
    outcome = perform(Task.from_json(task_file.read_text()), result_file.parent)
    result_file.write_text(json.dumps(outcome))


if __name__ == "__main__":
    main(sys.argv[1:])
