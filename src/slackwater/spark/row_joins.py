"""Join the rows of closing windows: each side out of its column, matched within the window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from slackwater.app.aggregates import Aggregate
from slackwater.app.names import quoted
from slackwater.app.nodes import SidesNode

WINDOW = "_sw_window"
_THERE = "_sw_there_"  # precedes the name of a key on the right
_SPARK_HOWS = {"inner": "inner", "left": "left_outer", "full": "full_outer"}


def joined_rows(node: SidesNode, rows: DataFrame) -> DataFrame:
    """Join the sides that one frame holds, on keys and, where rows have it, the window's number."""
    window = [WINDOW] if WINDOW in rows.columns else []
    keys = [*window, *node.on]
    sides = [
        rows.where(f"{node.column(i)} IS NOT NULL").select(*window, f"{node.column(i)}.*")
        for i in range(len(node.sides))
    ]
    result = sides[0]
    for how, right in zip(node.hows, sides[1:], strict=True):
        result = _joined(result, right, keys, how)
    return result


def aggregated_join(
    node: SidesNode, rows: DataFrame, by: Sequence[str], aggregates: Mapping[str, Aggregate]
) -> DataFrame:
    """Aggregate the joined rows of many windows at once: window, keys, values."""
    values = [F.expr(each.batch_sql).alias(name) for name, each in aggregates.items()]
    return joined_rows(node, rows).groupBy(WINDOW, *map(quoted, by)).agg(*values)


def _joined(left: DataFrame, right: DataFrame, keys: Sequence[str], how: str) -> DataFrame:
    there = {key: quoted(_THERE + key) for key in keys}
    others = [quoted(name) for name in right.columns if name not in there]
    right = right.selectExpr(*(f"{quoted(key)} AS {there[key]}" for key in keys), *others)
    # Null-safe, as grouping is; on a window's number, which is never null, plainly.
    condition = " AND ".join(
        f"{quoted(key)} {'=' if key == WINDOW else '<=>'} {there[key]}" for key in keys
    )
    joined = left.join(right, F.expr(condition), _SPARK_HOWS[how])
    shown = [
        f"coalesce({quoted(name)}, {there[name]}) AS {quoted(name)}"
        if name in there and how == "full"
        else quoted(name)
        for name in left.columns
    ]
    return joined.selectExpr(*shown, *others)
