"""What a step brings back for windows that each key has for itself: stretches, or single events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slackwater.app.aggregates import Aggregate, Count
from slackwater.app.names import quoted
from slackwater.app.windows import CountWindows, KeyedWindows, Windows
from slackwater.spark.sources.base import OFFSET, PARTITION

FIRST = "_sw_first"  # event time of a stretch's first event, in microseconds since the epoch
LAST = "_sw_last"
TIE = "_sw_tie"
# What orders events of the same time: where they came from, then what they hold. Those that hold
# the same may stand in any order.
PLACES = (PARTITION, OFFSET)
TIES = (*PLACES, TIE)


def span_columns(windows: Windows) -> list[str]:
    """Name the state columns that say when the events of a row happened."""
    if not isinstance(windows, KeyedWindows):
        return []
    return [FIRST, LAST, *(TIES if isinstance(windows, CountWindows) else ())]


def spans(windows: Windows, event_time: str) -> dict[str, str]:
    """Write the aggregates that say when the events of a group happened, as SQL."""
    if not isinstance(windows, KeyedWindows):
        return {}
    time = f"unix_micros({quoted(event_time)})"
    return {FIRST: f"min({time})", LAST: f"max({time})"}


def value_columns(aggregates: Mapping[str, Aggregate]) -> dict[str, str]:
    """Name, by aggregate, the columns that hold what it is made from, event by event."""
    return {name: f"{name}__value" for name, each in aggregates.items() if each.column is not None}


def event_columns(
    columns: Sequence[str],
    event_time: str,
    keys: Sequence[str],
    aggregates: Mapping[str, Aggregate],
) -> dict[str, str]:
    """Write, as SQL over the stream's `columns`, what is kept of each event besides its keys."""
    values = {
        column: _value(aggregates[name]) for name, column in value_columns(aggregates).items()
    }
    time = f"unix_micros({quoted(event_time)})"
    return {
        FIRST: time,
        LAST: time,
        **{place: f"CAST({place if place in columns else -1} AS BIGINT)" for place in PLACES},
        TIE: tie_sql(keys, aggregates),
        **values,
    }


def tie_sql(keys: Sequence[str], aggregates: Mapping[str, Aggregate]) -> str:
    """Write what orders events of the same time and place: all that results depend on."""
    values = [_value(aggregates[name]) for name in value_columns(aggregates)]
    content = ", ".join([*map(quoted, keys), *values])
    return f"xxhash64({content})" if content else "0L"


def _value(aggregate: Aggregate) -> str:
    if isinstance(aggregate, Count):
        return f"CASE WHEN {aggregate.argument} IS NOT NULL THEN 1 END"
    return aggregate.argument
