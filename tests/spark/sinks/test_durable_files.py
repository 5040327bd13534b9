from __future__ import annotations

import os
from pathlib import Path

import pytest

from slackwater.errors import DescriptionError, SinkError
from slackwater.spark.sinks.durable_files import (
    DirectoryLock,
    as_sink_error,
    local_directory,
    make_directory,
    replace_file,
)


def test_a_file_is_synced_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    fsync, replace = os.fsync, os.replace

    def watched_fsync(handle: int) -> None:
        order.append("fsync")
        fsync(handle)

    def watched_replace(source: Path, target: Path) -> None:
        order.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "replace", watched_replace)
    replace_file(tmp_path / "file", [b"one ", b"two"])
    assert order == ["fsync", "rename"]
    assert (tmp_path / "file").read_bytes() == b"one two"
    assert os.listdir(tmp_path) == ["file"]


def test_a_file_that_could_not_be_replaced_stays_as_it_was(tmp_path: Path) -> None:
    replace_file(tmp_path / "file", [b"old"])
    with pytest.raises(TypeError):
        replace_file(tmp_path / "file", [b"new", "text"])
    assert (tmp_path / "file").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_lock_that_is_no_longer_referred_to_is_free(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    with pytest.raises(SinkError, match="another runtime"):
        DirectoryLock(tmp_path)
    del lock
    DirectoryLock(tmp_path).release()


def test_paths_and_file_uris_are_understood(tmp_path: Path) -> None:
    assert local_directory("file:/data/out", "path") == Path("/data/out")
    assert local_directory("out/a:b", "path") == Path.cwd() / "out" / "a:b"
    assert local_directory(tmp_path, "path") == tmp_path
    assert local_directory("~/out", "path") == Path.home() / "out"
    with pytest.raises(DescriptionError, match="is on s3a: only directories"):
        local_directory("s3a://bucket/out", "path")


def test_failures_say_where_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SinkError, match="file/out: Not a directory: put the directory back"):
        make_in(tmp_path / "file" / "out")
    with pytest.raises(SinkError, match="out: strange: mend the disk"), as_sink_error(Path("out")):
        raise OSError("strange")


def make_in(directory: Path) -> None:
    with as_sink_error(directory):
        make_directory(directory)
