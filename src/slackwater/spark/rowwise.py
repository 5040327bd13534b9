"""Which transforms treat each row for itself: the others depend on how a stream is cut into steps.

The description is run over input that Spark takes for streaming. Nothing can be computed over such
a frame, nor can it be cached, checkpointed or turned into an RDD, and every operator over it, also
in subqueries and behind names, is known to read the stream. What is not known to treat each row for
itself is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from slackwater.errors import DescriptionError
from slackwater.spark.logical import PlanNode

# Operators that make each row they return from one row, whatever rows are beside it.
_ROWWISE = frozenset(
    {
        "Project",
        "Filter",
        "Generate",
        "Expand",
        "SubqueryAlias",
        "View",
        "ResolvedHint",
        "PipeOperator",
        "SQLFunctionNode",
        "WithCTE",
        "CTERelationDef",
        "Repartition",
        "RepartitionByExpression",
        "RebalancePartitions",
        "EventTimeWatermark",
        "MapElements",
        "TypedFilter",
        "DeserializeToObject",
        "SerializeFromObject",
        "Union",
        "Join",
        "LateralJoin",
    }
)
# Operators that hand rows to a function in batches: it is trusted to look at each row alone.
OPAQUE = frozenset({"MapInPandas", "MapInArrow", "PythonMapInArrow", "MapPartitions"})
# What users call the others, as far as they have met before.
_NAMES = {
    "Aggregate": "an aggregation",
    "Distinct": "distinct",
    "Deduplicate": "distinct or dropDuplicates",
    "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark",
    "Window": "a window function",
    "GlobalLimit": "limit",
    "LocalLimit": "limit",
    "LimitAll": "limit",
    "Tail": "tail",
    "Offset": "offset",
    "Sort": "a sort",
    "Sample": "sample",
    "Intersect": "intersect",
    "Except": "except",
    "Pivot": "pivot",
    "Transpose": "transpose",
    "FlatMapGroupsInPandas": "applyInPandas",
    "FlatMapGroupsInArrow": "applyInArrow",
    "FlatMapCoGroupsInPandas": "a cogroup",
    "FlatMapCoGroupsInArrow": "a cogroup",
    "CollectMetrics": "observe",
    "ScriptTransformation": "a script",
    "AttachDistributedSequence": "an index of pandas on Spark",
}
# Expressions that depend on which rows are read together, and where.
_PLACED = {
    "MonotonicallyIncreasingID": "monotonically_increasing_id()",
    "SparkPartitionID": "spark_partition_id()",
    "InputFileName": "input_file_name()",
    "InputFileBlockStart": "input_file_block_start()",
    "InputFileBlockLength": "input_file_block_length()",
    "PythonUDTF": "a table function in Python",
}
# Which side of a join with a static table may be the stream.
_STREAM_SIDE = {
    "Inner": {"left", "right"},
    "Cross": {"left", "right"},
    "LeftOuter": {"left"},
    "RightOuter": {"right"},
    "LeftSemi": {"left"},
    "LeftAnti": {"left"},
    "LeftSingle": {"left"},
}
_PER_WINDOW = "do it per window, with .window(...).aggregate(...) or .apply(...)"
# Spark's names for what a streaming frame does not allow.
_EXECUTED = ("_LEGACY_ERROR_TEMP_3102", "CALL_ON_STREAMING_DATASET_UNSUPPORTED")
_SUBQUERY = "INVALID_SUBQUERY_EXPRESSION.STREAMING_QUERY"


def empty_input(spark: SparkSession, schema: StructType, *, streaming: bool) -> DataFrame:
    """Make a frame without rows; one that Spark takes for streaming cannot be run."""
    context = spark.sparkContext
    jvm: Any = context._jvm
    nothing = context._jsc.parallelize(jvm.java.util.ArrayList(), 1).rdd()
    kind = spark._jsparkSession.parseDataType(schema.json())
    return DataFrame(spark._jsparkSession.internalCreateDataFrame(nothing, kind, streaming), spark)


def refusal(error: AnalysisException, what: str) -> DescriptionError | None:
    """Say what an error of Spark means that a stateful transform met; None where it is another."""
    condition = error.getCondition()
    if condition == _SUBQUERY:
        return DescriptionError(
            f"{what} has a subquery over the stream, whose result depends on which "
            f"rows are read together; {_PER_WINDOW}"
        )
    if condition in _EXECUTED or str(error).startswith("Queries with streaming sources"):
        return DescriptionError(
            f"{what} computes something over the stream at once, or keeps it (such "
            "as count, collect, first, cache, checkpoint, localCheckpoint, rdd, write), which "
            "would see the rows of one step, or none; describe it with columns and functions "
            f"(udf, mapInPandas), or {_PER_WINDOW}"
        )
    return None


def require_rowwise(plan: PlanNode, what: str) -> None:
    """Refuse operators over the stream that are not known to treat each row for itself."""
    streaming: dict[PlanNode, bool] = {}
    for node in plan.upwards():
        if any(reads_stream(each) for each in node.within()):
            raise DescriptionError(
                f"{what} has a subquery over the stream, whose result depends on "
                f"which rows are read together; {_PER_WINDOW}"
            )
        sides = [streaming[child] for child in node.children]
        streaming[node] = any(sides) or (not sides and reads_stream(node))
        if any(sides):
            _check(node, sides, what)


def reads_stream(node: PlanNode) -> bool:
    """Tell whether a node is where the stream comes in (by its own, or by a common table)."""
    if node.children:
        return False
    return node.fields.get("isStreaming") is True or node.kind.startswith("Streaming")


def _check(node: PlanNode, sides: Sequence[bool], what: str) -> None:
    kind = node.kind
    if kind in _NAMES or kind not in _ROWWISE | OPAQUE:
        if kind not in _NAMES:
            raise DescriptionError(
                f"{what} uses {kind}, which is not known to treat each row for itself: its result "
                f"may depend on which rows are read together; {_PER_WINDOW}"
            )
        raise DescriptionError(
            f"{what} uses {_NAMES[kind]}, whose result depends on which rows are read together; "
            f"{_PER_WINDOW}"
        )
    for each in node.within():
        if each.kind in _PLACED:
            raise DescriptionError(
                f"{what} uses {_PLACED[each.kind]}, which depends on which rows are "
                "read together, and where; use columns of the rows themselves (in place of a "
                "table function, explode the array that a udf returns)"
            )
    if kind == "Union" and not all(sides):
        raise DescriptionError(
            f"{what} unites the stream with a static table, whose rows would come "
            "again in each step; make it an input of its own, or join it"
        )
    if kind in {"Join", "LateralJoin"}:
        _check_join(node, sides, what)


def _check_join(node: PlanNode, sides: Sequence[bool], what: str) -> None:
    kind = _join_kind(node.fields["joinType"])
    if len(sides) > 1 and all(sides):
        raise DescriptionError(
            f"{what} joins the stream with itself; do it per window, with .window(...).apply(...)"
        )
    side = "left" if sides[0] else "right"
    if side not in _STREAM_SIDE.get(kind, set()):
        raise DescriptionError(
            f"{what} joins the stream on the {side} of a {kind} join, which "
            "would repeat unmatched rows of the static table in each step; turn the join round"
        )


def _join_kind(joined: Any) -> str:
    name = joined.get("object") or joined.get("product-class") if isinstance(joined, dict) else ""
    return str(name).rpartition(".")[2].removesuffix("$")
