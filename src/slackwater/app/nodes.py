"""The tree that a stream's description is: inputs, transforms, unions, and the sides of joins."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from slackwater.app.aggregates import Aggregate, Count
from slackwater.app.names import argument_sql, quoted

# A function from DataFrame to DataFrame; descriptions do not import Spark to say so.
FrameFunction = Callable[[Any], Any]

HOWS = ("inner", "left", "full")
EVENT_TIME = "_sw_time"  # what the sides of a join all call their event time
_Truth = TypeVar("_Truth")


@dataclass(frozen=True, eq=False)
class SourceNode:
    """Stand for an input that is named now and given when the app is deployed."""

    name: str


@dataclass(frozen=True, eq=False)
class TransformNode:
    """Stand for a stream after a DataFrame function."""

    parent: Node
    function: FrameFunction


@dataclass(frozen=True, eq=False)
class UnionNode:
    """Stand for the rows of two streams together."""

    left: Node
    right: Node


@dataclass(frozen=True, eq=False)
class Leg:
    """Hold one side of a join of results: a stream, and what is computed from it."""

    node: Node
    aggregates: dict[str, Aggregate]


@dataclass(frozen=True, eq=False)
class LegsNode:
    """Stand for a join of results, as the rows of all legs in one stream.

    A row has the keys, one column for each aggregate of *its own* leg that holds the aggregate's
    argument, and a mark of its leg; the columns of other legs are null. Aggregates pass over null,
    so grouping this one stream by the keys computes and joins all legs at once.
    """

    legs: tuple[Leg, ...]
    on: tuple[str, ...]
    hows: tuple[str, ...]  # how each further leg is joined to those before it

    @property
    def written(self) -> dict[str, Aggregate]:
        """Return the aggregates of all legs as the user wrote them."""
        return {name: each for leg in self.legs for name, each in leg.aggregates.items()}

    @property
    def aggregates(self) -> dict[str, Aggregate]:
        """Return the aggregates over the tagged stream, with a count of each leg's rows."""
        over_columns: dict[str, Aggregate] = {
            name: replace(aggregate, column=quoted(name))
            for name, aggregate in self.written.items()
        }
        return over_columns | {mark: Count(quoted(mark)) for mark in self.marks}

    @property
    def marks(self) -> list[str]:
        """Name, for each leg, the column that is 1 in its rows; its count goes by that name too."""
        return [f"_sw_leg_{index}" for index in range(len(self.legs))]

    def arguments(self, leg: int, columns: Collection[str]) -> dict[str, str]:
        """Write, as SQL over a leg's rows and their `columns`, the columns that the leg fills."""
        found = {
            name: "1" if each.column is None else argument_sql(each.column, columns)
            for name, each in self.legs[leg].aggregates.items()
        }
        return found | {self.marks[leg]: "1"}


@dataclass(frozen=True, eq=False)
class SidesNode:
    """Stand for a join of rows, as the rows of all sides in one stream.

    Each row stands, whole, as a struct in the column of its side; the join happens when the window
    closes.
    """

    sides: tuple[Node, ...]
    on: tuple[str, ...]
    hows: tuple[str, ...]  # how each further side is joined to those before it

    @staticmethod
    def column(side: int) -> str:
        """Name the column that holds the rows of one side."""
        return f"_sw_side_{side}"


Node = SourceNode | TransformNode | UnionNode | LegsNode | SidesNode


def leaves(node: Node) -> Iterator[SourceNode]:
    """List the inputs of a stream, left to right; one used twice is listed (and read) twice."""
    match node:
        case SourceNode():
            yield node
        case TransformNode(parent=parent):
            yield from leaves(parent)
        case UnionNode(left=left, right=right):
            yield from leaves(left)
            yield from leaves(right)
        case LegsNode(legs=legs):
            for leg in legs:
                yield from leaves(leg.node)
        case SidesNode(sides=sides):
            for side in sides:
                yield from leaves(side)


def joined(
    hows: Sequence[str],
    present: Sequence[_Truth],
    both: Callable[[_Truth, _Truth], _Truth],
    either: Callable[[_Truth, _Truth], _Truth],
) -> tuple[_Truth, list[_Truth]]:
    """Say, for one group of keys, whether the joined row exists and which legs it shows.

    `present` tells of each leg whether it has the group. Truths may be anything that `both` and
    `either` combine: booleans, whole columns of them, SQL.

    >>> from operator import and_, or_
    >>> joined(["inner"], [True, False], and_, or_)
    (False, [False, False])
    >>> joined(["inner", "full"], [True, False, True], and_, or_)
    (True, [False, False, True])
    """
    kept, shown = present[0], [present[0]]
    for how, here in zip(hows, present[1:], strict=True):
        match how:
            case "inner":
                kept = both(kept, here)
                shown = [*(both(each, kept) for each in shown), kept]
            case "left":
                shown.append(both(kept, here))
            case _:
                shown.append(here)
                kept = either(kept, here)
    return kept, shown
