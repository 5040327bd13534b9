"""The disk that breaks: it must lose what was not synced, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.faults.faulty_disk import Fault, FaultyDisk, Kind
from tests.faults.workload import using

from slackwater.disk import Disk, flush_path, make_directories, write_at
from slackwater.spark.sinks.durable_files import replace_file


def written(disk: Disk, path: Path, content: bytes, *, synced: bool) -> None:
    """Write a file through a disk."""
    handle = disk.open(path, os.O_WRONLY | os.O_CREAT)
    write_at(handle, [content], 0)
    if synced:
        disk.sync(handle)
    disk.close(handle)


def until_it_breaks(disk: FaultyDisk, path: Path) -> None:
    """Do one last thing, which ends the process."""
    with pytest.raises(OSError, match=str(path)):
        disk.read(path)
    disk.abandon()


def test_a_power_failure_takes_bytes_and_names_that_were_not_synced(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"before")
    with using(FaultyDisk(tmp_path, Fault(20, Kind.LOST))) as disk:
        make_directories(tmp_path / "inner")
        written(disk, tmp_path / "inner" / "named", b"safe", synced=True)
        flush_path(tmp_path / "inner")
        written(disk, tmp_path / "inner" / "nameless", b"lost", synced=True)
        written(disk, tmp_path / "old", b"longer than before", synced=False)
        disk.remove(tmp_path / "old")
        while len(disk.done) < 19:
            disk.read(tmp_path / "inner" / "named")
        until_it_breaks(disk, tmp_path / "inner" / "named")
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["inner", "named", "old"]
    assert (tmp_path / "inner" / "named").read_bytes() == b"safe"
    assert (tmp_path / "old").read_bytes() == b"before"


def test_a_power_failure_may_keep_names_and_lengths_alone(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"before")
    with using(FaultyDisk(tmp_path, Fault(7, Kind.ZEROED))) as disk:
        written(disk, tmp_path / "new", b"four", synced=False)
        disk.replace(tmp_path / "new", tmp_path / "renamed")
        written(disk, tmp_path / "safe", b"four", synced=True)
        until_it_breaks(disk, tmp_path / "safe")
    assert (tmp_path / "renamed").read_bytes() == b"\0\0\0\0"
    assert (tmp_path / "safe").read_bytes() == b"four"
    assert (tmp_path / "old").read_bytes() == b"before"


def test_a_torn_write_leaves_its_first_half(tmp_path: Path) -> None:
    with using(FaultyDisk(tmp_path, Fault(2, Kind.KILLED_TORN))) as disk:
        with pytest.raises(OSError, match="file"):
            replace_file(tmp_path / "file", [b"1234", b"5678"])
        disk.abandon()
    assert (tmp_path / "_tmp-file").read_bytes() == b"1234"


def test_a_process_that_is_dead_does_nothing_more(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path, Fault(1, Kind.KILLED))
    until_it_breaks(disk, tmp_path / "any")
    with pytest.raises(OSError, match="dead"):
        disk.make_directory(tmp_path / "more")
    assert not list(tmp_path.iterdir())


def test_a_file_replaced_without_a_sync_of_its_directory_is_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    with using(FaultyDisk(tmp_path, Fault(5, Kind.LOST))) as disk:
        replace_file(tmp_path / "file", [b"new"])
        until_it_breaks(disk, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"old"
