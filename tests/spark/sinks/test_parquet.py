from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import TimestampType

from slackwater import disk
from slackwater.errors import DescriptionError, SinkError
from slackwater.spark.sinks.base import PANE_FIELDS, PaneId
from slackwater.spark.sinks.growing_file import GrowingFile
from slackwater.spark.sinks.pane_files import find_panes
from slackwater.spark.sinks.pane_tables import _keys, last_panes, window_keys, with_window_keys
from slackwater.spark.sinks.parquet import ParquetWriter, parquet, read_panes
from slackwater.spark.sinks.sealed import read_sealed

Make = Callable[..., pa.Table]


def in_order(table: pa.Table) -> pa.Table:
    names = ["query", "window_start", "pane", "campaign"]
    return table.sort_by([(name, "ascending") for name in names]).combine_chunks()


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.name[0] not in "._")


def test_readers_get_back_the_rows_as_they_were_written(tmp_path: Path, make_panes: Make) -> None:
    panes = [make_panes("ads", window, rows=window + 1) for window in range(6)]
    writer = parquet(tmp_path / "out", roll_writes=2).open()
    for number, pane in enumerate(panes):
        writer.write(pane, number % 2)
    writer.close()
    expected = in_order(pa.concat_tables(panes))
    assert in_order(read_panes(tmp_path / "out").cast(expected.schema)).equals(expected)
    frame = pd.read_parquet(tmp_path / "out")
    by = ["query", "window_start", "pane", "campaign"]
    pd.testing.assert_frame_equal(
        frame.sort_values(by, ignore_index=True), expected.to_pandas().reset_index(drop=True)
    )
    assert str(frame.dtypes["window_start"]) == "datetime64[us, UTC]"


@pytest.mark.spark
def test_spark_reads_timestamps_as_timestamps_and_all_rows(
    spark: SparkSession, tmp_path: Path, make_panes: Make
) -> None:
    panes = [make_panes("ads", window) for window in range(4)]
    writer = parquet(tmp_path / "out").open()
    writer.write(pa.concat_tables(panes[:2]), 0)
    listed_before = spark.read.parquet(str(tmp_path / "out"))
    for pane in panes[2:]:  # the file grows to many times what Spark has listed
        for _ in range(2):
            writer.write(pane, 0)
    writer.write(make_panes("ads", 4, rows=20_000), 0)
    assert in_order(listed_before.toArrow()).num_rows >= 10
    frame = spark.read.parquet(str(tmp_path / "out"))
    assert isinstance(frame.schema["window_start"].dataType, TimestampType)
    expected = in_order(pa.concat_tables([*panes, make_panes("ads", 4, rows=20_000)]))
    assert in_order(frame.toArrow().cast(expected.schema)).equals(expected)
    writer.close()


@pytest.mark.spark
def test_a_large_step_is_one_file_with_the_columns_of_all_others(
    spark: SparkSession, tmp_path: Path, make_panes: Make
) -> None:
    large, small, other = make_panes("ads", 0, rows=300), make_panes("shop"), make_panes("ads", 1)
    pane = PaneId("ads", next(iter(_keys(large)))[1], 0)
    frame = spark.createDataFrame(large).repartition(2)
    directory = tmp_path / "out"
    writer = parquet(directory).open()
    writer.write(other, 0)
    for lane in (0, 1):
        with writer.stage(lane) as step:
            step.add(small)
            assert step.add_frame(pane, frame) == 300
            assert step.add_frame(PaneId("ads", 1, 0), frame.limit(0)) == 0
            step.publish()
    writer.write(large, 1)
    writer.close()
    writer = parquet(directory).open()
    writer.recall({"ads": None})
    writer.write(large, 0)
    with (
        pytest.raises(SinkError, match="no column 'spend'"),
        writer.stage(0) as step,
    ):
        step.add_frame(PaneId("ads", 1, 0), frame.drop("spend"))
    writer.close()
    expected = in_order(pa.concat_tables([large, small, other]))
    assert in_order(read_panes(directory).cast(expected.schema)).equals(expected)
    frame = spark.read.option("parquet.page.verify-checksum.enabled", "true").parquet(
        str(directory)
    )
    assert in_order(frame.toArrow().cast(expected.schema)).equals(expected)
    assert len(files(directory)) == 2
    assert not list(directory.glob("_tmp-*"))
    assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}


def test_a_concurrent_reader_never_sees_a_pane_half_or_twice(
    tmp_path: Path, make_panes: Make
) -> None:
    writer = parquet(tmp_path / "out", roll_writes=7).open()
    writer.write(make_panes("q0", 0, rows=50), 0)
    done, seen, failures = threading.Event(), [0], []

    def read() -> None:
        try:
            while not done.is_set():
                dataset = ds.dataset(tmp_path / "out", format="parquet")
                counted = dataset.count_rows()  # caches footers, which the next read uses
                rows = Counter(_keys(dataset.to_table()))
                assert set(rows.values()) == {50}
                assert counted % 50 == 0
                assert rows.total() >= seen[-1]
                seen.append(rows.total())
        except BaseException as failure:
            failures.append(failure)

    reader = threading.Thread(target=read)
    reader.start()
    for window in range(1, 120):
        lane = window % 3
        writer.write(make_panes(f"q{lane}", window, rows=50), lane)
    done.set()
    reader.join()
    writer.close()
    assert not failures
    assert read_panes(tmp_path / "out").num_rows == 120 * 50


def test_a_write_visible_before_a_crash_is_not_written_again(
    tmp_path: Path, make_panes: Make
) -> None:
    panes = [make_panes("ads", window) for window in range(9)]
    for crash in range(3):  # each process starts with what the one before may not have committed
        writer = parquet(tmp_path / "out", roll_writes=2).open()
        writer.recall({"ads": None})
        for window in range(3 * crash + 3):
            if window >= 3 * crash - 1:
                writer.write(panes[window], window % 2)
        writer.close()
    assert Counter(_keys(read_panes(tmp_path / "out"))) == Counter(_keys(pa.concat_tables(panes)))


ENDLESS_WRITER = """
import itertools, sys
import pyarrow as pa
from slackwater.spark.sinks.base import PANE_FIELDS
from slackwater.spark.sinks.parquet import parquet

writer = parquet(sys.argv[1], roll_writes=5).open()
for window in itertools.count():
    rows = [["ads"], [window], [window + 1], [0], ["on_time"], [1.0]]
    panes = pa.table(rows, names=[field.name for field in PANE_FIELDS])
    writer.write(panes.cast(pa.schema(PANE_FIELDS)), window % 2)
    print(window, flush=True)
"""


def test_a_killed_process_leaves_what_it_reported_and_nothing_twice(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ENDLESS_WRITER, str(tmp_path / "out")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        reported = [int(process.stdout.readline()) for _ in range(33)]
        process.kill()
        reported += [int(line) for line in process.stdout if line.endswith("\n")]
    schema = pa.schema(PANE_FIELDS)
    writer = parquet(tmp_path / "out", roll_writes=5).open()
    writer.recall({"ads": reported[-1] - 1})
    until = reported[-1] + 4
    for window in range(reported[-1] - 1, until):
        rows = [["ads"], [window], [window + 1], [0], ["on_time"], [1.0]]
        writer.write(pa.table(rows, names=schema.names).cast(schema), 0)
    writer.close()
    starts = read_panes(tmp_path / "out")["window_start"].cast(pa.int64())
    assert sorted(starts.to_pylist()) == list(range(until))


def test_restarts_go_on_with_the_file_that_is_not_full(tmp_path: Path, make_panes: Make) -> None:
    for window in range(10):
        writer = parquet(tmp_path / "out", roll_writes=5).open()
        writer.write(make_panes("ads", window), 0)
        writer.close()
    assert files(tmp_path / "out") == ["part-000-00000001.parquet", "part-000-00000002.parquet"]
    assert read_panes(tmp_path / "out").num_rows == 50


def test_what_a_killed_writer_left_unfinished_is_removed(tmp_path: Path, make_panes: Make) -> None:
    directory = tmp_path / "out"
    writer = parquet(directory).open()
    writer.write(make_panes(), 0)
    writer.close()
    (directory / "_tmp-part-000-00000001.parquet").write_bytes(b"PAR1 cut off")
    (directory / "_tmp-0-pane-x").mkdir()
    (directory / "_tmp-0-pane-x" / "files").touch()
    assert read_panes(directory).num_rows == 5
    parquet(directory).open().close()
    assert not list(directory.glob("_tmp-*"))
    assert read_panes(directory).num_rows == 5


def test_two_thousand_writes_make_few_files(tmp_path: Path, make_panes: Make) -> None:
    one = make_panes("ads", 0, rows=2)
    starts = one["window_start"].cast(pa.int64())
    writer = parquet(tmp_path / "out").open()
    for number in range(2_000):
        shifted = pa.compute.add(starts, number).cast(one.schema.field("window_start").type)
        writer.write(one.set_column(1, one.schema.field(1), shifted), number % 2)
    writer.close()
    assert len(files(tmp_path / "out")) <= 2_000 / 64 + 2
    assert read_panes(tmp_path / "out").num_rows == 4_000


@pytest.mark.parametrize("step", ["write", "sync file", "rename"])
def test_a_full_disk_at_any_step_shows_nothing_and_loses_nothing(
    step: str, tmp_path: Path, make_panes: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    directory = tmp_path / "out"
    writer = parquet(directory).open()
    writer.write(make_panes("ads", 0), 0)
    with monkeypatch.context() as patch:
        operation = {"write": "write", "sync file": "sync", "rename": "replace"}[step]
        patch.setattr(disk.current, operation, fail)
        with pytest.raises(SinkError, match=f"cannot write {directory}.*free space"):
            writer.write(make_panes("ads", 1), 0)
    assert read_panes(directory).num_rows == 5
    assert not list(directory.glob("_tmp-*"))
    writer.write(make_panes("ads", 2), 0)
    writer.write(make_panes("ads", 1), 1)
    writer.close()
    assert Counter(_keys(read_panes(directory))) == Counter(
        _keys(pa.concat_tables([make_panes("ads", window) for window in range(3)]))
    )


def test_a_pane_whose_name_could_not_be_made_durable_is_made_so_when_sent_again(
    tmp_path: Path, make_panes: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []

    def fail(_: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    writer = parquet(tmp_path / "out").open()
    monkeypatch.setattr("slackwater.spark.sinks.parquet.sync_directory", fail)
    with pytest.raises(SinkError, match="mend the disk"):
        writer.write(make_panes(), 0)
    monkeypatch.setattr("slackwater.spark.sinks.parquet.sync_directory", synced.append)
    writer.write(make_panes(), 1)
    writer.close()
    assert synced == [tmp_path / "out"]
    assert read_panes(tmp_path / "out").num_rows == 5


def test_a_vanished_directory_is_named_and_not_made_again(tmp_path: Path, make_panes: Make) -> None:
    writer = parquet(tmp_path / "out").open()
    writer.write(make_panes("ads", 0), 0)
    (tmp_path / "out").rename(tmp_path / "away")
    with pytest.raises(SinkError, match=r"/out.*put the directory back"):
        writer.write(make_panes("ads", 1), 0)
    assert not (tmp_path / "out").exists()
    writer.close()


@pytest.mark.parametrize("reopen", [False, True])
def test_other_columns_are_refused_by_name(reopen: bool, tmp_path: Path, make_panes: Make) -> None:
    panes = make_panes()
    writer = parquet(tmp_path / "out").open()
    writer.write(panes, 0)
    if reopen:
        writer.close()
        writer = parquet(tmp_path / "out").open()
    others = {
        r"no column 'spend'": panes.drop_columns("spend"),
        r"a new column 'clicks'": panes.append_column("clicks", panes["views"]),
        r"'views' of type double instead of int64": panes.set_column(
            7, "views", panes["views"].cast(pa.float64())
        ),
        r"lack the columns \['pane'\]": panes.drop_columns("pane"),
        r"column name twice": panes.append_column("views", panes["views"]),
    }
    for difference, other in others.items():
        with pytest.raises(SinkError, match=difference):
            writer.write(other, 0)
    writer.write(make_panes("ads", 1).select(reversed(panes.column_names)), 0)
    writer.close()
    assert read_panes(tmp_path / "out").num_rows == 10


def test_nested_and_arrow_only_types_come_back_as_plain_ones(tmp_path: Path) -> None:
    identity = pa.table(
        [["ads"], [0], [1], [0], ["final"], [1.0]], names=[field.name for field in PANE_FIELDS]
    ).cast(pa.schema(PANE_FIELDS))
    values = {
        "top": pa.array([["a", "b"]], pa.list_(pa.string())),
        "best": pa.array([{"name": "a", "views": 3}]),
        "shop": pa.array(["x"]).dictionary_encode(),
        "note": pa.array(["y"], pa.large_string()),
        "at": pa.array([1_000], pa.timestamp("ns", tz="Europe/Paris")),
    }
    panes = pa.table({**dict(zip(identity.column_names, identity.columns, strict=True)), **values})
    for query in ("ads", "shop"):
        writer = parquet(tmp_path / "out").open()
        writer.write(panes.set_column(0, PANE_FIELDS[0], [[query]]), 0)
        writer.close()
    table = read_panes(tmp_path / "out")
    assert table.num_rows == 2
    assert table.schema.field("at").type == pa.timestamp("us", tz="UTC")
    assert table.schema.field("shop").type == table.schema.field("note").type == pa.string()
    assert table["top"].to_pylist() == [["a", "b"]] * 2


def test_what_parquet_cannot_hold_is_a_sink_error(tmp_path: Path, make_panes: Make) -> None:
    panes = make_panes()
    nameless = panes.set_column(0, pa.field("query", pa.string()), pa.nulls(5, pa.string()))
    odd = panes.set_column(7, "views", pa.nulls(5, pa.month_day_nano_interval()))
    for number, wrong in enumerate([nameless, odd]):
        writer = parquet(tmp_path / str(number)).open()
        with pytest.raises(SinkError, match="cast that column"):
            writer.write(wrong, 0)
        writer.close()
        assert not files(tmp_path / str(number))


def test_a_directory_has_one_writer_at_a_time(tmp_path: Path, make_panes: Make) -> None:
    writer = parquet(tmp_path / "out").open()
    with pytest.raises(SinkError, match="being written by another runtime"):
        parquet(tmp_path / "out").open()
    writer.close()
    with pytest.raises(SinkError, match="closed"):
        writer.write(make_panes(), 0)
    parquet(tmp_path / "out").open().close()


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "part-000-00000001.parquet").write_bytes(b"no parquet at all")
    for _ in range(2):  # the failed opening must not keep the lock
        with pytest.raises(SinkError, match=r"part-000-00000001.*move it"):
            parquet(tmp_path).open()


def test_a_path_that_is_no_directory_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    for path in (tmp_path / "out", tmp_path / "out" / "below"):
        with pytest.raises(SinkError, match=rf"parquet\(path\)='{path}': .*/out is a file: name a"):
            parquet(path).open()


@pytest.mark.parametrize("umask", [0o022, 0o027])
def test_files_are_private_unless_they_are_shared(
    umask: int, tmp_path: Path, make_panes: Make
) -> None:
    """A directory that was there before stays as it was."""
    before = tmp_path / "before"
    before.mkdir(0o755)
    made_before = before.stat().st_mode & 0o777
    old = os.umask(umask)
    try:
        for path, shared in ((tmp_path / "a/b", False), (before, False), (tmp_path / "c", True)):
            writer = parquet(path, shared=shared).open()
            writer.write(make_panes("ads", 0), 0)
            with writer.stage(0) as step:
                step.add(make_panes("ads", 1))
                step.publish()
            writer.close()
            assert len(files(path)) == 2
            modes = {each.stat().st_mode & 0o777 for each in path.iterdir()}
            assert modes == {0o666 & ~umask if shared else 0o600}
    finally:
        os.umask(old)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "a/b").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "c").stat().st_mode & 0o777 == 0o777 & ~umask
    assert before.stat().st_mode & 0o777 == made_before


def is_damaged(file: Path, rows: pa.Table) -> bool:
    """Tell whether a file is refused, whatever it is read for; if not, it must be as it was."""
    try:
        seen = read_sealed(file)
        found = find_panes(file, {"ads": None, "shop": None})
        GrowingFile.load(file, seen.schema)
    except SinkError as refusal:
        return str(file) in str(refusal)
    assert seen.equals(rows)
    assert found == set(_keys(rows))
    return False


def test_every_flipped_byte_is_noticed_or_changes_nothing(tmp_path: Path, make_panes: Make) -> None:
    directory = tmp_path / "out"
    writer = parquet(directory, roll_writes=2).open()
    for window in range(3):  # a full file, and one that the next writer goes on with
        writer.write(make_panes("ads", window), 0)
    with writer.stage(0) as step:
        step.add(make_panes("shop", 0))
        step.publish()
    writer.close()
    noticed = 0
    for file in sorted(directory.glob("*.parquet")):
        content, rows = file.read_bytes(), read_sealed(file)
        places = [*range(0, len(content), len(content) // 60), *range(-40, 0)]
        for place in places:
            flipped = bytearray(content)
            flipped[place] ^= 1 << (place % 8)
            file.write_bytes(flipped)
            noticed += is_damaged(file, rows)
        file.write_bytes(content)
    assert noticed > 250


def test_descriptions_of_one_directory_are_equal_and_bad_ones_are_refused(tmp_path: Path) -> None:
    assert parquet(tmp_path / "a" / ".." / "out") == parquet(f"file://{tmp_path}/out")
    for wrong in ("s3://bucket/out", "hdfs:/out", "file://host/out", ""):
        with pytest.raises(DescriptionError, match="path"):
            parquet(wrong)
    with pytest.raises(DescriptionError, match="roll_rows=0"):
        parquet(tmp_path, roll_rows=0)


def test_an_empty_directory_reads_as_no_panes(tmp_path: Path) -> None:
    parquet(tmp_path / "out").open().close()
    assert read_panes(tmp_path / "out").schema.names == [field.name for field in PANE_FIELDS]
    assert last_panes(read_panes(tmp_path / "out")).num_rows == 0


def test_files_grow_until_a_bound_is_reached(tmp_path: Path, make_panes: Make) -> None:
    bounds = {"rows": parquet(tmp_path / "rows", roll_rows=10)}
    bounds["bytes"] = parquet(tmp_path / "bytes", roll_bytes=1)
    for sink in bounds.values():
        writer: ParquetWriter = sink.open()
        for window in range(4):
            writer.write(make_panes("ads", window), 0)
        writer.close()
    assert [pq.read_metadata(tmp_path / "rows" / f).num_rows for f in files(tmp_path / "rows")] == [
        10,
        10,
    ]
    assert len(files(tmp_path / "bytes")) == 4


def test_readers_learn_from_the_files_which_keys_tell_windows_apart(
    tmp_path: Path, make_panes: Make
) -> None:
    sink = parquet(tmp_path / "out", roll_writes=2)
    for window in range(2):  # the second time the file is read back and goes on growing
        pane = make_panes("ads", window)
        writer = sink.open()
        writer.write(pane.cast(with_window_keys(pane.schema, ["campaign"])), 0)
        writer.close()
    panes = read_panes(tmp_path / "out")
    assert window_keys(panes.schema) == ["campaign"]
    assert last_panes(panes).num_rows == panes.num_rows == 10
