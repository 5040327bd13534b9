from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from slackwater.errors import DescriptionError
from slackwater.spark.latebound import SpecificationCells
from slackwater.spark.safety import unsafe_reasons
from slackwater.spark.sources.base import (
    ARRIVAL,
    MALFORMED,
    OFFSET,
    PARTITION,
    QUERY,
    SYSTEM_COLUMNS,
    Range,
)
from slackwater.spark.sources.inline import (
    ENTRY_TYPE,
    Epoch,
    InlineRows,
    JsonRecords,
    block,
    blocks_by_arrival,
    checked_schema,
    inline_entry,
    whole_text,
)

SCHEMA = "ts timestamp, k string, v bigint, tags array<string>, `odd ``name'` struct<`x y`: double>"


class Lines(InlineRows):
    """The least that makes InlineRows a reader."""

    watermark = cast(Any, None)
    max_ahead_ms = 0
    event_time = "ts"

    def __init__(self, schema: str = SCHEMA, epoch: Epoch | None = None) -> None:
        self.schema = checked_schema(schema, "ts")
        self.records = JsonRecords(self.schema, epoch)

    @property
    def fusion_key(self) -> str:
        return "lines"

    def restore(self, committed: Mapping[int, int], state: Any, ranges: Sequence[Range]) -> None:
        raise NotImplementedError

    def plan(self, positions: Mapping[int, int], now_ms: float, max_events: int) -> list[Range]:
        raise NotImplementedError

    def oldest_arrival_ms(self, positions: Mapping[int, int], now_ms: float) -> float | None:
        raise NotImplementedError

    def available_one(self, now_ms: float) -> int:
        raise NotImplementedError

    def entry(self, query: int, piece: Range) -> dict[str, Any]:
        return inline_entry(query, piece.partition, piece.detail)

    def frame(self, spark: SparkSession, *entries: dict[str, Any]) -> DataFrame:
        text = spark.createDataFrame([(json.dumps(entries),)], "s0 string").coalesce(1)
        rows = text.selectExpr(f"explode(from_json(s0, 'array<{ENTRY_TYPE}>')) AS r")
        return self.expand(rows)

    def read(self, spark: SparkSession, *lines: str) -> list[Row]:
        entry = inline_entry(0, 0, [block(0, 0, lines)])
        return self.frame(spark, entry).orderBy(OFFSET).collect()


def at(text: str) -> datetime:
    """Write an instant as Spark hands it to Python: in local time, without a zone."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).astimezone().replace(tzinfo=None)


@pytest.mark.spark
def test_rows_have_the_schema_then_the_system_columns_and_their_places(spark: SparkSession) -> None:
    reader = Lines()
    first = inline_entry(3, 1, blocks_by_arrival(40, [(7, '{"v":1}'), (7, '{"v":2}'), (9, "{}")]))
    second = inline_entry(5, 0, [block(1 << 40, 8, ['{"v":4}'])])
    frame = reader.frame(spark, first, second)
    assert frame.columns == [*reader.schema.names, *SYSTEM_COLUMNS]
    assert [f.dataType for f in frame.schema.fields[:5]] == [f.dataType for f in reader.schema]
    rows = {tuple(row) for row in frame.select(QUERY, PARTITION, OFFSET, ARRIVAL, "v").collect()}
    assert rows == {(3, 1, 40, 7, 1), (3, 1, 41, 7, 2), (3, 1, 42, 9, None), (5, 0, 1 << 40, 8, 4)}


@pytest.mark.spark
def test_fields_are_read_by_name_and_unknown_ones_ignored(spark: SparkSession) -> None:
    line = (
        '{"k":"é","new":{"z":[1]},"v":7,"tags":["a","b"],'
        '"odd `name\'":{"x y":0.5},"ts":"2024-05-01T10:00:00.123456Z"}'
    )
    (row,) = Lines().read(spark, line)
    assert row[:5] == (at("2024-05-01T10:00:00.123456"), "é", 7, ["a", "b"], Row(**{"x y": 0.5}))
    assert row[MALFORMED] is None


GOOD_TIMES = {
    '"2024-05-01T10:00:00Z"': "2024-05-01T10:00:00",
    '"2024-05-01T10:00:00.5+02:00"': "2024-05-01T08:00:00.5",
    '"2024-05-01T10:00:00"': "2024-05-01T10:00:00",
    '"2024-05-01 10:00:00"': "2024-05-01T10:00:00",
    '"2024-05-01"': "2024-05-01T00:00:00",
}
NOT_TIMES = (
    "1714557600",
    "1714557600000",
    "1714557600000000",
    "1714557600.5",
    '"1714557600"',
    "2024",
    '"2024"',
    '"1:30-08:00"',
    '"10:00:00"',
    '"soon"',
    '"2024-13-01T00:00:00Z"',
    '""',
    "true",
    '{"seconds":1}',
)


@pytest.mark.spark
def test_timestamps_are_iso_text_and_numbers_are_never_guessed(spark: SparkSession) -> None:
    good = [f'{{"ts":{text},"v":1}}' for text in GOOD_TIMES]
    bad = [f'{{"ts":{text},"v":1}}' for text in NOT_TIMES]
    rows = Lines().read(spark, *good, *bad, '{"ts":null,"v":1}', '{"v":1}')
    assert [row.ts for row in rows[: len(good)]] == [at(text) for text in GOOD_TIMES.values()]
    assert [row[MALFORMED] for row in rows[: len(good)]] == [None] * len(good)
    for row, line in zip(rows[len(good) : -2], bad, strict=True):
        assert (row.ts, row.v, row[MALFORMED]) == (None, None, line)
    for row in rows[-2:]:
        assert (row.ts, row.v, row[MALFORMED]) == (None, 1, None)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("epoch", "number"),
    [
        ("seconds", "1714557600.25"),
        ("milliseconds", "1714557600250"),
        ("microseconds", "1714557600250000"),
    ],
)
def test_numbers_are_read_in_the_unit_that_epoch_names(
    spark: SparkSession, epoch: Epoch, number: str
) -> None:
    lines = [f'{{"ts":{number}}}', '{"ts":"2024-05-01T10:00:00.25Z"}', '{"ts":1e25}', '{"ts":"x"}']
    rows = Lines("ts timestamp", epoch).read(spark, *lines)
    assert [row.ts for row in rows] == [at("2024-05-01T10:00:00.25")] * 2 + [None] * 2
    assert [row[MALFORMED] for row in rows] == [None, None, *lines[2:]]


MALFORMED_LINES = (
    "garbage",
    '{"k":"a"',
    '{"k":"a"} and more',
    '{"v":1}{"v":2}',
    '{"v":1},{"v":2}',
    '{"v":1}}',
    '{"odd `name\'":{"x y":1.0}} {"v":2}',
    '{"v":"x"}',
    '{"v":1.5}',
    '{"v":99999999999999999999}',
    '{"v":NaN}',
    "{'v':1}",
    '[{"v":1}]',
    "[]",
    "3",
    "null",
)


@pytest.mark.spark
def test_malformed_lines_keep_their_text_and_have_no_columns(spark: SparkSession) -> None:
    rows = Lines().read(spark, *MALFORMED_LINES)
    assert [row[MALFORMED] for row in rows] == list(MALFORMED_LINES)
    assert {tuple(row[:5]) for row in rows} == {(None,) * 5}


@pytest.mark.spark
def test_braces_inside_a_record_are_no_second_record(spark: SparkSession) -> None:
    lines = ['{"k":"}{"}', '{"odd `name\'":{"x y":1.0}}', '{"k":"é}"}  ', '{"v":1}\t']
    assert [row[MALFORMED] for row in Lines().read(spark, *lines)] == [None] * 4


@pytest.mark.spark
def test_blank_lines_are_no_records_but_keep_their_numbers(spark: SparkSession) -> None:
    rows = Lines().read(spark, "", '{"v":1}', " \t ", '{"v":2}', "")
    assert [(row[OFFSET], row.v) for row in rows] == [(1, 1), (3, 2)]


@pytest.mark.spark
@pytest.mark.parametrize("columns", [["k"], ["v"], [MALFORMED], ["k", MALFORMED], []])
def test_malformed_is_the_same_whichever_columns_are_used(
    spark: SparkSession, columns: list[str]
) -> None:
    lines = ['{"k":"a","v":1}', *MALFORMED_LINES, '{"k":"a","ts":"soon"}', '{"k":"b"}']
    frame = Lines().frame(spark, inline_entry(0, 0, [block(0, 0, lines)]))
    kept = frame.where(f"{MALFORMED} IS NULL").selectExpr(*columns, OFFSET).orderBy(OFFSET)
    assert [row[OFFSET] for row in kept.collect()] == [0, len(lines) - 1]
    if columns == ["k"]:
        assert [row.k for row in frame.select("k").where("k IS NOT NULL").collect()] == ["a", "b"]


@pytest.mark.spark
def test_a_field_called_like_the_malformed_column_is_not_taken_for_it(spark: SparkSession) -> None:
    (row,) = Lines().read(spark, f'{{"{MALFORMED}":"boo","v":1}}')
    assert (row.v, row[MALFORMED]) == (1, None)


RUNS: list[list[str]] = [
    ['{"v":1}', '{"v":2,"k":"a"}', '{ "ts":"2024-05-01T10:00:00Z","v":3}'],
    ['{"v":1}', '{"v":"x"}', '{"v":3}'],
    ['{"v":1}', '{"v":2', '{"v":3}'],
    ['{"v":1}', '{"v":{}}', '{"v":3}'],
    ['{"v":1}', '1,{"v":2}', '{"v":3}'],
    ['{"v":1}', 'null,{"v":2}', '{"v":3}'],
    ['{"k":"x}', '{","v":1}'],
    ['{"k":"x\\n}', '{","v":1}'],
    ['{"v":1}', '{"k":"a\n}', '{"v":3}'],
    ['{"v":1}', '{"k":"},\\n{"}', '{"v":3}'],
    ['{"v":1}', '{"v":2}', '{"ts":17}', '{"ts":"soon"}', '{"ts":"2024-05-01"}'],
    [f'{{"{MALFORMED}":"boo","v":1}}', '{"v":2}'],
    [f'{{"{MALFORMED}":"boo","v":1}}', '{"v":"x"}'],
    ['{"odd `name\'":[1]}', '{"tags":["a",null,"b"]}', '{"tags":"a"}'],
    ["{}", "}", "{", "null", "[{}"],
    ['{"v":1,"v":2}', '{"unknown":{"v":9}}', '{"k":"gr\u00fcn \U0001f33f"}'],
    ['{"v":NaN}', "{'v':1}", '{"v":1}'],
]


@pytest.mark.spark
@pytest.mark.parametrize("lines", RUNS)
def test_lines_read_together_are_what_they_are_alone(spark: SparkSession, lines: list[str]) -> None:
    records = Lines().records
    alone = Lines().read(spark, *lines)
    whole = whole_text(lines)
    run = (0, 0, 0, [0] * len(lines), lines if whole is None else None, whole)
    columns = (
        f"{QUERY} int, {PARTITION} int, first bigint, arrivals array<bigint>, "
        "lines array<string>, whole string"
    )
    frame = records.parse_runs(spark.createDataFrame([run], columns))
    together = sorted(frame.collect(), key=lambda row: row[OFFSET])
    assert [row[OFFSET] for row in together] == list(range(len(lines)))
    for row, other, line in zip(together, alone, lines, strict=True):
        told = row[MALFORMED]
        assert (told is None) == (other[MALFORMED] is None)
        assert told in (None, "", line)
        assert row.asDict() | {MALFORMED: None} == other.asDict() | {MALFORMED: None}


@pytest.mark.spark
def test_the_plan_has_no_exchange(spark: SparkSession) -> None:
    frame = Lines().frame(spark, inline_entry(0, 0, [block(0, 0, ["{}"])]))
    plan = cast(Any, frame)._jdf.queryExecution().executedPlan().toString()
    assert "Exchange" not in plan
    assert plan.count("from_json(StructField(ts") == 1


@pytest.mark.spark
def test_a_prepared_plan_is_safe_and_reads_what_is_bound(spark: SparkSession) -> None:
    cells = SpecificationCells(spark, [f"array<{ENTRY_TYPE}>"])
    frame = Lines().expand(cells.frame.selectExpr("explode(s0) AS r"))
    assert unsafe_reasons(frame, cells.rdd_id) == []
    for step in range(3):
        lines = [f'{{"v":{step}}}', f"garbage {step}"]
        cells.bind([json.dumps([inline_entry(step, 0, [block(0, 0, lines)])])])
        rows = frame.select(QUERY, "v", MALFORMED).toArrow().to_pylist()
        assert [tuple(row.values()) for row in rows] == [
            (step, step, None),
            (step, None, f"garbage {step}"),
        ]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("schema", "event_time", "said"),
    [
        ("ts timestamp, v int", "when", "event_time='when' is not in the schema: use one of ts, v"),
        ("ts bigint", "ts", "declare it as timestamp"),
        ("ts timestamp, _sw_offset int", "ts", "reserved"),
        ("ts timestamp, A int, a int", "ts", "twice"),
        ("ts timestamp,, v", "ts", "is not DDL"),
        ("", "ts", "schema=''"),
    ],
)
def test_schemas_that_cannot_work_are_refused(
    spark: SparkSession, schema: str, event_time: str, said: str
) -> None:
    with pytest.raises(DescriptionError, match=said):
        checked_schema(schema, event_time)


def test_columns_become_nullable_as_malformed_records_need() -> None:
    schema = StructType([StructField("ts", TimestampType(), False), StructField("v", LongType())])
    assert all(field.nullable for field in checked_schema(schema, "ts").fields)


def test_unknown_epoch_units_are_refused() -> None:
    with pytest.raises(DescriptionError, match="epoch='days'"):
        JsonRecords(StructType(), cast(Epoch, "days"))
