"""Which columns of the stream come out of the transforms as they went in.

A column counts as carried if, on every way through the plan, it is the very attribute of the input
or a mere renaming of it: a name says nothing, for `df.replace(1, 0)` keeps all names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from slackwater.spark.logical import PlanNode, elements, jvm_downwards, simple_name
from slackwater.spark.rowwise import OPAQUE, reads_stream

_Labels = dict[int, str]  # the input's column that an attribute is, by the attribute's number
_OPAQUE = OPAQUE | {"DeserializeToObject", "SerializeFromObject", "MapElements", "TypedFilter"}


@dataclass(frozen=True)
class Carried:
    """Say which of the input's columns come out untouched, under their own names.

    `computed_with` names those of the columns asked about that an expression reads; `opaque` tells
    whether some function sees whole rows, and may do with them what it likes.
    """

    names: frozenset[str]
    computed_with: frozenset[str]
    opaque: bool


def carried_columns(plan: Any, read: PlanNode, asked: Collection[str]) -> Carried:
    """Follow columns through a plan (of the JVM) and the tree that was read of it."""
    watched = [each for each in read.downwards() if each.kind in {"Union", "Expand"}]
    theirs: dict[PlanNode, Any] = {}
    if watched:
        found = [node for node in jvm_downwards(plan) if simple_name(node) in {"Union", "Expand"}]
        theirs = dict(zip(watched, found, strict=True))
    labels: dict[PlanNode, _Labels] = {}
    tables: dict[int, _Labels] = {}
    computed: set[str] = set()
    opaque = False
    for node in read.upwards():
        below: _Labels = {}
        for child in node.children:
            below |= labels[child]
        match node.kind:
            case "Project":
                labels[node] = _projected(node, below, computed)
            case "Union":
                labels[node] = _united(node, theirs[node], labels, computed)
            case "Expand":
                labels[node] = _expanded(theirs[node], below, computed)
            case "CTERelationDef":
                labels[node] = tables[int(node.fields["id"])] = below
            case "CTERelationRef":
                labels[node] = tables.get(int(node.fields["cteId"]), {})
            case _ if not node.children:
                labels[node] = _read(node)
            case kind if kind in _OPAQUE:
                labels[node] = {}
                opaque |= bool(below)
            case _:
                labels[node] = below
                computed |= {below[each] for each in _references(node) if each in below}
    outputs = [(name, labels[read].get(number)) for name, number in _outputs(plan)]
    names = {name for name, label in outputs if label == name}
    computed |= {label for name, label in outputs if label not in (None, name)}  # shown as others
    return Carried(frozenset(names), frozenset(computed & set(asked)), opaque)


def _read(leaf: PlanNode) -> _Labels:
    if not reads_stream(leaf):
        return {}
    return {
        each.expression_id: str(each.fields["name"])
        for each in leaf.trees
        if each.kind == "AttributeReference"
    }


def _projected(node: PlanNode, below: _Labels, computed: set[str]) -> _Labels:
    found: _Labels = {}
    for column in node.trees:
        inner = column.children[0] if column.kind == "Alias" else column
        if inner.kind == "AttributeReference":
            if inner.expression_id in below:
                found[column.expression_id] = below[inner.expression_id]
        else:
            computed |= {below[each] for each in _references(node, column) if each in below}
    return found


def _united(
    node: PlanNode, theirs: Any, labels: dict[PlanNode, _Labels], computed: set[str]
) -> _Labels:
    """Keep what is the same column of the input in all parts of a union, place by place."""
    children = theirs.children()
    parts = [
        [labels[child].get(number) for _, number in _outputs(children.apply(index))]
        for index, child in enumerate(node.children)
    ]
    found: _Labels = {}
    for (_, number), *same in zip(_outputs(theirs), *parts, strict=True):
        if same[0] is not None and len(set(same)) == 1:
            found[number] = same[0]
        else:
            # What a part of the union lacks is null there; what is another column is mixed up.
            mixed = {label for label in same if label is not None}
            computed |= mixed if len(mixed) > 1 else set()
    return found


def _expanded(theirs: Any, below: _Labels, computed: set[str]) -> _Labels:
    """Keep what each projection passes on under its own number; its expressions are not in JSON."""
    found: _Labels = {}
    for place, (_, number) in enumerate(_outputs(theirs)):
        same = set()
        for projection in elements(theirs.projections()):
            expression = projection.apply(place)
            if simple_name(expression) == "AttributeReference":
                same.add(below.get(int(expression.exprId().id())))
            else:
                same.add(None)
                read = (
                    int(each.exprId().id()) for each in elements(expression.references().toSeq())
                )
                computed |= {below[each] for each in read if each in below}
        if len(same) > 1:
            computed |= {label for label in same if label is not None}
        elif (label := same.pop()) is not None:
            found[number] = label
    return found


def _references(node: PlanNode, tree: PlanNode | None = None) -> Iterator[int]:
    waiting = [*node.trees] if tree is None else [tree]
    while waiting:
        each = waiting.pop()
        if each.kind == "AttributeReference":
            yield each.expression_id
        waiting.extend((*each.children, *each.trees))


def _outputs(plan: Any) -> list[tuple[str, int]]:
    return [(str(each.name()), int(each.exprId().id())) for each in elements(plan.output())]
