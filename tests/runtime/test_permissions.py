from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from slackwater.disk import PRIVATE, SHARED, Access
from slackwater.runtime.block_files import storage_files
from slackwater.runtime.journal import Journal
from slackwater.spark.sinks.dead_letters import DEAD_LETTER_SCHEMA, DeadLetterFiles


@pytest.fixture(params=[0o022, 0o007])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    old = os.umask(request.param)
    yield request.param
    os.umask(old)


def make_everything(directory: Path, access: Access) -> None:
    journal = Journal.open(directory / "journal", access=access)
    journal.append({"kind": "fact"})
    journal.rotate().install({"kind": "all"})
    journal.close()
    storage_files(directory, None, access).write("query=1/slice=2/x.parquet", pa.py_buffer(b"x"))
    storage_files(directory, directory / "far", access).write("y.parquet", pa.py_buffer(b"y"))
    row = dict.fromkeys(DEAD_LETTER_SCHEMA.names) | {"query": "q", "reason": "malformed"}
    letters = pa.Table.from_pylist([row], schema=DEAD_LETTER_SCHEMA)
    DeadLetterFiles(directory / "dead-letters", access).write("1", letters)


@pytest.mark.parametrize("access", [PRIVATE, SHARED], ids=["private", "shared"])
def test_files_are_their_owners_alone_unless_shared(
    access: Access, umask: int, tmp_path: Path
) -> None:
    make_everything(tmp_path / "run", access)
    paths = [tmp_path / "run", *(tmp_path / "run").rglob("*")]
    assert sum(path.is_file() for path in paths) >= 7
    for path in paths:
        wanted = access.directory_mode if path.is_dir() else access.file_mode
        assert path.stat().st_mode & 0o777 == wanted & ~umask, path


def test_directories_that_were_there_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run").chmod(0o755)
    make_everything(tmp_path / "run", PRIVATE)
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o755
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
