"""Where the time of a Spark job goes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import SparkSession

from slackwater.spark.latebound import classic_jvm

_GROUP: Final = "spark.jobGroup.id"


@dataclass(frozen=True)
class JobTimes:
    """Split a job's time, in milliseconds; without profiling, `run` is the last three together."""

    specify: float = 0.0  # write the specification, or build the frame
    submit: float = 0.0  # until the first task starts
    run: float = 0.0  # until the last task has ended
    collect: float = 0.0  # until the result is here


class JobWatch:
    """Measure one job; made right before it is specified, in the thread that runs it."""

    def __init__(self, spark: SparkSession, slot: int, *, profile: bool) -> None:
        """Begin. Profiling asks Spark's status store, which costs some calls to the JVM."""
        self._context: Any = None
        if profile and classic_jvm(spark) is not None:
            self._context = spark.sparkContext
            self._group = self._context.getLocalProperty(_GROUP) or f"slackwater-slot-{slot}"
            self._context.setJobGroup(self._group, "step", interruptOnCancel=True)
        self._began = time.perf_counter()
        self._specified = self._began
        self._specified_ms = 0.0

    def specified(self) -> None:
        """Note that the job is about to be run."""
        self._specified = time.perf_counter()
        self._specified_ms = time.time() * 1_000

    def times(self) -> JobTimes:
        """Note that the result is here, and say where the time went."""
        specify = (self._specified - self._began) * 1_000
        whole = (time.perf_counter() - self._specified) * 1_000
        if self._context is None:
            return JobTimes(specify, run=whole)
        ended_ms = time.time() * 1_000
        scala_context = self._context._jsc.sc()
        scala_context.listenerBus().waitUntilEmpty()
        job = max(self._context.statusTracker().getJobIdsForGroup(self._group))
        stages = scala_context.statusStore().job(job).stageIds()
        store = scala_context.statusStore()
        stage = store.lastStageAttempt(stages.apply(0))
        launched_ms = stage.firstTaskLaunchedTime().get().getTime()
        completed_ms = stage.completionTime().get().getTime()
        return JobTimes(
            specify=specify,
            submit=max(0.0, launched_ms - self._specified_ms),
            run=max(0.0, completed_ms - launched_ms),
            collect=max(0.0, ended_ms - completed_ms),
        )
