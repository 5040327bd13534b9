"""A one-row input that can be changed between runs of the same planned DataFrame.

Spark serialises a parallelised collection's partition, and so the Java array inside its row, anew
into each job's task. Changing that array in place before a run gives the *same physical plan* other
input, which saves building, analysing and planning it: most of what a small job costs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

LARGE_CHARACTERS: Final = 65_536  # more goes through a file, which Py4J's protocol is slower than
_HELD: Final = 1_048_576  # characters; plans do not keep room for more


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
        names = [f"s{index}" for index in range(len(types))]
        fields = ", ".join(f"{name}: {kind}" for name, kind in zip(names, types, strict=True))
        self._spark, self._width = spark, len(types)
        self._rule = _ParsingRule.of(spark, f"struct<{fields}>")
        self._parser = _Parser(spark, self._rule)
        self._cells = _objects(spark, self._parser.row)
        self._shows_other = False  # whose content is another parser's
        self.clear()
        jvm: Any = spark.sparkContext._jvm
        row = jvm.org.apache.spark.sql.catalyst.expressions.GenericInternalRow(self._cells)
        schema = StructType([StructField("said", self._rule.schema, False)])
        self.rdd_id, frame = _frame_of(spark, row, schema)
        columns = (f"said.parsed.{name} AS {name}" for name in names)
        self.frame = frame.coalesce(1).selectExpr(*columns)

    def clear(self) -> None:
        """Let the next run read nothing."""
        self.bind(["[]"] * self._width)

    def bind(self, specifications: Sequence[str]) -> None:
        """Change what the next run reads, JSON in one line each. Never while a run is going on."""
        cells = (f'"s{index}":{text}' for index, text in enumerate(specifications))
        text = "{" + ",".join(cells) + "}"
        large = len(text) > _HELD
        parser = _Parser(self._spark, self._rule) if large else self._parser
        parser.parse(text)
        if large or self._shows_other or not parser.steady:
            self._cells[0] = parser.row
            self._shows_other = large


@dataclass(frozen=True)
class _ParsingRule:
    """Hold the expressions that parse a text as JSON of some type, and the schema of the result."""

    schema: StructType
    expressions: Any
    attributes: Any

    @staticmethod
    @lru_cache(maxsize=64)
    def of(spark: SparkSession, kind: str) -> _ParsingRule:
        """Analyse how to parse a type; projections copy what they take of it."""
        jvm: Any = spark.sparkContext._jvm
        none = jvm.org.apache.spark.sql.catalyst.expressions.GenericInternalRow(1)
        _, texts = _frame_of(spark, none, StructType([StructField("value", StringType())]))
        parsed = texts.selectExpr(f"from_json(value, '{kind}') AS parsed")
        plan = parsed._jdf.queryExecution().sparkPlan()
        return _ParsingRule(parsed.schema, plan.projectList(), plan.child().output())


class _Parser:
    """Parse JSON texts into a row as Spark has it inside, in the driver.

    Spark's projections return the same row each time, with other content: then it is `steady`, and
    takes two calls to change: one hands the text over, the other has it parsed. They keep room for
    the largest text they have seen, so a very large one had better be given a parser of its own.
    """

    def __init__(self, spark: SparkSession, rule: _ParsingRule) -> None:
        jvm: Any = spark.sparkContext._jvm
        catalyst = jvm.org.apache.spark.sql.catalyst
        strings = jvm.org.apache.spark.sql.Encoders.STRING()
        self._take = catalyst.encoders.ExpressionEncoder.apply(strings).createSerializer()
        text = self._take.apply("{}")
        self._projection = catalyst.expressions.UnsafeProjection.create(
            rule.expressions, rule.attributes
        )
        # Py4J knows methods by the name of their class, and all compiled projections have one name:
        # it may take the method of another. So methods are called by reflection.
        projection_class, row_class = catalyst.expressions.UnsafeProjection, catalyst.InternalRow
        self._parse = _method(spark, projection_class, "apply", row_class)
        self._text = _objects(spark, text)
        self._files, self._path = jvm.java.nio.file.Files, jvm.java.io.File
        self._take_from = _method(spark, jvm.scala.Function1, "apply", jvm.java.lang.Object)
        self._line = _objects(spark, None)
        self.row = self._parsed()
        known = jvm.java.lang.System.identityHashCode
        again = (self._take.apply("{}"), self._parsed())
        self.steady = [*map(known, again)] == [known(text), known(self.row)]

    def parse(self, text: str) -> None:
        """Change the row to what a text in one line says."""
        if len(text) <= LARGE_CHARACTERS:
            taken = self._take.apply(text)
        else:
            with tempfile.NamedTemporaryFile("w", encoding="utf-8", prefix="slackwater-") as file:
                file.write(text)
                file.flush()
                lines = self._files.readAllLines(self._path(file.name).toPath())
            # Py4J returns a Java string by value: it must go from hand to hand inside the JVM.
            lines.toArray(self._line)
            taken = self._take_from.invoke(self._take, self._line)
            self._line[0] = None
        if not self.steady:
            self._text[0] = taken
        row = self._parsed()
        if not self.steady:
            self.row = row

    def _parsed(self) -> Any:
        return self._parse.invoke(self._projection, self._text)


def parsed_specification(texts: DataFrame, types: Sequence[str]) -> DataFrame:
    """Parse a specification: columns s0, s1, ... of JSON become columns of these types."""
    return texts.selectExpr(
        *(f"from_json(s{index}, '{kind}') AS s{index}" for index, kind in enumerate(types))
    )


def _frame_of(spark: SparkSession, row: Any, schema: StructType) -> tuple[int, DataFrame]:
    """Make a frame of one internal row; tell the number of the collection that it reads."""
    jvm: Any = spark.sparkContext._jvm
    rows = jvm.java.util.ArrayList()
    rows.add(row)
    rdd = spark.sparkContext._jsc.parallelize(rows, 1)
    frame = spark._jsparkSession.internalCreateDataFrame(rdd.rdd(), _schema(spark, schema), False)
    return int(rdd.id()), DataFrame(frame, spark)


def _objects(spark: SparkSession, only: Any) -> Any:
    """Make a Java array of one object."""
    context = spark.sparkContext
    jvm: Any = context._jvm
    made = context._gateway.new_array(jvm.java.lang.Object, 1)  # type: ignore[union-attr]
    made[0] = only
    return made


def _method(spark: SparkSession, of: Any, name: str, parameter: Any) -> Any:
    """Find a method of a Java class that takes one parameter of another."""
    context = spark.sparkContext
    jvm: Any = context._jvm
    parameters = context._gateway.new_array(jvm.java.lang.Class, 1)  # type: ignore[union-attr]
    parameters[0] = parameter._java_lang_class
    return of._java_lang_class.getMethod(name, parameters)


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
    names = (f"s{index}" for index in range(width))
    schema = StructType([StructField(name, StringType(), False) for name in names])
    frame = DataFrame(spark._jsparkSession.createDataFrame(rdd, _schema(spark, schema)), spark)
    return frame.coalesce(1) if len(rows) == 1 else frame


def _schema(spark: SparkSession, schema: StructType) -> Any:
    return spark._jsparkSession.parseDataType(schema.json())


def stored_bytes(spark: SparkSession) -> int:
    """Return what Spark's block managers hold in memory: persisted frames (0 on Spark Connect)."""
    jvm = classic_jvm(spark)
    if jvm is None:
        return 0
    infos = spark.sparkContext._jsc.sc().getRDDStorageInfo()
    return sum(int(info.memSize()) for info in infos)
