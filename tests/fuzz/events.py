"""Small sets of events with awkward values, as a script that trickles in and as one batch."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

import slackwater as sw
from slackwater.testing import Script, scripted

START: Final = datetime(2024, 1, 1, tzinfo=UTC)
BEFORE: Final = START - timedelta(days=1)
TENANTS: Final = 3
SETS: Final = 3  # of events: more would make the batches slower, not better
ARRIVALS: Final = 4  # instants at which some events come together

PLAIN: Final = {
    "k": "string",
    "g": "int",
    "v": "double",
    "n": "bigint",
    "d": "decimal(12,2)",
    "at": "timestamp",
    "flag": "boolean",
    "tags": "array<string>",
    "s": "struct<x:int,y:string>",
    "b": "binary",
    "m": "map<string,int>",
}
# Names that need quoting, differ by what SQL means by them, or hold values that compare oddly.
AWKWARD: Final = {
    "tick`ed": "string",
    "dot.ted": "int",
    "Mixed Case": "double",
    "select": "bigint",
    "ünï": "decimal(12,2)",
    "c": "string collate UTF8_LCASE",
    "f": "float",
    "day": "date",
}
COLUMNS: Final = {**PLAIN, **AWKWARD}
Columns = tuple[str, ...]

VALUES: Final[dict[str, Sequence[Any]]] = {
    "k": (None, "a", "b", "it's", "", "A"),
    "g": (None, 0, 1, 2),
    "v": (None, -0.0, 0.0, 1.5, -2.25, 1.0),  # JSON has no NaN: an operation makes some
    "n": (None, 0, 1, 2, -7, 1_000_000),
    "d": (None, Decimal("0.00"), Decimal("1.50"), Decimal("-3.07"), Decimal("12.34")),
    "at": (None, START, START + timedelta(microseconds=1), START - timedelta(days=9_999)),
    "flag": (None, True, False),
    "tags": (None, [], ["a"], ["b", None], ["a", "b", ""]),
    "s": (None, {"x": 1, "y": "a"}, {"x": None, "y": ""}, {"x": 2, "y": None}),
    "b": (None, b"", b"a", b"\x00\xff"),
    "m": (None, {}, {"a": 1}, {"b": 0, "a": 2}),
    "tick`ed": (None, "a", "B", "`"),
    "dot.ted": (None, 0, 1),
    "Mixed Case": (None, -0.0, 2.5),
    "select": (None, 1, 2),
    "ünï": (None, Decimal("0.10"), Decimal("9999999999.99")),
    "c": (None, "ann", "ANN", "Bob", ""),
    "f": (None, -0.0, 0.5),
    "day": (None, START.date(), START.date() - timedelta(days=400)),
}


@dataclass(frozen=True)
class Event:
    """Hold a record: when it arrives, and what it says."""

    arrives: datetime
    values: dict[str, Any]


def schema_of(columns: Columns) -> str:
    kinds = {"ts": "timestamp", **{name: COLUMNS[name] for name in columns}}
    return ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in kinds.items())


def events_of(columns: Columns, number: int, tenant: int) -> list[Event]:
    """Draw a tenant's events, a few at a time, some of them late."""
    chance = Random(f"{number}/{tenant}")
    found = []
    for arrival in range(ARRIVALS):
        arrives = START + timedelta(seconds=3 * arrival + 3)
        for _ in range(chance.randint(2, 4)):
            ts = arrives - timedelta(microseconds=chance.choice([0, chance.randrange(5_000_000)]))
            values = {name: chance.choice(VALUES[name]) for name in COLUMNS}
            found.append(Event(arrives, {"ts": ts, **{name: values[name] for name in columns}}))
    return found


def script_of(columns: Columns, number: int, tenant: int) -> Script:
    script = scripted(schema_of(columns), event_time="ts", watermark=sw.bounded("1 s"))
    for event in events_of(columns, number, tenant):
        values = {name: _as_json(value) for name, value in event.values.items()}
        script.add(arrives=event.arrives, **values)
    return script.end()


def batch_of(
    spark: SparkSession,
    columns: Columns,
    number: int,
    tenant: int,
    start: datetime = BEFORE,
    seconds: float = 1e11,
) -> DataFrame:
    """Make a plain frame of all events of a tenant, or of those of some seconds."""
    rows = [
        tuple(event.values.values())
        for event in events_of(columns, number, tenant)
        if 0 <= (event.values["ts"] - start).total_seconds() < seconds
    ]
    return spark.createDataFrame(rows, schema_of(columns)).coalesce(1)


def _as_json(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value
