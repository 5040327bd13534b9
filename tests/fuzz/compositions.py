"""Compositions of operations: programs over a source's columns, and what is computed of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    MapType,
    NumericType,
    StringType,
    StructType,
    TimestampType,
)
from tests.fuzz.events import COLUMNS, Columns
from tests.fuzz.operations import Operation, scope

import slackwater as sw


@dataclass(frozen=True)
class Composition:
    """Hold a program, and what is computed of its rows. `salt` chooses keys and aggregates.

    `applied` says that it is a function of a window's rows instead of a transform.
    """

    program: tuple[Operation, ...]
    columns: Columns = ()
    events: int = 0
    slide_s: int = 4
    keys: int = 0
    salt: int = 0
    applied: bool = False

    def __repr__(self) -> str:
        lines = [f"    df = {operation.text}" for operation in self.program]
        settings = ", ".join(
            f"{name}={value!r}" for name, value in vars(self).items() if name != "program"
        )
        return "\n".join([f"Composition({settings}) of", *(lines or ["    df"])])

    @property
    def stateless(self) -> bool:
        return all(operation.stateless for operation in self.program)


def composed(program: Sequence[Operation], further: Sequence[str], **settings: Any) -> Composition:
    """Leave out operations whose columns another has taken away; read what is needed, and more."""
    kept: list[Operation] = []
    wanted: set[str] = set()  # of the source
    made: set[str] = set()
    gone: set[str] = set()
    left: frozenset[str] | None = None  # once all others are gone
    for operation in program:
        needed = operation.needs - made
        if needed & gone or (left is not None and needed - left):
            continue
        if {name.lower() for name in operation.adds} & {name.lower() for name in made | wanted}:
            continue
        wanted |= needed
        if "*" in operation.drops:
            left = operation.drops if left is None else left & operation.drops
            made &= operation.drops
        gone = (gone | operation.drops) - operation.adds
        made = (made - operation.drops) | operation.adds
        kept.append(operation)
    taken = {name.lower() for each in kept for name in each.adds}
    columns = tuple(
        name
        for name in COLUMNS
        if name in wanted or (name in further and name.lower() not in taken)
    )
    return Composition(tuple(kept), columns, **settings)


def simpler(composition: Composition) -> Iterator[Composition]:
    """List what is a little less than a composition, most of it first."""
    for index in range(len(composition.program)):
        rest = composition.program[:index] + composition.program[index + 1 :]
        yield replace(composition, program=rest)
    for name in composition.columns:
        yield replace(composition, columns=tuple(n for n in composition.columns if n != name))
    if composition.keys:
        yield replace(composition, keys=composition.keys - 1)
    for less in (
        replace(composition, slide_s=4),
        replace(composition, salt=0),
        replace(composition, events=0),
    ):
        if less != composition:
            yield less


@lru_cache(maxsize=1)
def _scope(spark: SparkSession) -> dict[str, Any]:
    return scope(spark)


def function_of(spark: SparkSession, composition: Composition) -> Callable[[DataFrame], DataFrame]:
    known = _scope(spark)

    def function(df: DataFrame) -> DataFrame:
        for operation in composition.program:
            df = eval(operation.text, {**known, "df": df})
        return df

    return function


@dataclass(frozen=True)
class Plan:
    """Say what is computed of a window's rows: keys, and SQL of each aggregate's argument."""

    by: tuple[str, ...] = ()
    aggregates: Mapping[str, tuple[str, str]] | None = None

    def ours(self) -> dict[str, Any]:
        chosen = (self.aggregates or {}).items()
        functions = {name: getattr(sw, function)(sql) for name, (function, sql) in chosen}
        return {"rows": sw.count(), **functions}

    def sparks(self) -> list[Column]:
        chosen = (self.aggregates or {}).items()
        functions = [F.expr(f"{function}({sql})").alias(name) for name, (function, sql) in chosen]
        return [F.count("*").alias("rows"), *functions]


def plan_of(composition: Composition, schema: StructType) -> Plan:
    """Choose keys among the columns of the transform's result, and aggregates over the others."""
    fields = [field for field in schema.fields if field.name != "ts"]
    first = composition.salt % max(1, len(fields))
    turned = fields[first:] + fields[:first]
    if composition.salt % 7:  # otherwise a nested one may be a key, and is refused
        turned.sort(key=lambda field: isinstance(field.dataType, ArrayType | MapType | StructType))
    by = tuple(field.name for field in turned[: composition.keys])
    aggregates = {}
    if fields:
        values = ", ".join(_hashable(field.name, field.dataType) for field in fields)
        aggregates["checksum"] = ("sum", f"CAST(hash({values}) AS BIGINT)")
    for index, field in enumerate(turned[composition.keys :][:3]):
        choices = _functions(field.dataType)
        function = choices[(composition.salt + index) % len(choices)]
        aggregates[f"a{index}"] = (function, quoted(field.name))
    return Plan(by, aggregates)


def quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _hashable(name: str, kind: DataType) -> str:
    return f"array_sort(map_entries({quoted(name)}))" if isinstance(kind, MapType) else quoted(name)


def _functions(kind: DataType) -> tuple[str, ...]:
    if isinstance(kind, NumericType):
        return ("sum", "mean", "min", "max", "stddev", "variance", "count")
    if isinstance(kind, StringType | TimestampType | DateType):
        return ("min", "max", "count")
    return ("count",)
