"""The one door to durable files: whatever passes it by cannot be made to fail by a test."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.faulty_disk import Fault, FaultyDisk, Kind
from tests.faults.workload import using

import slackwater
from slackwater.disk import make_directories

CHANGES = {
    *("fsync", "fdatasync", "pwrite", "pwritev", "ftruncate", "truncate", "replace", "rename"),
    *("unlink", "remove", "rmdir", "mkdir", "makedirs", "link", "symlink", "rmtree"),
}
OF_PATHS = {"unlink", "write_bytes", "write_text", "rmdir", "mkdir", "touch"}
ROOMS = ("runtime", "spark/sinks")
ALLOWED = {"live.py"}  # tells of a running process; nothing is lost with it


def changes_of_files(source: str) -> Iterator[str]:
    """List the calls that change files without the door: of os and shutil, and of paths."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="os" | "shutil"), attr=name)):
                if name in CHANGES:
                    yield name
            case ast.Call(func=ast.Name(id="open")):
                yield "open"
            case ast.Call(func=ast.Attribute(attr=name)) if name in OF_PATHS:
                yield name


def test_a_call_past_the_door_is_seen() -> None:
    source = "os.fsync(1)\npath.unlink()\nopen('x', 'wb')\ntext.replace('a', 'b')"
    assert list(changes_of_files(source)) == ["fsync", "unlink", "open"]


def test_journal_blocks_and_sinks_change_files_through_the_disk_alone() -> None:
    root = Path(slackwater.__file__).parent
    found = {
        f"{file.relative_to(root)}: {name}"
        for room in ROOMS
        for file in (root / room).rglob("*.py")
        if file.name not in ALLOWED
        for name in changes_of_files(file.read_text())
    }
    assert not found


def test_a_directory_that_a_killed_process_has_not_synced_is_synced_by_the_next(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    directory = tmp_path / "above" / "made"
    killed = FaultyDisk(tmp_path, Fault(2, Kind.KILLED))  # after the first directory is made
    with using(killed), pytest.raises(OSError, match="Input/output"):
        make_directories(directory)
    killed.abandon()
    assert not directory.exists()
    with using(FaultyDisk(tmp_path, Fault(6, Kind.LOST), after=killed)) as disk:
        make_directories(directory)
        with pytest.raises(OSError, match="Input/output"):
            disk.read(tmp_path / "file")
        disk.abandon()
    assert directory.is_dir()


def test_a_directory_whose_name_is_known_to_be_durable_is_not_synced_again(tmp_path: Path) -> None:
    with using(FaultyDisk(tmp_path)) as disk:
        make_directories(tmp_path / "made")
        synced = [operation.name for operation in disk.done].count("sync")
        make_directories(tmp_path / "made")
        assert [operation.name for operation in disk.done].count("sync") == synced == 1
        disk.remove_directory(tmp_path / "made")
        make_directories(tmp_path / "made")
        assert [operation.name for operation in disk.done].count("sync") == 2
