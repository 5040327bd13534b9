from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.spark.sinks.growing_file import GrowingFile

Make = Callable[..., pa.Table]


def test_bytes_that_were_there_never_change_and_every_version_is_whole(make_panes: Make) -> None:
    tables = [make_panes("ads", window, rows=10 * (window + 1)) for window in range(6)]
    file, before = GrowingFile(), pa.py_buffer(b"")
    for count, table in enumerate(tables, start=1):
        file = file.grown(table)
        assert file.groups.to_pybytes().startswith(before.to_pybytes())
        before = file.groups
        content = pa.BufferReader(b"".join(chunk.to_pybytes() for chunk in file.chunks))
        expected = pa.concat_tables(tables[:count])
        assert pq.read_table(content).cast(expected.schema).equals(expected)
        assert (file.rows, file.writes) == (expected.num_rows, count)


def test_growing_makes_a_new_value_so_that_a_failed_write_leaves_no_trace(make_panes: Make) -> None:
    file = GrowingFile().grown(make_panes("ads", 0))
    before = [chunk.to_pybytes() for chunk in file.chunks]
    file.grown(make_panes("ads", 1))
    assert [chunk.to_pybytes() for chunk in file.chunks] == before


def test_a_file_read_back_grows_as_if_it_had_never_been_put_down(
    tmp_path: Path, make_panes: Make
) -> None:
    first, second = make_panes("ads", 0), make_panes("ads", 1)
    file = GrowingFile().grown(first)
    path = tmp_path / "file.parquet"
    path.write_bytes(b"".join(chunk.to_pybytes() for chunk in file.chunks))
    loaded = GrowingFile.load(path, first.schema)
    assert loaded is not None
    again = b"".join(chunk.to_pybytes() for chunk in loaded.grown(second).chunks)
    assert pq.read_metadata(pa.BufferReader(again)).num_row_groups == 2
    assert pq.read_table(pa.BufferReader(again)).num_rows == 10


def test_a_file_whose_columns_are_stored_differently_is_not_gone_on_with(
    tmp_path: Path, make_panes: Make
) -> None:
    panes = make_panes()
    pq.write_table(panes.drop_columns("spend"), tmp_path / "file.parquet", store_schema=False)
    assert GrowingFile.load(tmp_path / "file.parquet", panes.schema) is None
