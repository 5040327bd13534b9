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
    """Hold the specification of a prepared plan: one row of arrays, changed before each run.

    Texts are parsed here, once. Tasks would do so in each branch of the plan, and by functions that
    Spark leaves out of the code it compiles for a stage, and writes code around anew for each task.
    """

    def __init__(self, spark: SparkSession, types: Sequence[str]) -> None:
        """Make a frame with columns s0, s1, ... of these types, arrays all, in one partition."""
        self._width = len(types)
        self._texts = _Texts(spark)
        self._parsing = _Parsing(spark, types)
        row = _InternalRow(spark, self._width)
        self._cells = row.cells
        self.clear()
        self.rdd_id, frame = row.frame(self._parsing.schema)
        self.frame = frame.coalesce(1)

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
            self._parsing.texts[index] = text
        parsed = self._parsing.parsed()
        for index in range(self._width):
            self._cells[index] = parsed.getArray(index)
            if large:
                self._parsing.texts[index] = None  # not held twice


class _InternalRow:
    """Hold a row as Spark has it inside; one of its API would be converted anew in each task."""

    def __init__(self, spark: SparkSession, width: int) -> None:
        context = spark.sparkContext
        jvm: Any = context._jvm
        self._spark = spark
        self.cells = context._gateway.new_array(jvm.java.lang.Object, width)  # type: ignore[union-attr]
        self.row = jvm.org.apache.spark.sql.catalyst.expressions.GenericInternalRow(self.cells)

    def frame(self, schema: Any) -> tuple[int, DataFrame]:
        """Make a frame of this row alone; tell the number of the collection it reads."""
        context = self._spark.sparkContext
        jvm: Any = context._jvm
        rows = jvm.java.util.ArrayList()
        rows.add(self.row)
        rdd = context._jsc.parallelize(rows, 1)
        frame = self._spark._jsparkSession.internalCreateDataFrame(rdd.rdd(), schema, False)
        return int(rdd.id()), DataFrame(frame, self._spark)


def parsed_specification(texts: DataFrame, types: Sequence[str]) -> DataFrame:
    """Parse a specification: columns s0, s1, ... of JSON become columns of these types."""
    return texts.selectExpr(
        *(f"from_json(s{index}, '{kind}') AS s{index}" for index, kind in enumerate(types))
    )


class _Parsing:
    """Run the projection of a frame in the driver, over one row of texts."""

    def __init__(self, spark: SparkSession, types: Sequence[str]) -> None:
        context = spark.sparkContext
        jvm: Any = context._jvm
        texts = _InternalRow(spark, len(types))
        _, written = texts.frame(_string_schema(spark, len(types)))
        parsed = parsed_specification(written, types)
        self.texts = texts.cells
        self.schema = _schema(spark, parsed.schema.json())
        expressions = jvm.org.apache.spark.sql.catalyst.expressions
        plan = parsed._jdf.queryExecution().sparkPlan()
        self._projection = expressions.UnsafeProjection.create(
            plan.projectList(), plan.child().output()
        )
        # Py4J knows methods by the name of their class, and all compiled projections have one name:
        # it may take the method of another.
        parameters = context._gateway.new_array(jvm.java.lang.Class, 1)  # type: ignore[union-attr]
        parameters[0] = jvm.java.lang.Class.forName("org.apache.spark.sql.catalyst.InternalRow")
        class_of = expressions.UnsafeProjection._java_lang_class
        self._method = class_of.getMethod("apply", parameters)
        self._arguments = context._gateway.new_array(jvm.java.lang.Object, 1)  # type: ignore[union-attr]
        self._arguments[0] = texts.row

    def parsed(self) -> Any:
        """Return a row of what the texts say, good until the next is asked for."""
        return self._method.invoke(self._projection, self._arguments)


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
    return _schema(spark, f'{{"type":"struct","fields":[{fields}]}}')


def _schema(spark: SparkSession, json: str) -> Any:
    return spark._jsparkSession.parseDataType(json)


def stored_bytes(spark: SparkSession) -> int:
    """Return what Spark's block managers hold in memory: persisted frames (0 on Spark Connect)."""
    jvm = classic_jvm(spark)
    if jvm is None:
        return 0
    infos = spark.sparkContext._jsc.sc().getRDDStorageInfo()
    return sum(int(info.memSize()) for info in infos)
