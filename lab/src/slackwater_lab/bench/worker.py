"""Measure one policy in a process of its own, so that none inherits another's warmth or waste.

    python -m slackwater_lab.bench.worker task.json result.json

Progress goes to standard output, one JSON object to a line.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import slackwater as sw
from slackwater.errors import SlackwaterError
from slackwater_lab.bench.calibrating import calibrate
from slackwater_lab.bench.connector import connector_jars
from slackwater_lab.bench.flink.running import INTERVALS_MS, run_flink
from slackwater_lab.bench.inputs import inputs_of
from slackwater_lab.bench.options import FLINK, FLINK_DURABLE, STOCK, BenchOptions, variant_text
from slackwater_lab.bench.ours import run_ours
from slackwater_lab.bench.stock import SETTINGS, run_stock, triggers
from slackwater_lab.bench.stock_topics import run_stock_on_topics
from slackwater_lab.bench.topic_warming import warm_up_on_topics
from slackwater_lab.bench.trials import warm_up

DRIVER_MEMORY = "2g"
COMPILING_S = 10.0  # at least, before the streams start
COMPILING_TOPICS_S = 40.0  # the broker's own code is compiled meanwhile, too
CALIBRATION: Final = "calibration"  # in place of a policy: measure what steps cost


@dataclass(frozen=True)
class Task:
    """Name what one worker measures.

    `trigger` is the setting of a peer with several. `own_step_ms` is how long a step takes for each
    of the pipelines, where that has been measured.
    """

    options: BenchOptions
    policy: str
    trigger: str | None = None
    own_step_ms: tuple[float, ...] | None = None

    @property
    def label(self) -> str:
        """Say it in a word or two."""
        words = [self.policy]
        if self.trigger is not None:
            words.append(variant_text(self.policy, self.trigger))
        if self.options.repeat > 1 and self.policy != CALIBRATION:
            words.append(f"seed {self.options.seed}")
        return ", ".join(words)

    def to_json(self) -> str:
        """Write the task down for the worker."""
        return json.dumps({**asdict(self), "options": self.options.to_dict()})

    @classmethod
    def from_json(cls, text: str) -> Task:
        """Read what `to_json` wrote."""
        values = json.loads(text)
        own_step_ms = values["own_step_ms"]
        return cls(
            options=BenchOptions.from_dict(values["options"]),
            policy=values["policy"],
            trigger=values["trigger"],
            own_step_ms=None if own_step_ms is None else tuple(own_step_ms),
        )


def tasks_of(
    options: BenchOptions, own_step_ms: tuple[float, ...] | None = None
) -> list[list[Task]]:
    """List what to measure for each result: peers are tried with several settings.

    Repeats follow each other as a whole, and each begins with another policy: so no policy is
    always the one that finds the machine cool, or busy.
    """
    settings: dict[str, tuple[str, ...]] = {
        STOCK: triggers(options),
        FLINK: tuple(INTERVALS_MS),
        FLINK_DURABLE: tuple(INTERVALS_MS),
    }
    groups = []
    for turn in range(options.repeat):
        seeded = replace(options, seed=options.seed + turn)
        shift = turn % len(options.policies)
        for policy in (*options.policies[shift:], *options.policies[:shift]):
            tried = settings.get(policy, (None,))
            groups.append([Task(seeded, policy, setting, own_step_ms) for setting in tried])
    return groups


def perform(task: Task, directory: Path) -> dict[str, Any]:
    """Start the engine, measure, and return the result with the span of time it is about."""
    if task.policy in (FLINK, FLINK_DURABLE):
        assert task.trigger is not None
        result, span = run_flink(task.options, task.policy, task.trigger, directory, progress=_tell)
        return {"result": result, "first_ms": span.first_ms, "until_ms": span.until_ms}
    inputs_of(task.options, start_ms=0)  # what cannot be read is told before Spark starts
    settings = {"spark_driver_memory": DRIVER_MEMORY}
    _tell("starting Spark", 0.0)
    if task.trigger is not None:
        settings |= SETTINGS
        if task.options.source == "kafka":
            settings["spark_jars"] = connector_jars()
    spark = sw.session("local[*]", **settings)
    options, own_step_ms = task.options, task.own_step_ms
    if task.policy == CALIBRATION:
        result = calibrate(spark, options, directory, progress=_tell).to_dict()
        outcome: dict[str, Any] = {"result": result}
    else:
        if task.trigger is not None:
            run = run_stock if options.source == "generator" else run_stock_on_topics
            result, span = run(
                spark, options, task.trigger, directory, progress=_tell, own_step_ms=own_step_ms
            )
        else:
            _tell("compiling", 0.0)
            if options.source == "generator":
                warm_up(spark, options, directory / "warm-up", seconds=COMPILING_S)
            else:
                warm_up_on_topics(spark, options, directory / "warm-up", seconds=COMPILING_TOPICS_S)
            result, span = run_ours(
                spark, options, task.policy, directory, progress=_tell, own_step_ms=own_step_ms
            )
        outcome = {"result": result, "first_ms": span.first_ms, "until_ms": span.until_ms}
    spark.stop()
    return outcome


def _tell(text: str, share: float) -> None:
    print(json.dumps({"progress": text, "share": round(share, 3)}), flush=True)


def main(arguments: list[str]) -> None:
    """Do the task in the one file, and write what came of it to the other."""
    task_file, result_file = (Path(argument) for argument in arguments)
    task = Task.from_json(task_file.read_text())
    try:
        outcome = perform(task, result_file.parent)
    except SlackwaterError as error:  # it says what to do: nobody needs to read a trace
        outcome = {"error": str(error)}
    result_file.write_text(json.dumps(outcome))


if __name__ == "__main__":
    main(sys.argv[1:])
