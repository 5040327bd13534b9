"""Whether a physical plan may be run again with other input: a matter of correctness.

Running a physical plan again recomputes scans and stateless operators, but reuses whatever a
node kept from its first run. So a plan is prepared only if every node in it is known to keep
nothing that depends on the late-bound input; all else is rebuilt for each step: slower, always
right.
"""

from __future__ import annotations

import re
from typing import Any

from pyspark.sql import DataFrame

from slackwater.spark.logical import PlanNode, elements, jvm_downwards, read_plan, simple_name

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
_WHY = {
    "ShuffleExchangeExec": "a shuffle would reuse its first map output",
    "AdaptiveSparkPlanExec": "adaptive execution keeps its first result",
    "InMemoryTableScanExec": "a cached relation keeps its first content",
    "ReusedExchangeExec": "a reused exchange keeps its first content",
    "BroadcastExchangeExec": "a broadcast of late-bound input keeps its first content",
}
# Expressions that draw numbers, always the same in a plan.
SEEDED = frozenset({"Rand", "Randn", "RandStr", "Uniform", "Uuid", "Shuffle"})
# Expressions whose value is fixed when the plan is made, or repeats itself on each run.
_FROZEN_EXPRESSIONS = frozenset(
    {
        "CurrentTimestamp",
        "CurrentTimestampLike",
        "Now",
        "CurrentDate",
        "CurDateExpressionBuilder",
        "LocalTimestamp",
        "CurrentTime",
        "CurrentBatchTimestamp",
        "CurrentTimeZone",
        "CurrentUser",
        "CurrentCatalog",
        "CurrentDatabase",
        "VariableReference",
        "MonotonicallyIncreasingID",
        "SparkPartitionID",
        "InputFileName",
        "InputFileBlockStart",
        "InputFileBlockLength",
        *SEEDED,
    }
)
_RDD_SCANS = frozenset({"RDDScanExec", "ExternalRDDScanExec"})
# Leaves that read what was there before any step; all others might be made of the input.
_STATIC_LEAVES = frozenset(
    {
        "LocalTableScanExec",
        "RangeExec",
        "EmptyRelationExec",
        "OneRowRelationExec",
        "FileSourceScanExec",
        "BatchScanExec",
        "RowDataSourceScanExec",
        "HiveTableScanExec",
    }
)
_TIMES = ("date", "timestamp", "timestamp_ntz")
# What Spark's parser turns into a time at once, so that plans show a time and nothing else.
_SPECIAL_TIME = re.compile(r"'\s*(now|today|tomorrow|yesterday)\b", re.IGNORECASE)


def unsafe_reasons(frame: DataFrame, specification_rdd: int) -> list[str]:
    """Say why this frame must be rebuilt for each step; an empty list means it may be prepared.

    `specification_rdd` names the late-bound input, so that static tables are told from it.
    Call it before the first run: subqueries and broadcasts have then not been executed.
    """
    execution = frame._jdf.queryExecution()
    reasons = _frozen(frame, execution.analyzed())
    physical = execution.executedPlan()
    if int(physical.subqueriesAll().size()) > 0:
        reasons.append("a subquery keeps its first result")
    _walk_physical(physical, reasons, _Lineage(specification_rdd))
    return sorted(set(reasons))


def _frozen(frame: DataFrame, analyzed: Any) -> list[str]:
    """List the expressions whose value would be that of the moment when the plan was made."""
    plan = read_plan(analyzed)
    kinds = {node.kind for node in plan.downwards()}
    kinds |= {each.kind for node in plan.downwards() for each in node.within()}
    found = [f"{name} is fixed when a plan is made" for name in sorted(kinds & _FROZEN_EXPRESSIONS)]
    jvm: Any = frame.sparkSession.sparkContext._jvm
    catalyst = jvm.org.apache.spark.sql.catalyst
    if not found and analyzed.containsPattern(catalyst.trees.TreePattern.CURRENT_LIKE()):
        found.append("an expression for something current is fixed when a plan is made")
    if not found and not analyzed.deterministic():
        found.append("an expression that is not deterministic may repeat itself on each run")
    # Spark itself says whether it would put a time in the place of a text like 'now'.
    replaced = catalyst.optimizer.ReplaceExpressions.apply(analyzed)
    if not replaced.fastEquals(catalyst.optimizer.SpecialDatetimeValues.apply(replaced)):
        found.append("a text like 'now' or 'today' becomes a time when a plan is made")
    return found + _written_times(plan, analyzed)


def _written_times(plan: PlanNode, analyzed: Any) -> list[str]:
    """List literals such as timestamp'now', which only the text that they come from tells."""
    holding = {node for node in plan.downwards() if any(map(is_time, node.within()))}
    if not holding:
        return []
    found = []
    for node, theirs in zip(plan.downwards(), jvm_downwards(analyzed), strict=True):
        if node in holding:
            for expression in elements(theirs.expressions()):
                found += [
                    _origin(leaf)
                    for leaf in elements(expression.collectLeaves())
                    if leaf.dataType().typeName() in _TIMES
                ]
    return [f"{text} is fixed when a plan is made" for text in found if _SPECIAL_TIME.search(text)]


def is_time(expression: PlanNode) -> bool:
    """Tell whether an expression is a constant date or timestamp."""
    return expression.kind == "Literal" and expression.fields["dataType"] in _TIMES


def _origin(expression: Any) -> str:
    """Return the piece of SQL that an expression was read from; empty where it is not known."""
    origin = expression.origin()
    text, first, last = origin.sqlText(), origin.startIndex(), origin.stopIndex()
    if not (text.isDefined() and first.isDefined() and last.isDefined()):
        return ""
    return str(text.get())[int(first.get()) : int(last.get()) + 1]


def _walk_physical(node: Any, reasons: list[str], lineage: _Lineage) -> None:
    name = simple_name(node)
    if name == "BroadcastExchangeExec":
        if lineage.reads_input(node):
            reasons.append(f"{name}: {_WHY[name]}")
        return  # a static side is computed once, and that is welcome
    if name not in _STATELESS:
        reasons.append(f"{name}: {_WHY.get(name, 'not known to be safe to run again')}")
    if name in _RDD_SCANS and not lineage.is_input(node.rdd()) and lineage.may_hold(node.rdd()):
        reasons.append(f"{name}: an RDD made of late-bound input may keep its first content")
    for child in elements(node.children()):
        _walk_physical(child, reasons, lineage)


class _Lineage:
    """Tell what is made of the late-bound input."""

    def __init__(self, specification_rdd: int) -> None:
        self._input = specification_rdd
        self._known: dict[int, bool] = {}

    def is_input(self, rdd: Any) -> bool:
        """Tell whether a collection is the input itself, which each run reads anew."""
        return int(rdd.id()) == self._input

    def may_hold(self, rdd: Any) -> bool:
        """Tell whether a collection descends from the input, or forgot what it descends from."""
        number = int(rdd.id())
        if number not in self._known:
            self._known[number] = (
                number == self._input
                or bool(rdd.isCheckpointed())
                or any(self.may_hold(edge.rdd()) for edge in elements(rdd.dependencies()))
            )
        return self._known[number]

    def reads_input(self, node: Any) -> bool:
        """Tell whether a part of a physical plan reads the input, or hides what it reads."""
        name = simple_name(node)
        if name in _RDD_SCANS:
            return self.may_hold(node.rdd())
        if name == "InMemoryTableScanExec":
            return self.reads_input(node.relation().cachedPlan())
        if name == "AdaptiveSparkPlanExec":
            return self.reads_input(node.inputPlan())
        if name == "ReusedExchangeExec":
            return self.reads_input(node.child())
        children = list(elements(node.children()))
        if not children:
            return name not in _STATIC_LEAVES
        return any(map(self.reads_input, children))
