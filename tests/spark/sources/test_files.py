from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import LongType, StringType, StructType, TimestampType

from slackwater.app.watermarks import from_source
from slackwater.errors import DescriptionError, SourceError
from slackwater.progress.times import END_OF_TIME_MS
from slackwater.spark.sources import filescan
from slackwater.spark.sources.base import (
    ARRIVAL,
    MALFORMED,
    OFFSET,
    QUERY,
    SYSTEM_COLUMNS,
    Range,
)
from slackwater.spark.sources.directory import FoundFile
from slackwater.spark.sources.files import Files, files
from slackwater.spark.sources.files_reader import FilesReader, JsonReader

SCHEMA = StructType().add("ts", TimestampType()).add("k", StringType()).add("v", LongType())
NO_SPARK = cast(SparkSession, None)  # a schema that is not DDL needs no session
POLL_MS = 200


def describe(path: Path, **changes: Any) -> Files:
    settings: dict[str, Any] = {"format": "json", "schema": SCHEMA, "event_time": "ts"}
    return files(path, **{**settings, **changes})


def follow(path: Path, **changes: Any) -> FilesReader:
    return cast(FilesReader, describe(path, **changes).open(NO_SPARK))


def line(v: int, k: str = "a") -> str:
    return json.dumps({"ts": "2024-05-01T10:00:00Z", "k": k, "v": v})


def write(path: Path, *lines: str, mtime_ms: int = 1_000) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(text + "\n" for text in lines), encoding="utf-8")
    os.utime(path, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))
    return path


def write_parquet(path: Path, values: Sequence[int], mtime_ms: int = 1_000) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    times = pa.array([1_714_557_600_000_000 + v for v in values], pa.timestamp("us", "UTC"))
    keys = pa.array(["a"] * len(values), pa.string())
    pq.write_table(pa.table({"v": pa.array(values, pa.int64()), "ts": times, "k": keys}), path)
    os.utime(path, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))
    return path


def paths(piece: Range) -> list[str]:
    return [FoundFile(*file).path for file in piece.detail["files"]]


def drain(
    reader: FilesReader, position: int, now_ms: float, max_events: int = 10**9
) -> list[Range]:
    """Plan until nothing is left."""
    pieces: list[Range] = []
    while True:
        (piece,) = reader.plan({0: position}, now_ms, max_events)
        if piece.first == piece.until:
            return pieces
        pieces.append(piece)
        position = piece.until


def sent_along(spark: SparkSession, reader: FilesReader, *ranges: tuple[int, Range]) -> DataFrame:
    assert isinstance(reader, JsonReader)
    entries = json.dumps([reader.entry(query, piece) for query, piece in ranges])
    text = spark.createDataFrame([(entries,)], "s0 string").coalesce(1)
    return reader.expand(
        text.selectExpr(f"explode(from_json(s0, 'array<{reader.entry_type}>')) AS r")
    )


def collected(frame: DataFrame) -> list[Row]:
    return frame.orderBy(QUERY, OFFSET).collect()


def test_files_are_found_as_they_appear_oldest_first(tmp_path: Path) -> None:
    reader = follow(tmp_path)
    write(tmp_path / "b.json", line(1), line(2), mtime_ms=10)
    write(tmp_path / "deep" / "er" / "a.json", line(3), mtime_ms=20)
    write(tmp_path / "a.json", line(4), mtime_ms=20)
    (piece,) = reader.plan({0: 0}, 1_000, 100)
    assert (piece.first, piece.until, piece.events) == (0, 3, 4)
    assert paths(piece) == ["b.json", "a.json", "deep/er/a.json"]
    write(tmp_path / "0.json", line(5), mtime_ms=5)
    (piece,) = reader.plan({0: 3}, 1_000 + POLL_MS, 100)
    assert (piece.first, piece.until, paths(piece)) == (3, 4, ["0.json"])
    assert reader.available_one(1_000 + POLL_MS) == 5


def test_the_directory_is_listed_at_most_once_per_poll(tmp_path: Path) -> None:
    reader = follow(tmp_path)
    assert reader.available_one(1_000) == 0
    write(tmp_path / "a.json", line(1))
    assert reader.available_one(1_000 + POLL_MS - 1) == 0
    assert reader.available_one(1_000 + POLL_MS) == 1


@pytest.mark.parametrize("name", [".a.json", "_a.json", "a.json.tmp", "_dir/a.json", ".d/a.json"])
def test_files_being_written_are_ignored_until_renamed(tmp_path: Path, name: str) -> None:
    reader = follow(tmp_path)
    write(tmp_path / name, line(1))
    assert reader.plan({0: 0}, 0, 100)[0].until == 0
    (tmp_path / name).rename(tmp_path / "a.json")
    assert paths(reader.plan({0: 0}, POLL_MS, 100)[0]) == ["a.json"]


def test_only_names_that_match_the_pattern_and_have_content_are_read(tmp_path: Path) -> None:
    reader = follow(tmp_path, pattern="*.json")
    write(tmp_path / "a.json", line(1))
    write(tmp_path / "a.csv", "1,2")
    write(tmp_path / "created.json")
    assert paths(reader.plan({0: 0}, 0, 100)[0]) == ["a.json"]
    write(tmp_path / "created.json", line(1))
    assert paths(reader.plan({0: 1}, POLL_MS, 100)[0]) == ["created.json"]


def test_a_plan_takes_whole_files_and_at_least_one(tmp_path: Path) -> None:
    reader = follow(tmp_path)
    for index, count in enumerate((3, 1, 2, 9)):
        write(tmp_path / f"{index}.json", *[line(1)] * count)
    assert [(p.first, p.until, p.events) for p in drain(reader, 0, 0, max_events=4)] == [
        (0, 2, 4),
        (2, 3, 2),
        (3, 4, 9),
    ]


def test_planning_again_from_the_same_position_gives_the_same(tmp_path: Path) -> None:
    reader = follow(tmp_path)
    write(tmp_path / "a.json", line(1))
    once = reader.plan({0: 0}, 0, 100)
    write(tmp_path / "b.json", line(1))
    assert reader.plan({0: 0}, 0, 100) == once
    assert paths(reader.plan({0: 0}, POLL_MS, 100)[0]) == ["a.json", "b.json"]


def test_the_oldest_arrival_is_that_of_the_next_file(tmp_path: Path) -> None:
    reader = follow(tmp_path)
    assert reader.oldest_arrival_ms({0: 0}, 0) is None
    write(tmp_path / "a.json", line(1), mtime_ms=123)
    write(tmp_path / "b.json", line(1), mtime_ms=456)
    assert reader.oldest_arrival_ms({0: 0}, POLL_MS) == 123
    assert reader.oldest_arrival_ms({0: 1}, POLL_MS) == 456
    assert reader.oldest_arrival_ms({0: 2}, POLL_MS) is None


def test_idle_needs_an_empty_backlog_and_the_whole_timeout(tmp_path: Path) -> None:
    reader = follow(tmp_path, idle_after="1 second")
    assert not reader.plan({0: 0}, 0, 100)[0].idle
    assert reader.plan({0: 0}, 1_000, 100)[0].idle
    write(tmp_path / "a.json", line(1))
    assert not reader.plan({0: 0}, 2_000, 100)[0].idle
    assert not reader.plan({0: 0}, 9_000, 100)[0].idle
    assert reader.plan({0: 1}, 9_000, 100)[0].idle


def test_without_follow_the_first_listing_is_the_last(tmp_path: Path) -> None:
    write(tmp_path / "a.json", line(1))
    write(tmp_path / "b.json", line(2))
    reader = follow(tmp_path, follow=False)
    first, last = drain(reader, 0, 0, max_events=1)
    assert (first.watermark_ms, last.watermark_ms) == (None, END_OF_TIME_MS)
    assert not reader.finished({0: 1}, 0)
    write(tmp_path / "c.json", line(3))
    assert reader.finished({0: 2}, 10_000)
    again = follow(tmp_path, follow=False)
    again.restore({0: 2}, None, [first, last])
    assert again.finished({0: 2}, 0)


def test_an_empty_directory_without_follow_ends_at_once(tmp_path: Path) -> None:
    reader = follow(tmp_path, follow=False)
    (piece,) = reader.plan({0: 0}, 0, 100)
    assert (piece.until, piece.watermark_ms) == (0, END_OF_TIME_MS)
    assert reader.finished({0: 0}, 0)


def test_following_never_ends(tmp_path: Path) -> None:
    reader = follow(tmp_path)
    assert reader.plan({0: 0}, 0, 100)[0].watermark_ms is None
    assert not reader.finished({0: 0}, 0)


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


@pytest.mark.parametrize("snapshot_after", [None, 0, 1, 2, 3, 4])
@pytest.mark.parametrize("crash_after", [0, 1, 2, 3, 4])
def test_each_file_is_planned_once_across_restarts(
    tmp_path: Path, snapshot_after: int | None, crash_after: int
) -> None:
    """Files f0-f3 are there at first, g0 and g1 appear before the restart.

    One file a plan; a snapshot after some plans (or never), a crash after some.
    """
    for index in range(4):
        write(tmp_path / f"f{index}.json", *[line(1)] * (index + 1), mtime_ms=100 + index)
    reader = follow(tmp_path)
    state: Any = None
    since: list[Range] = []
    planned: list[str] = []
    for count in range(crash_after + 1):
        if snapshot_after == count:
            state, since = through_json(reader.state()), []
        if count < crash_after:
            (piece,) = reader.plan({0: count}, 0, 1)
            planned += paths(piece)
            since.append(piece)
    write(tmp_path / "g0.json", line(1), mtime_ms=50)
    write(tmp_path / "g1.json", line(1), mtime_ms=500)

    again = follow(tmp_path)
    again.restore({0: crash_after}, state, since)
    pieces = drain(again, crash_after, 10_000)
    planned += [path for piece in pieces for path in paths(piece)]
    assert sorted(planned) == ["f0.json", "f1.json", "f2.json", "f3.json", "g0.json", "g1.json"]
    assert pieces[-1].until == 6
    assert again.available_one(10_000) == 1 + 2 + 3 + 4 + 1 + 1


def test_a_file_found_but_not_planned_at_a_snapshot_keeps_its_offset(tmp_path: Path) -> None:
    write(tmp_path / "a.json", line(1), mtime_ms=100)
    write(tmp_path / "b.json", line(1), mtime_ms=200)
    reader = follow(tmp_path)
    reader.plan({0: 0}, 0, 1)
    state = through_json(reader.state())
    write(tmp_path / "older.json", line(1), mtime_ms=1)
    again = follow(tmp_path)
    again.restore({0: 0}, state, [])
    assert paths(again.plan({0: 0}, 0, 100)[0]) == ["a.json", "b.json", "older.json"]


def test_the_state_forgets_files_that_were_archived_and_read_before(tmp_path: Path) -> None:
    reader = follow(tmp_path)
    for index in range(20):
        write(tmp_path / f"{index:02}.json", line(1))
    drain(reader, 0, 0)
    reader.state()
    for index in range(19):
        (tmp_path / f"{index:02}.json").unlink()
    state = reader.state()
    assert state["read"] == ["19.json"]
    assert state["files"] == []
    again = follow(tmp_path)
    again.restore({0: 20}, through_json(state), [])
    write(tmp_path / "00.json", line(1), line(2))
    (piece,) = again.plan({0: 20}, 0, 100)
    assert (piece.first, paths(piece), again.available_one(0)) == (20, ["00.json"], 22)


def test_files_stay_known_while_their_directory_is_away(tmp_path: Path) -> None:
    root = tmp_path / "in"
    write(root / "a.json", line(1))
    reader = follow(root)
    drain(reader, 0, 0)
    reader.state()
    root.rename(tmp_path / "unmounted")
    root.mkdir()
    assert reader.state()["read"] == ["a.json"]


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_files_taken_away_while_being_listed_are_passed_over(tmp_path: Path, kind: str) -> None:
    reader = follow(tmp_path, format=kind)
    write(tmp_path / "a", line(1))
    measured = reader._directory.measure

    def remove_then_measure(path: Path, size: int) -> int:
        path.unlink()
        return measured(path, size)

    reader._directory.measure = remove_then_measure
    assert reader.plan({0: 0}, 0, 100)[0].until == 0


def test_a_journal_that_names_too_few_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="goes on at file number 3"):
        follow(tmp_path).restore({0: 3}, None, [])


def test_a_directory_that_goes_away_is_reported(tmp_path: Path) -> None:
    root = tmp_path / "in"
    root.mkdir()
    reader = follow(root)
    root.rmdir()
    with pytest.raises(SourceError, match="create the directory"):
        reader.plan({0: 0}, 0, 100)


@pytest.mark.parametrize("name", ["10:30.json", "tab\t.json"])
def test_names_that_spark_cannot_read_are_reported(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, line(1))
    with pytest.raises(SourceError, match="rename it"):
        follow(tmp_path).available_one(0)


def test_compressed_json_is_reported(tmp_path: Path) -> None:
    write(tmp_path / "a.json.gz", "binary")
    with pytest.raises(SourceError, match="unpack it"):
        follow(tmp_path).available_one(0)


def test_large_json_files_are_estimated_the_same_in_plan_and_available(tmp_path: Path) -> None:
    write(tmp_path / "a.json", *[line(1)] * 30_000)
    reader = follow(tmp_path)
    (piece,) = reader.plan({0: 0}, 0, 100)
    assert piece.events == reader.available_one(0) == pytest.approx(30_000, rel=0.01)


def test_broken_and_foreign_parquet_files_are_reported_by_name(tmp_path: Path) -> None:
    write(tmp_path / "half.parquet", "PAR1")
    with pytest.raises(SourceError, match=r"half\.parquet is not a complete Parquet file"):
        follow(tmp_path, format="parquet").available_one(0)
    pq.write_table(pa.table({"v": [1]}), tmp_path / "half.parquet")
    with pytest.raises(SourceError, match="no column 'ts'"):
        follow(tmp_path, format="parquet").available_one(0)


def test_parquet_files_without_records_are_passed_over(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", [])
    write_parquet(tmp_path / "b.parquet", [1, 2])
    reader = follow(tmp_path, format="parquet")
    (piece,) = reader.plan({0: 0}, 0, 100)
    assert (piece.until, piece.events, paths(piece)) == (1, 2, ["b.parquet"])


def test_a_range_is_split_between_files_without_loss(tmp_path: Path) -> None:
    reader = follow(tmp_path)
    for index in range(7):
        write(tmp_path / f"{index}.json", *[line(1)] * (index + 1))
    (piece,) = reader.plan({0: 0}, 0, 100)
    for parts in range(1, 9):
        pieces = reader.split(piece, parts)
        assert [path for part in pieces for path in paths(part)] == paths(piece)
        assert [part.first for part in pieces] == [0, *(part.until for part in pieces[:-1])]
        assert (pieces[-1].until, sum(part.events for part in pieces)) == (7, 28)
        assert len(pieces) <= parts
    (empty,) = reader.plan({0: 7}, 0, 100)
    assert reader.split(empty, 3) == [empty]


def test_few_bytes_travel_inline_and_many_do_not(tmp_path: Path) -> None:
    write(tmp_path / "a.json", line(1))
    size = (tmp_path / "a.json").stat().st_size
    reader = follow(tmp_path, inline_bytes=2 * size)
    (piece,) = reader.plan({0: 0}, 0, 100)
    assert isinstance(reader, JsonReader)
    assert reader.suits([(0, piece), (1, piece)])
    assert not reader.suits([(0, piece), (1, piece), (2, piece)])


def test_readers_fuse_if_their_records_look_the_same(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    key = follow(tmp_path / "a").fusion_key
    assert key == follow(tmp_path / "b", poll="1 second", pattern="*.json").fusion_key
    assert hash(key) is not None
    assert key != follow(tmp_path / "b", epoch="seconds").fusion_key
    assert key != follow(tmp_path / "b", format="parquet").fusion_key
    assert key != follow(tmp_path / "b", schema=StructType().add("ts", "timestamp")).fusion_key


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": "csv"}, "format='csv' is unknown"),
        ({"format": None}, "format is not given"),
        ({"event_time": "when"}, "event_time='when' is not in the schema"),
        ({"watermark": from_source()}, "files carry no watermarks"),
        ({"poll": "soon"}, "poll='soon' is not a duration"),
        ({"inline_bytes": -1}, "inline_bytes=-1"),
        ({"epoch": "days"}, "epoch='days'"),
        ({"epoch": "seconds", "format": "parquet"}, "epoch is for JSON"),
    ],
)
def test_descriptions_that_cannot_work_are_refused(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(DescriptionError, match=said):
        describe(tmp_path, **changes)


def test_addresses_are_refused_as_paths() -> None:
    with pytest.raises(DescriptionError, match="mount it"):
        files("s3://bucket/in", schema=SCHEMA, event_time="ts", format="json")


def test_a_missing_directory_is_refused_on_opening(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="does not exist: create"):
        follow(tmp_path / "nowhere")


def test_the_format_is_told_by_pattern_or_content(tmp_path: Path) -> None:
    assert describe(tmp_path, format=None, pattern="*.parquet").format == "parquet"
    write(tmp_path / "a.jsonl", line(1))
    assert describe(tmp_path, format=None).format == "json"


LINES = (
    line(1),
    "",
    "garbage",
    line(2, "é"),
    '{"v":"x"}',
    '{"v":1}{"v":2}',
    '{"ts":5,"v":1}',
    " \t",
    '{"v":3}\r',
    '{"v":4}\r{"v":5}',
    "[]",
)


@pytest.mark.spark
def test_lines_sent_along_and_lines_scanned_are_the_same_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(tmp_path / "a.json", *LINES, mtime_ms=11)
    (tmp_path / "b.json").write_bytes(b'{"k":"\xff\xc3"}\n{"k":"end"}')
    reader = follow(tmp_path)
    (piece,) = reader.plan({0: 0}, 0, 100)
    inline = sent_along(spark, reader, (7, piece))
    scanned = reader.scan(spark, [(7, piece)])
    assert inline.columns == scanned.columns == [*SCHEMA.names, *SYSTEM_COLUMNS]
    assert [f.dataType for f in inline.schema] == [f.dataType for f in scanned.schema]
    rows = collected(inline)
    assert rows == collected(scanned)
    assert len(rows) == piece.events
    assert [row[MALFORMED] for row in rows if row[MALFORMED]] == [
        "garbage",
        '{"v":"x"}',
        '{"v":1}{"v":2}',
        '{"ts":5,"v":1}',
        "[]",
    ]
    assert [row.v for row in rows if row.v] == [1, 2, 3, 4, 5]
    assert [row.k for row in rows[-2:]] == ["��", "end"]
    assert [row[ARRIVAL] for row in rows[:-2]] == [11] * (len(rows) - 2)


@pytest.mark.spark
def test_large_files_scanned_in_parts_give_the_same_records(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.json", *LINES, mtime_ms=10)
    write(tmp_path / "b.json", line(9), mtime_ms=20)
    reader = follow(tmp_path)
    (piece,) = reader.plan({0: 0}, 0, 100)
    whole = collected(reader.scan(spark, [(7, piece)]))
    monkeypatch.setattr(filescan, "LARGE_FILE_BYTES", 100)
    parts = collected(reader.scan(spark, [(7, piece)]))
    visible = [*SCHEMA.names, QUERY, ARRIVAL, MALFORMED]

    def content(rows: list[Row]) -> list[str]:
        return sorted(str([row[name] for name in visible]) for row in rows)

    assert content(parts) == content(whole)
    assert len({row[OFFSET] for row in parts}) == len(parts)
    assert {row[OFFSET] >> 32 for row in parts} == {0, 1}
    assert parts == collected(reader.scan(spark, [(7, piece)]))


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_one_scan_serves_many_queries_and_directories(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    def put(path: Path, values: list[int]) -> None:
        if kind == "json":
            write(path, *map(line, values), mtime_ms=values[0])
        else:
            write_parquet(path, values, mtime_ms=values[0])

    put(tmp_path / "one" / "a b%20+é[1]{x}'.data", [10, 11])
    put(tmp_path / "one" / "k=1" / "c#,;&^.data", [20])
    put(tmp_path / "two words" / "a.data", [30, 31, 32])
    one = follow(tmp_path / "one", format=kind)
    two = follow(tmp_path / "two words", format=kind)
    (piece_one,) = one.plan({0: 0}, 0, 100)
    (piece_two,) = two.plan({0: 0}, 0, 100)
    (nothing,) = two.plan({0: 1}, 0, 100)
    ranges = [(4, piece_one), (5, piece_two), (6, nothing), (9, piece_one)]
    rows = collected(one.scan(spark, ranges))
    from_one = [(0, 10, 10), (1, 10, 11), (1 << 32, 20, 20)]
    from_two = [(0, 30, 30), (1, 30, 31), (2, 30, 32)]
    assert [(row[QUERY], row[OFFSET], row[ARRIVAL], row.v) for row in rows] == [
        *((4, *place) for place in from_one),
        *((5, *place) for place in from_two),
        *((9, *place) for place in from_one),
    ]
    assert collected(one.scan(spark, [(6, nothing)])) == []
    assert one.scan(spark, [(6, nothing)]).columns == [*SCHEMA.names, *SYSTEM_COLUMNS]


@pytest.mark.spark
def test_parquet_columns_are_found_by_name_and_missing_ones_are_null(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_parquet(tmp_path / "a.parquet", [1])
    ddl = "k string, ts timestamp, later double"
    reader = files(tmp_path, schema=ddl, event_time="ts").open(spark)
    assert isinstance(reader, FilesReader)
    (row,) = reader.scan(spark, [(0, reader.plan({0: 0}, 0, 9)[0])]).collect()
    assert (row.k, row.later, row[MALFORMED]) == ("a", None, None)
    assert row.ts.microsecond == 1


@pytest.mark.spark
@pytest.mark.parametrize("how", ["inline", "scan"])
def test_files_that_vanished_or_changed_are_named(
    spark: SparkSession, tmp_path: Path, how: str
) -> None:
    path = write(tmp_path / "a.json", line(1))
    reader = follow(tmp_path)
    (piece,) = reader.plan({0: 0}, 0, 100)

    def read() -> None:
        assert isinstance(reader, JsonReader)
        if how == "inline":
            reader.entry(0, piece)
        else:
            reader.scan(spark, [(0, piece)])

    write(path, line(1), line(2))
    with pytest.raises(SourceError, match=r"a\.json had \d+ bytes .* never append"):
        read()
    path.unlink()
    with pytest.raises(SourceError, match=r"a\.json was found but cannot be read now"):
        read()
    write(path, line(1))
    read()
