"""Panes to write: `make_panes` gives the rows of one pane, which are told by its name alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from slackwater.spark.sinks.base import PANE_FIELDS

WINDOW_US = 3_000_000
BEGIN_US = 1_700_000_001_000_000


@pytest.fixture(scope="session")
def make_panes() -> Callable[..., pa.Table]:
    def make(query: str = "ads", window: int = 0, pane: int = 0, rows: int = 5) -> pa.Table:
        start_us = BEGIN_US + window * WINDOW_US
        schema = pa.schema(
            [
                *PANE_FIELDS,
                pa.field("campaign", pa.string()),
                pa.field("views", pa.int64()),
                pa.field("spend", pa.float64()),
                pa.field("last_seen", pa.timestamp("us", tz="UTC")),
            ]
        )
        numbers = np.arange(rows, dtype=np.int64)
        columns = [
            pa.repeat(query, rows),
            pa.array(np.full(rows, start_us)).cast(schema.field("window_start").type),
            pa.array(np.full(rows, start_us + WINDOW_US)).cast(schema.field("window_end").type),
            pa.array(np.full(rows, pane, dtype=np.int32)),
            pa.repeat("on_time" if pane == 0 else "late", rows),
            pa.array(np.ones(rows)),
            pa.array([f"c{number}" for number in numbers], pa.string()),
            pa.array(numbers * (pane + 1) + window),
            pa.array(numbers / 7),
            pa.array(numbers + start_us).cast(schema.field("last_seen").type),
        ]
        return pa.table(columns, schema=schema)

    return make
