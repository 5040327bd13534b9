"""The Spark jobs of each thread as a group, to be cancelled; and whether Spark is there at all."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import Future
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from slackwater.spark.latebound import classic_jvm

_PATIENCE_S: Final = 60.0  # longer than a JVM that is well collects its garbage


class StepJobs:
    """Know the jobs of a runtime's slots from all others of the session.

    A slot's thread enters its group once, so that steps need not say anything to the JVM. Spark
    interrupts the tasks of a cancelled job, and ends the Python workers that do not stop by
    themselves within `spark.python.task.killTimeout` (2 s).
    """

    def __init__(self, spark: SparkSession, patience_s: float = _PATIENCE_S) -> None:
        """Choose a name that no other runtime has; the JVM may be silent for `patience_s`."""
        self._patience_s = patience_s
        self._spark: Any = spark
        self._name = f"slackwater-{uuid.uuid4().hex[:8]}"
        self._classic = classic_jvm(spark) is not None

    def begin(self, slot: int) -> None:
        """Let all jobs that this thread begins be those of a slot."""
        if self._classic:
            group, said = self._group(slot), "slackwater step"
            self._spark.sparkContext.setJobGroup(group, said, interruptOnCancel=True)
        else:
            self._spark.addTag(self._group(slot))

    def cancel(self, slot: int) -> None:
        """Cancel the jobs of a slot that are running now; one that is about to begin is missed."""
        if self._classic:
            self._spark.sparkContext.cancelJobGroup(self._group(slot))
        else:
            self._spark.interruptTag(self._group(slot))

    def gone(self) -> str | None:
        """Say why Spark cannot run any job; None where it can, whatever became of a single one.

        A call to the JVM: to be made when something failed.
        """
        if not self._classic:
            return None
        answer: Future[str | None] = Future()
        ask = threading.Thread(
            target=lambda: answer.set_result(self._ask()), name="slackwater-ask", daemon=True
        )
        ask.start()
        try:
            return answer.result(self._patience_s)
        except TimeoutError:
            return f"its driver's JVM has not answered for {self._patience_s:.0f} s"

    def _ask(self) -> str | None:
        try:
            stopped = bool(self._spark.sparkContext._jsc.sc().isStopped())
        except (Py4JError, OSError, RuntimeError) as error:
            return f"its driver's JVM does not answer ({type(error).__name__}: {error})"
        except AttributeError:  # stopped by this process
            return "its context was stopped"
        return "its context was stopped" if stopped else None

    def _group(self, slot: int) -> str:
        return f"{self._name}-{slot}"
