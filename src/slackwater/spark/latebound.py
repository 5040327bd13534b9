"""A one-row input that can be changed between runs of the same planned DataFrame.

Spark serialises a parallelised collection's partition, and so the Java array inside its row, anew
into each job's task. Changing that array in place before a run gives the *same physical plan* other
input, which saves building, analysing and planning it: most of what a small job costs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

_LARGE: Final = 65_536  # characters; more goes through a file, which Py4J's protocol is slower than
_FIELD = '{{"name":"s{index}","type":"string","nullable":false,"metadata":{{}}}}'


def classic_jvm(spark: SparkSession) -> Any | None:
    """Return the driver's JVM, or None on Spark Connect, where plans cannot be late-bound."""
    if not isinstance(spark, SparkSession) or not hasattr(spark, "_jsparkSession"):
        return None
    return spark.sparkContext._jvm


def parallelism(spark: SparkSession) -> int:
    """Return how many tasks the session runs at once; two where it does not say (Connect)."""
    if classic_jvm(spark) is None:
        return 2
    return max(1, spark.sparkContext.defaultParallelism)


class SpecificationCells:
    """Hold the specification of a prepared plan: one row of strings, changed before each run."""

    def __init__(self, spark: SparkSession, width: int) -> None:
        """Make a frame with columns s0, s1, ... in one partition."""
        context = spark.sparkContext
        jvm: Any = context._jvm
        self._texts = _Texts(spark)
        self._width = width
        self._cells = context._gateway.new_array(jvm.java.lang.Object, width)  # type: ignore[union-attr]
        self.clear()
        rows = jvm.java.util.ArrayList()
        # A row as Spark has it inside: one of its API would be converted anew in each task.
        rows.add(jvm.org.apache.spark.sql.catalyst.expressions.GenericInternalRow(self._cells))
        rdd = context._jsc.parallelize(rows, 1)
        self.rdd_id = int(rdd.id())
        frame = spark._jsparkSession.internalCreateDataFrame(
            rdd.rdd(), _string_schema(spark, width), False
        )
        self.frame = DataFrame(frame, spark).coalesce(1)

    def clear(self) -> None:
        """Let the next run read nothing."""
        self.bind(["[]"] * self._width)

    def bind(self, specifications: Sequence[str]) -> None:
        """Change what the next run reads, JSON in one line each. Never while a run is going on."""
        large = sum(map(len, specifications)) > _LARGE
        texts = (
            self._texts.by_file(specifications) if large else self._texts.by_call(specifications)
        )
        for index, text in enumerate(texts):
            self._cells[index] = text


class _Texts:
    """Make texts as Spark has them inside."""

    def __init__(self, spark: SparkSession) -> None:
        context = spark.sparkContext
        jvm: Any = context._jvm
        self._files = jvm.java.nio.file.Files
        self._path = jvm.java.io.File
        text_class = jvm.org.apache.spark.unsafe.types.UTF8String
        self._made_from = text_class.fromString
        parameters = context._gateway.new_array(jvm.java.lang.Class, 1)  # type: ignore[union-attr]
        parameters[0] = jvm.java.lang.Class.forName("java.lang.String")
        self._method = text_class._java_lang_class.getMethod("fromString", parameters)
        self._argument = context._gateway.new_array(jvm.java.lang.Object, 1)  # type: ignore[union-attr]

    def by_call(self, texts: Sequence[str]) -> Iterator[Any]:
        """Hand each text over in a call."""
        return map(self._made_from, texts)

    def by_file(self, texts: Sequence[str]) -> Iterator[Any]:
        """Let the JVM read the texts, a line each, out of a file that is gone afterwards."""
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", prefix="slackwater-") as file:
            file.write("\n".join(texts))
            file.flush()
            lines = self._files.readAllLines(self._path(file.name).toPath())
        for index in range(len(texts)):
            # Py4J returns a Java string by value: it must go from hand to hand inside the JVM.
            lines.subList(index, index + 1).toArray(self._argument)
            yield self._method.invoke(None, self._argument)
        self._argument[0] = None  # what may be large is not held twice


def fixed_specification(spark: SparkSession, rows: Sequence[Sequence[str]]) -> DataFrame:
    """Make an ordinary specification frame, one partition per row, for a plan that is run once."""
    width = len(rows[0])
    ddl = ", ".join(f"s{index} string" for index in range(width))
    if classic_jvm(spark) is None:
        return spark.createDataFrame([tuple(row) for row in rows], ddl).repartition(len(rows))
    context = spark.sparkContext
    jvm: Any = context._jvm
    java_rows = jvm.java.util.ArrayList()
    for row in rows:
        cells = context._gateway.new_array(jvm.java.lang.Object, width)  # type: ignore[union-attr]
        for index, text in enumerate(row):
            cells[index] = text
        java_rows.add(jvm.org.apache.spark.sql.RowFactory.create(cells))
    rdd = context._jsc.parallelize(java_rows, len(rows))
    frame = DataFrame(
        spark._jsparkSession.createDataFrame(rdd, _string_schema(spark, width)), spark
    )
    return frame.coalesce(1) if len(rows) == 1 else frame


def _string_schema(spark: SparkSession, width: int) -> Any:
    fields = ",".join(_FIELD.format(index=index) for index in range(width))
    return spark._jsparkSession.parseDataType(f'{{"type":"struct","fields":[{fields}]}}')


def stored_bytes(spark: SparkSession) -> int:
    """Return what Spark's block managers hold in memory: persisted frames (0 on Spark Connect)."""
    jvm = classic_jvm(spark)
    if jvm is None:
        return 0
    infos = spark.sparkContext._jsc.sc().getRDDStorageInfo()
    return sum(int(info.memSize()) for info in infos)
