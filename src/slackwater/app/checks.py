"""Checks that several descriptions share: names of columns, aggregates, and what a join needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from slackwater.app.aggregates import Aggregate, ApproxDistinct, ApproxQuantile
from slackwater.app.nodes import HOWS
from slackwater.app.windows import KeyedWindows, Windows
from slackwater.errors import DescriptionError

RESERVED_NAMES = frozenset({"query", "window_start", "window_end", "pane", "timing", "accuracy"})
SYSTEM_PREFIX = "_sw_"
JOIN_INSTEAD = (
    "put the streams together with union(...) before the window, or join in tumbling(...) windows"
)


def key_names(by: str | Sequence[str], place: str) -> tuple[str, ...]:
    """Return the keys given as one name or several, or say what is wrong with them."""
    if not isinstance(by, Sequence):
        raise DescriptionError(f"{place}={by!r}: name a column, or several in a list")
    keys = (by,) if isinstance(by, str) else tuple(by)
    check_names(keys, place)
    return keys


def check_names(names: Sequence[str], place: str) -> None:
    """Refuse column names that are none, are taken, or come twice; Spark ignores their case."""
    for name in names:
        if not isinstance(name, str) or not name:
            raise DescriptionError(f"{place}: {name!r} is not a column name: write it as a string")
        if is_reserved(name) or is_system_name(name):
            raise DescriptionError(
                f"{place}: {name!r} is a name that Slackwater puts on every pane (in any case, for "
                "Spark ignores that): rename the column"
            )
    taken: dict[str, str] = {}
    for name in names:
        other = taken.setdefault(name.lower(), name)
        if other != name:
            raise DescriptionError(
                f"{place}: {other!r} and {name!r} differ in case only, which Spark ignores: rename "
                "one of them"
            )
        if names.count(name) > 1:
            raise DescriptionError(f"{place}: {name!r} is named twice: give each its own name")


def is_reserved(name: str) -> bool:
    """Tell whether a column of every pane has a name, in whatever case."""
    return name.lower() in RESERVED_NAMES


def is_system_name(name: str) -> bool:
    """Tell whether a name is one of those that the runtime gives columns of its own.

    >>> is_system_name("_SW_slice"), is_system_name("slice")
    (True, False)
    """
    return name.lower().startswith(SYSTEM_PREFIX)


def doubled_name(names: Iterable[str]) -> str | None:
    """Find a name that comes twice; Spark ignores case.

    >>> doubled_name(["user", "n", "User"]), doubled_name(["user", "n"])
    ('User', None)
    """
    seen = set[str]()
    for name in names:
        if name.lower() in seen:
            return name
        seen.add(name.lower())
    return None


def check_state_names(by: Sequence[str], kept: Iterable[tuple[str, str]], place: str) -> None:
    """Refuse names that Spark, which ignores case, would take for one another in the state.

    `kept` are the aggregates' names, each with a column that its state is in.
    """
    taken = {key.lower(): f"the key {key!r}" for key in by}
    for name, column in kept:
        other = taken.setdefault(column.lower(), f"the aggregate {name!r}")
        if other != f"the aggregate {name!r}":
            raise DescriptionError(
                f"{place}: the aggregate {name!r} keeps its state in a column {column!r}, which "
                f"{other} has too; rename one of them"
            )


def check_windows(windows: Windows) -> None:
    """Refuse what is not a description of windows."""
    if not isinstance(windows, Windows):
        raise DescriptionError(
            f"window({windows!r}): give tumbling(...), sliding(...), sessions(...) or "
            "counted(...), such as window(tumbling('3 seconds'))"
        )


def check_common(windows: Windows, what: str, remedy: str) -> None:
    """Refuse windows that each key has for itself where windows must be the same for all."""
    if isinstance(windows, KeyedWindows):
        raise DescriptionError(
            f"{what}: windows of {windows.text} differ from key to key; {remedy}"
        )


def check_aggregates(aggregates: Mapping[str, Aggregate], by: Sequence[str]) -> None:
    """Refuse aggregates that are none, or whose names are taken."""
    if not aggregates:
        raise DescriptionError("aggregate(): name at least one, such as aggregate(n=count())")
    for name, aggregate in aggregates.items():
        if callable(aggregate):
            called = getattr(aggregate, "__name__", "it")
            raise DescriptionError(
                f"aggregate({name}={called}) is not called yet: write {name}={called}(...)"
            )
        if not isinstance(aggregate, Aggregate):
            raise DescriptionError(
                f"aggregate({name}={aggregate!r}): give one of count, sum, mean, min, max, "
                "variance, stddev, approx_distinct, approx_quantile; for all else use apply"
            )
    check_names((*by, *aggregates), "aggregate")


def check_no_sketches(aggregates: Mapping[str, Aggregate], what: str) -> None:
    """Refuse sketches where each event is kept as it is, and merged in the driver."""
    for name, aggregate in aggregates.items():
        if isinstance(aggregate, ApproxDistinct | ApproxQuantile):
            raise DescriptionError(
                f"aggregate({name}={aggregate.label}): {what} no sketches; use count, sum, mean, "
                "min, max, variance or stddev, or take the sketch in the first stage's tumbling, "
                "sliding or session windows"
            )


def check_join(how: str, one: Windows, other: Windows) -> None:
    """Refuse a kind of join that there is not, and sides with different windows."""
    if how not in HOWS:
        remedy = "; turn the join round and use how='left'" if how == "right" else ""
        raise DescriptionError(f"join(how={how!r}): use 'inner', 'left' or 'full'{remedy}")
    if one != other:
        raise DescriptionError(
            "join(other): its sides have different windows; rows meet within a window, so give "
            "every side the same one"
        )
