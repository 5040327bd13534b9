"""Whether a physical plan may be run again with other input: a matter of correctness.

Running a physical plan again recomputes scans and stateless operators, but reuses whatever a
node kept from its first run. So a plan is prepared only if every node in it is known to keep
nothing that depends on the late-bound input; all else is rebuilt for each step: slower, always
right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

# Physical nodes that recompute everything on each run.
_STATELESS = frozenset(
    {
        "WholeStageCodegenExec",
        "InputAdapter",
        "ProjectExec",
        "FilterExec",
        "GenerateExec",
        "ExpandExec",
        "CoalesceExec",
        "UnionExec",
        "SortExec",
        "WindowExec",
        "HashAggregateExec",
        "ObjectHashAggregateExec",
        "SortAggregateExec",
        "BroadcastHashJoinExec",
        "BroadcastNestedLoopJoinExec",
        "SortMergeJoinExec",
        "ShuffledHashJoinExec",
        "LocalTableScanExec",
        "RDDScanExec",
        "ExternalRDDScanExec",
        "SerializeFromObjectExec",
        "DeserializeToObjectExec",
        "MapElementsExec",
        "RowToColumnarExec",
        "ColumnarToRowExec",
        "ArrowEvalPythonExec",
        "BatchEvalPythonExec",
        "MapInArrowExec",
        "MapInPandasExec",
        "PythonMapInArrowExec",
        "LocalLimitExec",
        "GlobalLimitExec",
        "RangeExec",
        "EmptyRelationExec",
    }
)
_CLASS = re.compile(r'"class":"[^"]*?(\w+)\$?"')
_WHY = {
    "ShuffleExchangeExec": "a shuffle would reuse its first map output",
    "AdaptiveSparkPlanExec": "adaptive execution keeps its first result",
    "InMemoryTableScanExec": "a cached relation keeps its first content",
    "ReusedExchangeExec": "a reused exchange keeps its first content",
    "BroadcastExchangeExec": "a broadcast of late-bound input keeps its first content",
}
# Expressions whose value is fixed when the plan is made, or repeats itself on each run.
_FROZEN_EXPRESSIONS = frozenset(
    {
        "CurrentTimestamp",
        "Now",
        "CurrentDate",
        "CurDateExpressionBuilder",
        "LocalTimestamp",
        "CurrentTime",
        "CurrentBatchTimestamp",
        "Rand",
        "Randn",
        "RandStr",
        "Uniform",
        "Uuid",
        "Shuffle",
        "MonotonicallyIncreasingID",
    }
)


def unsafe_reasons(frame: DataFrame, specification_rdd: int) -> list[str]:
    """Say why this frame must be rebuilt for each step; an empty list means it may be prepared.

    `specification_rdd` names the late-bound input, so that static tables are told from it.
    Call it before the first run: subqueries and broadcasts have then not been executed.
    """
    execution = frame._jdf.queryExecution()
    reasons = [
        f"{name} is fixed when a plan is made"
        for name in sorted(expression_names(execution.analyzed()) & _FROZEN_EXPRESSIONS)
    ]
    _walk_physical(execution.executedPlan(), reasons, specification_rdd)
    return sorted(set(reasons))


def _walk_physical(node: Any, reasons: list[str], specification_rdd: int) -> None:
    name = _simple_name(node)
    if _size(node.subqueriesAll()) > 0:
        reasons.append("a subquery keeps its first result")
    if name == "BroadcastExchangeExec":
        if _reads_specification(node, specification_rdd):
            reasons.append(f"{name}: {_WHY[name]}")
        return  # a static side is computed once, and that is welcome
    if name not in _STATELESS:
        reasons.append(f"{name}: {_WHY.get(name, 'not known to be safe to run again')}")
    for child in _elements(node.children()):
        _walk_physical(child, reasons, specification_rdd)


def _reads_specification(node: Any, specification_rdd: int) -> bool:
    if _simple_name(node) in {"RDDScanExec", "ExternalRDDScanExec"}:
        return _descends_from(node.rdd(), specification_rdd)
    return any(
        _reads_specification(child, specification_rdd) for child in _elements(node.children())
    )


def _descends_from(rdd: Any, ancestor: int) -> bool:
    if rdd.id() == ancestor:
        return True
    return any(_descends_from(edge.rdd(), ancestor) for edge in _elements(rdd.dependencies()))


def expression_names(plan: Any) -> set[str]:
    """Collect the class names of everything in a logical plan, in one call to the JVM.

    Subqueries need not be looked into: a plan that has one is not prepared anyway.
    """
    return set(_CLASS.findall(plan.toJSON()))


def _simple_name(node: Any) -> str:
    return str(node.getClass().getSimpleName()).removesuffix("$")


def _size(sequence: Any) -> int:
    return int(sequence.size())


def _elements(sequence: Any) -> Iterator[Any]:
    for index in range(_size(sequence)):
        yield sequence.apply(index)
