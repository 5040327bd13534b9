"""Logical plans as trees that Python can walk, fetched from the JVM in one call."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True, eq=False)
class PlanNode:
    """Hold one operator of a plan, or one expression in it."""

    kind: str  # the simple name of its class
    fields: Mapping[str, Any]
    children: tuple[PlanNode, ...]

    @cached_property
    def trees(self) -> tuple[PlanNode, ...]:
        """Return what hangs in its fields: an operator's expressions, a subquery's plan."""
        return tuple(_trees(list(self.fields.values())))

    @property
    def expression_id(self) -> int:
        """Return the number of an attribute or alias, by which Spark tells columns apart."""
        return int(self.fields["exprId"]["id"])

    def downwards(self) -> list[PlanNode]:
        """List this node and those below it, each before its children, in their order."""
        found, waiting = [], [self]
        while waiting:
            node = waiting.pop()
            found.append(node)
            waiting.extend(reversed(node.children))
        return found

    def upwards(self) -> list[PlanNode]:
        """List this node and those below it, each after its children, in their order."""
        found, waiting = [], [self]
        while waiting:
            node = waiting.pop()
            found.append(node)
            waiting.extend(node.children)
        return found[::-1]

    def within(self) -> Iterator[PlanNode]:
        """List all that hangs in its fields, whole: expressions, and plans of subqueries."""
        waiting = list(self.trees)
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend((*node.children, *node.trees))


def read_plan(plan: Any) -> PlanNode:
    """Fetch a logical plan from the JVM."""
    return _tree(json.loads(plan.toJSON()))


def _tree(listed: Sequence[Mapping[str, Any]]) -> PlanNode:
    """Build a tree of a list in which each node comes before its children."""
    made: list[PlanNode] = []
    for fields in reversed(listed):
        children = tuple(made.pop() for _ in range(fields["num-children"]))
        kind = str(fields["class"]).rpartition(".")[2].removesuffix("$").rpartition("$")[2]
        made.append(PlanNode(kind, fields, children))
    return made[0]


def _trees(value: Any) -> Iterator[PlanNode]:
    if isinstance(value, list):
        if value and all(isinstance(each, dict) and "num-children" in each for each in value):
            yield _tree(value)
        else:
            for each in value:
                yield from _trees(each)
    elif isinstance(value, dict):
        yield from _trees(list(value.values()))


def jvm_downwards(plan: Any) -> Iterator[Any]:
    """List the nodes of a plan in the JVM as `PlanNode.downwards` does."""
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(list(elements(node.children()))))


def simple_name(node: Any) -> str:
    """Return the simple name of the class of something in the JVM."""
    return str(node.getClass().getSimpleName()).removesuffix("$")


def elements(sequence: Any) -> Iterator[Any]:
    """List what a Scala sequence in the JVM holds."""
    for index in range(int(sequence.size())):
        yield sequence.apply(index)
