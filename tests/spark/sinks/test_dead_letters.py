from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow as pa
import pytest

from slackwater.errors import DescriptionError, SinkError
from slackwater.spark.sinks.dead_letters import (
    DEAD_LETTER_SCHEMA,
    DeadLetterFiles,
    DeadLetterReason,
)


def letters(query: str, *reasons: str) -> pa.Table:
    rows = [
        {
            "query": query,
            "input": 0,
            "partition": None if reason == DeadLetterReason.MALFORMED else number,
            "offset": number,
            "event_time": None,
            "arrival": 1_700_000_000_000_000,
            "reason": reason,
            "record": f'{{"number": {number}}}',
        }
        for number, reason in enumerate(reasons)
    ]
    return pa.Table.from_pylist(rows, schema=DEAD_LETTER_SCHEMA)


def test_letters_come_back_and_are_counted_by_query_and_reason(tmp_path: Path) -> None:
    files = DeadLetterFiles(tmp_path / "dead")
    first, second = letters("ads", "malformed", "too late", "too late"), letters("shop", "too late")
    files.write("0001", first)
    files.write("0002", second)
    expected = pa.concat_tables([first, second])
    counts = {("ads", "malformed"): 1, ("ads", "too late"): 2, ("shop", "too late"): 1}
    for reader in (files, DeadLetterFiles(tmp_path / "dead")):
        assert reader.read().cast(DEAD_LETTER_SCHEMA).equals(expected)
        assert reader.counts() == counts
        assert reader.counts() == counts


def test_a_batch_written_again_is_there_once(tmp_path: Path) -> None:
    for _ in range(2):
        DeadLetterFiles(tmp_path).write("step-7", letters("ads", "no event time", "ahead of time"))
    files = DeadLetterFiles(tmp_path)
    assert files.read().num_rows == sum(files.counts().values()) == 2
    assert os.listdir(tmp_path) == ["dead-step-7.parquet"]


def test_no_letters_make_no_file(tmp_path: Path) -> None:
    files = DeadLetterFiles(tmp_path)
    files.write("1", letters("ads"))
    assert files.counts() == {}
    assert files.read().equals(DEAD_LETTER_SCHEMA.empty_table())
    assert not os.listdir(tmp_path)


def test_a_full_disk_shows_nothing_and_writing_goes_on_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    files = DeadLetterFiles(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(SinkError, match="free space"):
            files.write("1", letters("ads", "too late"))
    assert not os.listdir(tmp_path)
    assert files.counts() == {}
    files.write("1", letters("ads", "too late"))
    assert files.counts() == {("ads", "too late"): 1}


def test_wrong_batches_are_refused_by_what_is_wrong(tmp_path: Path) -> None:
    files = DeadLetterFiles(tmp_path)
    with pytest.raises(DescriptionError, match=r"batch='\.\./1'"):
        files.write("../1", letters("ads", "too late"))
    with pytest.raises(DescriptionError, match=r"reason=\['bored'\]"):
        files.write("1", letters("ads", "bored"))
    with pytest.raises(DescriptionError, match="have columns"):
        files.write("1", letters("ads", "too late").drop_columns("record"))


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "dead-1.parquet").write_bytes(b"?")
    with pytest.raises(SinkError, match=r"dead-1\.parquet"):
        DeadLetterFiles(tmp_path).counts()


def test_every_flipped_byte_is_noticed_or_changes_nothing(tmp_path: Path) -> None:
    DeadLetterFiles(tmp_path).write("1", letters("ads", "malformed", "too late", "too late"))
    file = tmp_path / "dead-1.parquet"
    content, rows = file.read_bytes(), DeadLetterFiles(tmp_path).read()
    noticed = 0
    for place in range(0, len(content), 7):
        flipped = bytearray(content)
        flipped[place] ^= 1 << (place % 8)
        file.write_bytes(flipped)
        files = DeadLetterFiles(tmp_path)
        try:
            assert files.counts() == {("ads", "malformed"): 1, ("ads", "too late"): 2}
            assert files.read().equals(rows)
        except SinkError:
            noticed += 1
    assert noticed > len(content) // 7 - 4
