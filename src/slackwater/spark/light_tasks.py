"""Take out of the tasks of a planned frame what they carry for nothing.

The code that Spark compiles for a stage refers to the stage's aggregation, of which it needs the
hash map alone. But an aggregation holds the plan below it, down to the scan, and all of that is
serialised for every job and read back by every task, which takes longer than many a small task
computes. So the references are changed to aggregations that hold a leaf of that plan instead.

Spark has no interface for this. What is not found where it was in the releases that this was
written for is left as it is: tasks are then heavier, and compute the same.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final

from py4j.protocol import Py4JError

logger = logging.getLogger("slackwater")

_AGGREGATION: Final = "org.apache.spark.sql.execution.aggregate.HashAggregateExec"
_STAGE: Final = "org.apache.spark.sql.execution.WholeStageCodegenEvaluatorFactory"
_MAPPED: Final = "org.apache.spark.rdd.MapPartitionsRDD"
_DEPTH: Final = 4  # of functions that hold functions


def lighten(planned: Any, jvm: Any) -> int:
    """Lighten the tasks of a distributed collection (a Java RDD); return how many references."""
    try:
        return sum(_lightened(stage, jvm) for stage in _stages(planned))
    except (Py4JError, TypeError) as error:  # TypeError: a field that is not there is None
        logger.debug("tasks are not made lighter: %s", error)
        return 0


def _lightened(stage: Any, jvm: Any) -> int:
    """Change the references of one stage."""
    references = _field(stage, "references")
    found = 0
    for place, held in enumerate(references):
        if _class_name(held) == _AGGREGATION:
            leaf = jvm.java.util.ArrayList()
            leaf.add(held.collectLeaves().head())
            children = jvm.scala.jdk.javaapi.CollectionConverters.asScala(leaf).toSeq()
            references[place] = held.withNewChildren(children)
            found += 1
    return found


def _stages(planned: Any) -> Iterator[Any]:
    """Find the compiled stages of a collection and of those it is made from."""
    if _class_name(planned) == _MAPPED:
        yield from _held_stages(_field(planned, "f"), _DEPTH)
    made_from = planned.dependencies()
    for index in range(made_from.size()):
        yield from _stages(made_from.apply(index).rdd())


def _held_stages(function: Any, depth: int) -> Iterator[Any]:
    """Find the compiled stages among what a function has captured."""
    name = _class_name(function)
    if name == _STAGE:
        yield function
    elif "Lambda" in name and depth:
        for field in function.getClass().getDeclaredFields():
            field.setAccessible(True)
            yield from _held_stages(field.get(function), depth - 1)


def _field(held: Any, name: str) -> Any:
    """Return what a private field holds; Scala may have written the class before its name."""
    for field in held.getClass().getDeclaredFields():
        if field.getName().split("$$")[-1] == name:
            field.setAccessible(True)
            return field.get(held)
    return None


def _class_name(held: Any) -> str:
    """Return the class of a Java object; nothing for what Py4J hands over as a Python value."""
    return str(held.getClass().getName()) if hasattr(held, "getClass") else ""
