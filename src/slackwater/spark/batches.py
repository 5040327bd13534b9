"""Run a planned frame again and again, and fetch what it returns as Arrow.

`DataFrame.toArrow` makes a SQL execution of each run: its plan is described, and announced to
listeners, anew. A frame that was planned once is the same distributed collection in each run, so
its jobs can be submitted directly, which takes a fifth off a small step.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.util import _load_from_socket

from slackwater.spark.light_tasks import lighten


class PlannedBatches:
    """Hold a frame of one partition as the collection of Arrow batches that its runs return."""

    def __init__(self, frame: DataFrame) -> None:
        """Take a frame of a classic session; planning happens here, unless it has before."""
        spark = frame.sparkSession
        context = spark.sparkContext
        jvm: Any = context._jvm
        conf = spark._jsparkSession.sessionState().conf()
        self._schema = to_arrow_schema(frame.schema, timezone="UTC", prefers_large_types=False)
        self._batches = frame._jdf.toArrowBatchRdd(
            conf.arrowMaxRecordsPerBatch(), "UTC", True, False
        ).toJavaRDD()
        if (partitions := self._batches.getNumPartitions()) != 1:
            raise ValueError(f"the frame has {partitions} partitions; coalesce it to one")
        lighten(self._batches.rdd(), jvm)
        self._context = context._jsc.sc()
        self._run_job = jvm.PythonRDD.runJob
        self._partitions = jvm.java.util.ArrayList()
        self._partitions.add(0)
        # Tasks see a session's settings as properties of their job; a SQL execution sets these.
        self._settings = jvm.scala.jdk.javaapi.CollectionConverters.asJava(conf.getAllConfs())

    def fetch(self) -> pa.Table:
        """Run the frame in one job. As with a frame, a job's failure is raised."""
        self._context.getLocalProperties().putAll(self._settings)
        address = self._run_job(self._context, self._batches, self._partitions)
        with _load_from_socket(address, NoOpSerializer()) as parts:
            batches = [pa.ipc.read_record_batch(pa.py_buffer(part), self._schema) for part in parts]
        return pa.Table.from_batches(batches, self._schema)
