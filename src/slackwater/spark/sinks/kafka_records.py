"""Panes as Kafka records: key, value and headers of each row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from slackwater.app.names import quoted
from slackwater.errors import SinkError
from slackwater.spark.kafka.json_rows import json_objects
from slackwater.spark.sinks.base import PANE_COLUMNS, RETRACTED
from slackwater.spark.sinks.pane_tables import IDENTITY, window_keys

_ROWS_AT_ONCE = 50_000  # that are written as text before they are sent
_MOMENT = "%Y-%m-%dT%H:%M:%SZ"
WINDOW_KEY = ("query", "window_start")
Headers = list[tuple[str, str | bytes | None]]


@dataclass(frozen=True, slots=True)
class PaneRecord:
    """Hold one record; a value of None is a tombstone."""

    key: bytes
    value: bytes | None
    headers: Headers


def pane_records(
    panes: pa.Table, key: tuple[str, ...], place: str, *, tombstones: bool = False
) -> Iterator[PaneRecord]:
    """Write each row of some panes as a record.

    The key is a JSON object with query, window_start and the columns of `key`, the value one with
    all columns. Headers tell query, window_start and pane, so that nobody need parse the rest. With
    `tombstones`, a row that takes something back is one.
    """
    require_columns(panes.column_names, key, place)
    for start in range(0, panes.num_rows, _ROWS_AT_ONCE):
        yield from _records(panes.slice(start, _ROWS_AT_ONCE), key, tombstones=tombstones)


def _records(panes: pa.Table, key: tuple[str, ...], *, tombstones: bool) -> Iterator[PaneRecord]:
    keys = json_objects(panes.select([*WINDOW_KEY, *key])).to_pylist()
    values = json_objects(panes).to_pylist()
    timings = panes["timing"].to_pylist()
    for record_key, value, timing, headers in zip(
        keys, values, timings, _headers(panes), strict=True
    ):
        gone = tombstones and timing == RETRACTED
        yield PaneRecord(record_key.encode(), None if gone else value.encode(), headers)


def require_unique(panes: pa.Table, key: tuple[str, ...], place: str) -> None:
    """Refuse panes in which two rows have one key: of these, only the last would be kept."""
    require_window_keys(panes.schema, key, place)
    names = [*IDENTITY, *key]
    counts = panes.select(names).group_by(names, use_threads=False).aggregate([([], "count_all")])
    twice = counts.filter(pc.greater(counts["count_all"], 1)).slice(0, 1)
    if twice.num_rows:
        _refuse_twice(twice.select(names).to_pylist()[0], key, place)


def require_window_keys(schema: pa.Schema, key: tuple[str, ...], place: str) -> None:
    """Refuse a key without the columns that tell windows with the same start apart."""
    if missing := [name for name in window_keys(schema) if name not in key]:
        raise SinkError(
            f"{place}: key={list(key)} lacks {missing}: each of these has windows of its own, so "
            "name them in key="
        )


def require_unique_frame(pane: DataFrame, key: tuple[str, ...], place: str) -> None:
    """Refuse a frame of one pane in which two rows have one key."""
    if missing := [name for name in key if name not in pane.columns]:
        raise SinkError(f"{place}: key={missing} names no column of the result: {pane.columns}")
    twice = pane.groupBy(*map(quoted, key)).count().where("count > 1").first()
    if twice is not None:
        _refuse_twice({name: twice[name] for name in key}, key, place)


def _refuse_twice(row: dict[str, Any], key: tuple[str, ...], place: str) -> None:
    raise SinkError(
        f"{place}: key={list(key)} names several rows of one pane ({row}), of which only one would "
        "be kept: add the columns that tell them apart"
    )


def header_moments(panes: pa.Table) -> list[str]:
    """Write the start of each row's window as headers have it."""
    moments: list[str] = pc.strftime(panes["window_start"], format=_MOMENT).to_pylist()
    return moments


def _headers(panes: pa.Table) -> Iterator[Headers]:
    """Give all rows of a pane the same list of headers."""
    starts = header_moments(panes)
    known: dict[tuple[str, str, int], Headers] = {}
    for identity in zip(panes["query"].to_pylist(), starts, panes["pane"].to_pylist(), strict=True):
        if identity not in known:
            query, start, pane = identity
            known[identity] = [
                ("query", query.encode()),
                ("window_start", start.encode()),
                ("pane", str(pane).encode()),
            ]
        yield known[identity]


def require_columns(names: Sequence[str], key: tuple[str, ...], place: str) -> None:
    """Refuse panes without the columns that all have, or without those of the key."""
    missing = [name for name in (*PANE_COLUMNS, *key) if name not in names]
    if missing or len(set(names)) < len(names):
        what = f"lack the columns {missing}" if missing else "have a column name twice"
        raise SinkError(
            f"rows for {place} {what} (columns: {list(names)}): every row of a pane begins with "
            f"{list(PANE_COLUMNS)}, and key= names columns of the result"
        )
