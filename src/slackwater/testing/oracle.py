"""Whether panes are what they should be."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from slackwater.spark.sinks.pane_tables import last_panes

_NOT_IN_A_BATCH = ("pane", "timing", "accuracy")


def assert_same_panes(panes: pa.Table, expected: DataFrame | pa.Table) -> None:
    """Compare the last pane of each window with a batch: same columns, types and rows.

    Rows may come in any order; floating-point numbers may differ by the order of addition.
    """
    wanted = expected if isinstance(expected, pa.Table) else expected.toArrow()
    kept = [name for name in panes.column_names if name not in _NOT_IN_A_BATCH]
    found = last_panes(panes).select(kept)
    if found.num_rows or wanted.num_rows:
        assert found.column_names == wanted.column_names
        for name in found.column_names:
            one, other = found.schema.field(name).type, wanted.schema.field(name).type
            assert one == other or pa.types.is_timestamp(one), f"{name} is {one}, not {other}"
    got, want = _sorted_rows(found), _sorted_rows(wanted)
    assert len(got) == len(want), f"{len(got)} rows, not {len(want)}: {got} {want}"
    for row, other_row in zip(got, want, strict=True):
        assert all(map(_close, row.values(), other_row.values())), f"{row} is not {other_row}"


def _sorted_rows(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_pylist()
    return sorted(rows, key=lambda row: [_rank(value) for value in _exact_first(row)])


def _exact_first(row: dict[str, Any]) -> list[Any]:
    values = list(row.values())
    return sorted(values, key=lambda value: isinstance(value, float | list))


def _rank(value: Any) -> tuple[str, str]:
    if isinstance(value, float):
        return "1", f"{value + 0.0:.6g}"
    return ("0", "") if value is None else ("2", str(value))


def _close(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        both_nan = math.isnan(one) and math.isnan(other)
        return both_nan or math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_close, one, other))
    return bool(one == other)
