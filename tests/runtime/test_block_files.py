"""What every place for block files must do."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from slackwater.errors import DescriptionError, JournalError, StateError
from slackwater.runtime import block_files as block_files_module
from slackwater.runtime.block_files import (
    BlockFiles,
    LocalBlockFiles,
    RemoteBlockFiles,
    block_files,
    storage_files,
)
from slackwater.runtime.blocks import RETRY_S, TRUST_S, BlockStore
from slackwater.runtime.state import Block

CONTENT = pa.py_buffer(b"PAR1 and so on")


@pytest.fixture(params=["local", "remote on disk", "remote in memory"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> BlockFiles:
    if request.param == "local":
        return LocalBlockFiles(tmp_path / "blocks")
    if request.param == "remote on disk":
        root = tmp_path / "blocks"
        return RemoteBlockFiles(fs.LocalFileSystem(), str(root), root.as_uri())
    return RemoteBlockFiles(fs._MockFileSystem(), "bucket/blocks", "mock://bucket/blocks")


def test_what_was_written_can_be_read(files: BlockFiles) -> None:
    files.write("query=1/slice=-5/a.parquet", CONTENT)
    assert files.read("query=1/slice=-5/a.parquet").equals(CONTENT)
    assert files.names() == ["query=1/slice=-5/a.parquet"]
    assert files.for_spark("query=1/slice=-5/a.parquet").endswith("/query=1/slice=-5/a.parquet")


def test_nothing_is_there_before_the_first_write(files: BlockFiles) -> None:
    assert files.names() == []
    files.remove("query=1/slice=0/a.parquet")


def test_removing_the_last_file_leaves_nothing(files: BlockFiles, tmp_path: Path) -> None:
    for name in ("query=1/slice=0/a", "query=1/slice=0/b", "query=2/slice=0/a"):
        files.write(name, CONTENT)
    files.remove("query=1/slice=0/a")
    assert sorted(files.names()) == ["query=1/slice=0/b", "query=2/slice=0/a"]
    files.remove("query=1/slice=0/b")
    files.remove("query=1/slice=0/b")
    assert files.names() == ["query=2/slice=0/a"]
    assert not (tmp_path / "blocks" / "query=1").exists()
    files.write("query=1/slice=0/c", CONTENT)
    assert len(files.names()) == 2


def test_orphans_are_removed_and_others_stay(files: BlockFiles) -> None:
    store = BlockStore(files)
    kept, orphan = (store.write(1, start, pa.table({"x": [1]})) for start in (0, 10))
    unfinished = orphan.path.replace("slice=10/", "slice=10/_tmp-")
    for name in (unfinished, "block-0000000001-0--5000.parquet", "somebody/else.parquet"):
        files.write(name, CONTENT)
    assert store.tidy({kept.path}) == 3
    assert sorted(files.names()) == [kept.path, "somebody/else.parquet"]
    assert store.read(kept).to_pylist() == [{"x": 1}]
    assert orphan.path not in files.names()


def test_a_block_that_is_missing_is_an_error_with_a_remedy(files: BlockFiles) -> None:
    store = BlockStore(files)
    with pytest.raises(JournalError, match=r"missing, such as .*gone.parquet: give the storage="):
        store.tidy({"query=1/slice=0/gone.parquet"})


def test_a_block_of_a_query_that_the_journal_never_had_is_kept_and_refused(
    files: BlockFiles,
) -> None:
    store = BlockStore(files)
    known, unknown = (store.write(query, 0, pa.table({"x": [1]})) for query in (1, 2))
    with pytest.raises(JournalError, match=rf"{unknown.path} .*records are missing at its end"):
        store.tidy({known.path}, queries=2)
    assert sorted(files.names()) == [known.path, unknown.path]
    assert store.tidy({known.path}, queries=3) == 1


def test_journals_share_a_storage_without_seeing_each_other(tmp_path: Path) -> None:
    stores = [
        BlockStore(storage_files(tmp_path / journal, tmp_path / "shared")) for journal in "ab"
    ]
    block = stores[0].write(1, 0, pa.table({"x": [1]}))
    assert stores[1].tidy(set()) == 0
    (tmp_path / "a").rename(tmp_path / "moved")
    again = BlockStore(storage_files(tmp_path / "moved", tmp_path / "shared"))
    assert again.tidy({block.path}) == 0
    assert again.read(block).num_rows == 1


def test_a_flipped_bit_in_the_name_of_a_storage_is_an_error_where_it_matters(
    tmp_path: Path,
) -> None:
    block = BlockStore(storage_files(tmp_path / "state", tmp_path / "shared")).write(
        1, 0, pa.table({"x": [1]})
    )
    name = tmp_path / "state" / "storage-name"
    good = name.read_bytes()
    for bit in range(8 * len(good)):
        flipped = bytearray(good)
        flipped[bit // 8] ^= 1 << bit % 8
        name.write_bytes(flipped)
        with pytest.raises(JournalError, match=r"storage-name is damaged|blocks .* are missing"):
            BlockStore(storage_files(tmp_path / "state", tmp_path / "shared")).tidy({block.path})


def test_a_block_being_read_is_removed_when_its_readers_are_done(files: BlockFiles) -> None:
    store = BlockStore(files)
    block = store.write(1, 0, pa.table({"x": [1]}))
    with store.reading():
        with store.reading():
            store.remove([block])
        assert store.read(block).num_rows == 1
        with store.reading():
            pass  # who comes later does not see the block any more, and does not keep it
        assert files.names()
    assert not files.names()


def test_a_reader_that_fails_keeps_nothing(files: BlockFiles) -> None:
    store = BlockStore(files)
    block = store.write(1, 0, pa.table({"x": [1]}))

    def fail_while_reading() -> None:
        with store.reading():
            store.remove([block])
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail_while_reading()
    assert not files.names()


def test_a_directory_is_local_however_it_is_written(tmp_path: Path) -> None:
    for place in (tmp_path, str(tmp_path), tmp_path.as_uri()):
        found = block_files(place, "storage")
        assert isinstance(found, LocalBlockFiles)
        assert found.for_spark("a") == str(tmp_path / "a")


def test_a_place_that_nobody_knows_is_refused_with_a_remedy() -> None:
    with pytest.raises(DescriptionError, match=r"storage='ftp://.*hdfs://"):
        block_files("ftp://host/path", "storage")


def test_spark_calls_s3_otherwise() -> None:
    files = RemoteBlockFiles(fs._MockFileSystem(), "b/p", "s3://b/p/")
    assert files.for_spark("a") == "s3a://b/p/a"


class Sticky(LocalBlockFiles):
    """Keep files that cannot be removed for a while."""

    stuck = True
    tries = 0

    def remove(self, path: str) -> None:
        self.tries += 1
        if self.stuck:
            raise OSError(16, "Device or resource busy")
        super().remove(path)


def test_what_cannot_be_removed_is_said_once_and_tried_again_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now_s = [1_000.0]
    files = Sticky(tmp_path)
    store = BlockStore(files, monotonic_s=lambda: now_s[0])
    blocks = [store.write(1, start, pa.table({"x": [1]})) for start in range(5)]
    with store.reading():
        store.remove(blocks[:2])
    for block in blocks[2:]:
        store.remove([block])
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "busy" in caplog.text
    files.stuck, tries = False, files.tries
    with store.reading():
        pass
    assert files.tries == tries, "each step must not try again"
    now_s[0] += RETRY_S
    with store.reading():
        pass
    assert not files.names()


def test_an_orphan_that_cannot_be_removed_does_not_stop_a_start(tmp_path: Path) -> None:
    files = Sticky(tmp_path)
    store = BlockStore(files)
    store.write(1, 0, pa.table({"x": [1]}))
    assert store.tidy(set()) == 0
    files.stuck = False
    assert BlockStore(files).tidy(set()) == 1


def test_a_write_that_fails_after_its_file_was_there_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(directory: Path) -> None:
        raise OSError(5, "Input/output error")

    files = LocalBlockFiles(tmp_path)
    monkeypatch.setattr(block_files_module, "sync_directory", broken)
    with pytest.raises(OSError, match="Input/output"):
        BlockStore(files).write(1, 0, pa.table({"x": [1]}))
    assert not files.names()


ROWS = pa.table(
    {
        "k": [f"key {n % 7}" for n in range(60)],
        "x": list(range(60)),
        "d": [n / 8 for n in range(60)],
    }
)


def test_a_flipped_bit_anywhere_in_a_block_is_an_error_that_names_file_and_remedy(
    tmp_path: Path,
) -> None:
    files, now_s = LocalBlockFiles(tmp_path), [0.0]
    store = BlockStore(files, monotonic_s=lambda: now_s[0])
    block = store.write(1, 0, ROWS)
    place = tmp_path / block.path
    good = place.read_bytes()
    for offset in range(len(good)):
        flipped = bytearray(good)
        flipped[offset] ^= 1 << offset % 8
        place.write_bytes(flipped)
        now_s[0] += TRUST_S
        for reads in (store.read, lambda block: store.check([block])):
            with pytest.raises(StateError, match=rf"{block.path}.* is damaged .*reset=True"):
                reads(block)
    place.write_bytes(good)
    assert store.read(block).equals(ROWS)
    store.check([block])


def test_a_block_that_was_cut_emptied_swapped_or_lost_is_an_error(tmp_path: Path) -> None:
    store = BlockStore(LocalBlockFiles(tmp_path))
    block, other = store.write(1, 0, ROWS), store.write(1, 0, ROWS.slice(1))
    place = tmp_path / block.path
    good = place.read_bytes()
    for content in (good[:-1], good + b"\0", b"", bytes(len(good))):
        place.write_bytes(content)
        with pytest.raises(StateError, match="is damaged"):
            store.read(block)
    place.write_bytes((tmp_path / other.path).read_bytes())
    with pytest.raises(StateError, match="is damaged"):
        store.read(block)
    place.unlink()
    with pytest.raises(StateError, match=rf"{block.path}.* is missing: put the file back"):
        store.read(block)


def test_what_was_just_written_is_not_read_again_before_spark_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, reads = [0.0], list[str]()
    files = LocalBlockFiles(tmp_path)
    read = files.read

    def counted(path: str) -> pa.Buffer:
        reads.append(path)
        return read(path)

    monkeypatch.setattr(files, "read", counted)
    store = BlockStore(files, monotonic_s=lambda: now_s[0])
    block = store.write(1, 0, ROWS)
    for _ in range(3):
        store.check([block])
    assert not reads
    now_s[0] += TRUST_S
    for _ in range(3):
        store.check([block])
    assert len(reads) == 1


def test_blocks_of_earlier_versions_are_read_and_known_by_their_rows(tmp_path: Path) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(ROWS, sink, compression="zstd", use_dictionary=False)
    files = LocalBlockFiles(tmp_path)
    files.write("a.parquet", sink.getvalue())
    store = BlockStore(files)
    assert store.read(Block("a.parquet", 60, 100)).equals(ROWS)
    store.check([Block("a.parquet", 60)])
    with pytest.raises(StateError, match=r"damaged \(60 rows for 61\)"):
        store.read(Block("a.parquet", 61))
    files.write("b.parquet", pa.py_buffer(b"PAR1 no more"))
    with pytest.raises(StateError, match=r"b.parquet.*is damaged"):
        store.read(Block("b.parquet", 60))


def test_a_damaged_name_of_the_storage_is_refused_and_says_where(tmp_path: Path) -> None:
    storage_files(tmp_path / "journal", tmp_path / "shared")
    place = tmp_path / "journal" / "storage-name"
    content = place.read_bytes()
    for position in range(len(content)):
        other = bytearray(content)
        other[position] ^= 1
        place.write_bytes(other)
        with pytest.raises(JournalError, match=f"{place} is damaged: .*restore it"):
            storage_files(tmp_path / "journal", tmp_path / "shared")


def test_a_name_of_the_storage_without_a_checksum_is_taken(tmp_path: Path) -> None:
    name = "0123456789abcdef" * 2
    (tmp_path / "storage-name").write_text(name)
    files = storage_files(tmp_path, tmp_path / "shared")
    assert files.for_spark("x") == str(tmp_path / "shared" / name / "x")
