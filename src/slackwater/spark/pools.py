"""Spark's scheduler pools: late re-executions run beside other jobs, and get less of the cores.

It takes Spark's FAIR mode (`session(spark_scheduler_mode="FAIR")`). How much less is said by the
weights in `fair_scheduler.xml`, or in the file that the session was given in its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from slackwater.spark.latebound import classic_jvm

LATE_POOL: Final = "slackwater-late"
POOL_FILE: Final = Path(__file__).with_name("fair_scheduler.xml")
MODE: Final = "spark.scheduler.mode"
FILE: Final = "spark.scheduler.allocation.file"
_POOL: Final = "spark.scheduler.pool"


class StepPools:
    """Put the jobs of a thread into a pool, where Spark knows pools."""

    def __init__(self, spark: SparkSession) -> None:
        """Find out whether it does."""
        self._context = None
        if classic_jvm(spark) is not None:
            mode = spark.sparkContext.getConf().get(MODE, "FIFO") or "FIFO"
            self._context = spark.sparkContext if mode.upper() == "FAIR" else None

    @contextmanager
    def late(self) -> Iterator[None]:
        """Let the jobs of this thread give way to others meanwhile."""
        if self._context is None:
            yield
            return
        before = self._context.getLocalProperty(_POOL)
        self._context.setLocalProperty(_POOL, LATE_POOL)
        try:
            yield
        finally:
            self._context.setLocalProperty(_POOL, before)  # type: ignore[arg-type]
