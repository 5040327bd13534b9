from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from slackwater.spark.kafka.json_rows import json_objects

TEXTS = st.text(st.characters(codec="utf-8"))
ROWS = st.fixed_dictionaries(
    {
        "whole": st.none() | st.integers(-(2**63), 2**63 - 1),
        "real": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "flag": st.none() | st.booleans(),
        "text": st.none() | TEXTS,
        "many": st.none() | st.lists(TEXTS),
    }
)
SCHEMA = pa.schema(
    [
        ("whole", pa.int64()),
        ("real", pa.float64()),
        ("flag", pa.bool_()),
        ("text", pa.string()),
        ("many", pa.list_(pa.string())),
    ]
)


@given(st.lists(ROWS, max_size=5))
def test_what_is_written_reads_as_what_it_was(rows: list[dict[str, object]]) -> None:
    written = json_objects(pa.Table.from_pylist(rows, schema=SCHEMA)).to_pylist()
    assert [json.loads(text) for text in written] == rows


def test_values_that_json_lacks_are_texts() -> None:
    moment = datetime(2024, 1, 2, 3, 4, 5, 60, UTC)
    table = pa.table(
        {
            "at": pa.array([moment], pa.timestamp("ns", tz="Europe/Berlin")),
            "local": pa.array([moment.replace(tzinfo=None)], pa.timestamp("ms")),
            "day": pa.array([date(2024, 1, 2)]),
            "exact": pa.array([Decimal("1.10")]),
            "raw": pa.array([b"\x00\xff"]),
            "none": pa.array([math.nan]),
            "much": pa.array([-math.inf], pa.float32()),
            "name": pa.array(["a"]).dictionary_encode(),
            "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32())),
            "empty": pa.array([[]], pa.map_(pa.string(), pa.int32())),
            "struct": pa.array([{"x": math.inf, "at": moment}]),
        }
    )
    assert json.loads(json_objects(table).to_pylist()[0]) == {
        "at": "2024-01-02T03:04:05.000060Z",
        "local": "2024-01-02T03:04:05.000000",
        "day": "2024-01-02",
        "exact": "1.10",
        "raw": "AP8=",
        "none": "NaN",
        "much": "-Infinity",
        "name": "a",
        "map": {"k": 1},
        "empty": {},
        "struct": {"x": "Infinity", "at": "2024-01-02T03:04:05.000060Z"},
    }


def test_no_rows_and_no_columns_are_no_trouble() -> None:
    assert json_objects(pa.table({"a": pa.array([], pa.int64())})).to_pylist() == []
