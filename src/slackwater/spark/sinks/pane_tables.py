"""Tables of panes: which panes they hold, which are the last, which columns an output has."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from slackwater.errors import SinkError
from slackwater.spark.sinks.base import (
    KEYS_METADATA,
    PANE_COLUMNS,
    PANE_FIELDS,
    PANES_OF_A_LIFE,
    RETRACTED,
)

IDENTITY = ("query", "window_start", "pane")
PaneKey = tuple[str, int, int]  # query, window start in microseconds, pane
_US_UTC = pa.timestamp("us", tz="UTC")


def last_panes(table: pa.Table, by: Sequence[str] | None = None) -> pa.Table:
    """Keep the rows that hold now, in their order: those of each window's highest pane.

    Of session and count windows each key has its own: `by` names the keys, by default those that
    the table itself names. A window that has been taken back has no rows.
    """
    if not table.num_rows:
        return table
    keys = window_keys(table.schema) if by is None else by
    order, changes = _sorted_by(table, ["query", "window_start", *keys])
    pane = table["pane"].to_numpy()[order]
    firsts = np.flatnonzero(changes)
    highest = np.maximum.reduceat(pane, firsts)
    keep = np.empty(len(pane), dtype=bool)
    keep[order] = pane == np.repeat(highest, np.diff(np.append(firsts, len(pane))))
    return table.filter(pc.and_(pa.array(keep), pc.not_equal(table["timing"], RETRACTED)))


def window_keys(schema: pa.Schema) -> list[str]:
    """Name the columns that tell windows with the same start apart: those of each key its own."""
    keys: list[str] = json.loads((schema.metadata or {}).get(KEYS_METADATA, b"[]"))
    return keys


def with_window_keys(schema: pa.Schema, keys: Sequence[str]) -> pa.Schema:
    """Return the schema with a note of such columns."""
    return schema.with_metadata({KEYS_METADATA: json.dumps(list(keys)).encode()} if keys else None)


def _sorted_by(table: pa.Table, columns: Sequence[str]) -> tuple[NDArray[np.int64], Any]:
    """Return an order that puts equal rows together, and which of them, so ordered, are first."""
    codes = []
    for name in columns:
        encoded = pc.dictionary_encode(table[name].combine_chunks(), null_encoding="encode")
        codes.append(encoded.indices.to_numpy())
    order = np.lexsort(codes)
    changes = np.zeros(len(order), dtype=bool)
    changes[0] = True
    for code in codes:
        changes[1:] |= np.diff(code[order]) != 0
    return order, changes


def pane_keys(table: pa.Table) -> set[PaneKey]:
    """Name the panes that a table holds rows of."""
    groups = table.select(IDENTITY).group_by(list(IDENTITY), use_threads=False)
    return set(_keys(groups.aggregate([])))


def fresh_panes(
    panes: pa.Table, is_written: Callable[[PaneKey], bool]
) -> tuple[pa.Table, set[PaneKey], set[PaneKey]]:
    """Return the rows of panes not written yet, the names of these, and those of all panes."""
    names = pane_keys(panes)
    fresh = {key for key in names if not is_written(key)}
    if not fresh:
        panes = panes.slice(0, 0)
    elif len(fresh) < len(names):
        panes = panes.filter(pa.array([key in fresh for key in _keys(panes)], pa.bool_()))
    return panes, fresh, names


def _keys(table: pa.Table) -> Iterable[PaneKey]:
    starts = table["window_start"].cast(pa.int64())
    return zip(
        table["query"].to_pylist(), starts.to_pylist(), table["pane"].to_pylist(), strict=True
    )


class RecentPanes:
    """Remember, of each query, the panes of its last write: no others can be sent again.

    A pane is sent again when its commit was not seen: after a crash, or at the retry of a step. A
    step is written in one call, so its panes of a query come together, or not at all. The first
    pane of a window and later ones may come from two queries of one name, an early and an exact
    one, so they are remembered apart.
    """

    def __init__(self, *, forgets: bool = True) -> None:
        self._forgets = forgets
        self._last: dict[tuple[str, bool], set[PaneKey]] = {}
        self._lock = threading.Lock()

    def __contains__(self, key: PaneKey) -> bool:
        return key in self._last.get(_series(key), ())

    def leave_out(self, panes: pa.Table) -> tuple[pa.Table, set[PaneKey], set[PaneKey]]:
        """Return the rows of panes not written yet, the names of these, and those of all panes."""
        with self._lock:
            return fresh_panes(panes, self.__contains__)

    def recall(self, keys: Iterable[PaneKey]) -> None:
        """Remember panes that were found, besides those that are remembered already."""
        with self._lock:
            for key in keys:
                self._last.setdefault(_series(key), set()).add(key)

    def add(self, keys: Iterable[PaneKey]) -> None:
        """Remember the panes of a write, all of them, in the place of those of the write before."""
        if not self._forgets:
            self.recall(keys)
            return
        written: dict[tuple[str, bool], set[PaneKey]] = {}
        for key in keys:
            written.setdefault(_series(key), set()).add(key)
        with self._lock:
            self._last |= written


def _series(key: PaneKey) -> tuple[str, bool]:
    query, _, pane = key
    return query, is_first(pane)


def is_first(pane: int) -> bool:
    """Tell whether a pane is the first of its window."""
    return pane % PANES_OF_A_LIFE == 0


class PaneColumns:
    """Hold an output to one set of columns: those it has, or else those of its first panes."""

    def __init__(self, place: str, existing: pa.Schema | None = None) -> None:
        self._place = place
        self._schema = None if existing is None else self._stored(existing)
        self._lock = threading.Lock()

    def conform(self, panes: pa.Table) -> pa.Table:
        """Return the panes with the output's columns, or say how theirs differ."""
        schema = self.conform_schema(panes.schema)
        try:
            return panes.select(schema.names).cast(schema)
        except ValueError as failure:
            raise SinkError(
                f"panes do not fit the columns of {self._place}: {failure}: cast that column"
            ) from failure

    def conform_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the output's columns, or say how these differ."""
        stored = self._stored(schema)
        with self._lock:
            if self._schema is None:
                self._schema = stored
        here = {field.name: field.type for field in self._schema}
        new = {field.name: field.type for field in stored}
        differences = [
            *(f"no column {name!r}" for name in here if name not in new),
            *(f"a new column {name!r}" for name in new if name not in here),
            *(
                f"column {name!r} of type {new[name]} instead of {here[name]}"
                for name in here
                if name in new and new[name] != here[name]
            ),
        ]
        if differences:
            raise SinkError(
                f"panes have other columns than those in {self._place}: {', '.join(differences)}: "
                "write outputs with different columns to different places"
            )
        return self._schema

    def _stored(self, schema: pa.Schema) -> pa.Schema:
        missing = [name for name in PANE_COLUMNS if name not in schema.names]
        if missing or len({name.lower() for name in schema.names}) < len(schema.names):
            what = "have a column name twice (Spark ignores case)"
            what = f"lack the columns {missing}" if missing else what
            raise SinkError(
                f"rows for {self._place} {what} (columns: {schema.names}): every row of a pane "
                f"begins with {list(PANE_COLUMNS)}, and keys and values have names of their own"
            )
        values = [field for field in schema if field.name not in PANE_COLUMNS]
        fields = [*PANE_FIELDS, *(pa.field(v.name, _plain(v.type)) for v in values)]
        return with_window_keys(pa.schema(fields), window_keys(schema))


def _plain(kind: pa.DataType) -> pa.DataType:
    """Give the type that every reader understands in the place of those only Arrow has."""
    if pa.types.is_timestamp(kind):
        return _US_UTC if kind.tz else pa.timestamp("us")
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_large_string(kind):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(kind) else kind
