"""Run a planned frame again and again, and fetch what it returns as Arrow.

`DataFrame.toArrow` makes a SQL execution of each run: its plan is described, and announced to
listeners, anew. A frame that was planned once is the same distributed collection in each run, so
its jobs can be submitted directly, which takes a fifth off a small step. They are submitted as
asynchronous ones and waited for: the others have the code of their functions looked through by
Spark, twice in each run, which takes longer than all the rest of submitting them.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import convert_exception
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
        self._serve = jvm.PythonRDD.serveIterator
        self._scala = jvm.scala.jdk.javaapi.CollectionConverters
        # Tasks see a session's settings as properties of their job; a SQL execution sets these.
        self._settings = self._scala.asJava(conf.getAllConfs())

    def fetch(self) -> pa.Table:
        """Run the frame in one job. As with a frame, a job's failure is raised."""
        self._context.getLocalProperties().putAll(self._settings)
        job = self._batches.collectAsync()
        try:
            collected = job.get()
        except Py4JJavaError as error:
            cause = error.java_exception.getCause()
            raise error if cause is None else convert_exception(cause) from None
        # By a socket of its own: an answer of Py4J of more than 8 KB takes 40 ms, for it is written
        # in parts, and the second waits until the system confirms that the first has arrived.
        address = self._serve(self._scala.asScala(collected.iterator()), "serve batches")
        with _load_from_socket(address, NoOpSerializer()) as parts:
            batches = [pa.ipc.read_record_batch(pa.py_buffer(part), self._schema) for part in parts]
        return pa.Table.from_batches(batches, self._schema)
