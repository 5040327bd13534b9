"""What the journal promises, under cuts, damage, crashes, threads and second owners."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater import disk
from slackwater.errors import JournalError, JournalLockedError, JournalVersionError
from slackwater.runtime import journal as journal_module
from slackwater.runtime import segments as segments_module
from slackwater.runtime.durable_mark import NAME, DurableMark
from slackwater.runtime.journal import Journal, Record, Recovered

SOURCES = Path(journal_module.__file__).parents[2]
SEGMENT_1 = "segment-000000000001.log"
SEGMENT_2 = "segment-000000000002.log"
SNAPSHOT_2 = "snapshot-000000000002.snap"
FILE_HEADER_BYTES = 20


def open_quick(directory: Path) -> Journal:
    return Journal.open(directory, durable=False)


def reopen(directory: Path) -> Recovered:
    with open_quick(directory) as journal:
        return journal.recovered


def headers(recovered: Recovered) -> list[dict[str, Any]]:
    return [record.header for record in recovered.records]


def total(recovered: Recovered) -> list[Any]:
    """Fold snapshot and records the way a caller would: a list of all numbers ever appended."""
    known = list(recovered.snapshot.header["numbers"]) if recovered.snapshot else []
    return known + [record.header["n"] for record in recovered.records]


def files(directory: Path) -> dict[str, bytes]:
    others = ("lock", NAME)
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name not in others}


def mark_at(directory: Path, number: int, size: int) -> None:
    """Leave the mark as a crash would, after so much of a segment was durable."""
    (directory / NAME).unlink()
    mark = DurableMark(directory, durable=False)
    mark.write(number, size)
    mark.close()


def write_numbers(directory: Path, count: int) -> None:
    with open_quick(directory) as journal:
        for n in range(count):
            journal.append({"n": n}, bytes([n, 0, n]))


def in_process(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
    )


class TestRecords:
    @pytest.mark.parametrize("durable", [True, False])
    def test_records_come_back_in_order_with_header_and_payload(
        self, tmp_path: Path, durable: bool
    ) -> None:
        written = [
            Record({}, b""),
            Record({"plan": [1, 2.5, None, "\u00e9\ud800"]}, bytes(range(256))),
            Record({"large": True}, os.urandom(3_000_000)),
            Record({"zeros": True}, bytes(10_000)),
        ]
        with Journal.open(tmp_path / "deep" / "state", durable=durable) as journal:
            assert journal.recovered == Recovered(None, [], 0)
            for record in written:
                journal.sync(journal.append(record.header, record.payload))
        with Journal.open(tmp_path / "deep" / "state", durable=durable) as journal:
            assert journal.recovered == Recovered(None, written, 0)
            assert journal.records_since_snapshot == 4
            assert journal.directory == tmp_path / "deep" / "state"

    def test_positions_grow_and_go_on_after_reopening(self, tmp_path: Path) -> None:
        with open_quick(tmp_path) as journal:
            positions = [journal.append({"n": n}) for n in range(3)]
            assert journal.bytes_since_snapshot == positions[-1]
        with open_quick(tmp_path) as journal:
            assert journal.bytes_since_snapshot == positions[-1]
            positions.append(journal.append({"n": 3}))
        assert positions == sorted(set(positions))
        assert [header["n"] for header in headers(reopen(tmp_path))] == [0, 1, 2, 3]

    def test_a_header_that_is_not_json_leaves_no_trace(self, tmp_path: Path) -> None:
        with open_quick(tmp_path) as journal:
            with pytest.raises(TypeError):
                journal.append({"n": object()})
            assert journal.bytes_since_snapshot == 0

    def test_a_position_never_appended_is_refused(self, tmp_path: Path) -> None:
        with open_quick(tmp_path) as journal, pytest.raises(JournalError, match="never appended"):
            journal.sync(1)

    def test_a_closed_journal_refuses_and_closes_twice(self, tmp_path: Path) -> None:
        journal = open_quick(tmp_path)
        rotation = journal.rotate()
        journal.close()
        journal.close()
        refused: list[Callable[[], object]] = [
            lambda: journal.append({}),
            lambda: journal.sync(0),
            journal.rotate,
            lambda: rotation.install({}),
        ]
        for call in refused:
            with pytest.raises(JournalError, match="closed"):
                call()


class TestTornTails:
    @pytest.mark.parametrize("zeros", [0, 1, 19, 200, 5_000])
    def test_a_last_record_cut_at_any_byte_is_removed_and_the_rest_kept(
        self, tmp_path: Path, zeros: int
    ) -> None:
        write_numbers(tmp_path, 2)
        start = (tmp_path / SEGMENT_1).stat().st_size
        with open_quick(tmp_path) as journal:
            journal.append({"n": 2}, b"payload\0\0")
        whole = (tmp_path / SEGMENT_1).read_bytes()
        for cut in range(start, len(whole)):
            torn = whole[:cut] + bytes(zeros)
            (tmp_path / SEGMENT_1).write_bytes(torn)
            mark_at(tmp_path, 1, start)
            with open_quick(tmp_path) as journal:
                assert total(journal.recovered) == [0, 1]
                assert journal.recovered.torn_bytes == len(torn) - start
                journal.append({"n": 9})
            assert total(reopen(tmp_path)) == [0, 1, 9]

    @pytest.mark.parametrize("zeros", [1, 19, 20, 5_000])
    def test_zeros_after_a_whole_record_are_removed(self, tmp_path: Path, zeros: int) -> None:
        write_numbers(tmp_path, 2)
        with (tmp_path / SEGMENT_1).open("ab") as segment:
            segment.write(bytes(zeros))
        recovered = reopen(tmp_path)
        assert (total(recovered), recovered.torn_bytes) == ([0, 1], zeros)
        assert reopen(tmp_path).torn_bytes == 0

    @pytest.mark.parametrize("zeros", [0, 3, 500])
    @pytest.mark.parametrize("cut", range(FILE_HEADER_BYTES))
    def test_a_torn_file_header_of_the_last_segment_is_written_again(
        self, tmp_path: Path, cut: int, zeros: int
    ) -> None:
        write_numbers(tmp_path, 2)
        with open_quick(tmp_path) as journal:
            journal.rotate()
        segment = tmp_path / SEGMENT_2
        segment.write_bytes(segment.read_bytes()[:cut] + bytes(zeros))
        mark_at(tmp_path, 1, 0)
        with open_quick(tmp_path) as journal:
            assert total(journal.recovered) == [0, 1]
            journal.append({"n": 2})
        assert total(reopen(tmp_path)) == [0, 1, 2]

    def test_a_torn_record_in_an_earlier_segment_is_damage(self, tmp_path: Path) -> None:
        write_numbers(tmp_path, 2)
        with open_quick(tmp_path) as journal:
            journal.rotate()
        segment = tmp_path / SEGMENT_1
        segment.write_bytes(segment.read_bytes()[:-1])
        with pytest.raises(JournalError, match=rf"{SEGMENT_1} is damaged at byte offset \d+:"):
            open_quick(tmp_path)


class TestDamage:
    @settings(max_examples=300, deadline=None)
    @given(data=st.data(), count=st.integers(1, 6))
    def test_a_flipped_bit_anywhere_is_an_error_that_names_file_and_offset(
        self, data: st.DataObject, count: int
    ) -> None:
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            write_numbers(directory, count)
            segment = directory / SEGMENT_1
            content = bytearray(segment.read_bytes())
            offset = data.draw(st.integers(0, len(content) - 1))
            content[offset] ^= 1 << data.draw(st.integers(0, 7))
            segment.write_bytes(content)
            with pytest.raises(JournalError) as raised:
                open_quick(directory)
            assert SEGMENT_1 in str(raised.value)
            if not isinstance(raised.value, JournalVersionError):
                reported = int(str(raised.value).split("byte offset ")[1].split(":")[0])
                assert reported <= offset
            assert segment.read_bytes() == content, "damage is reported, not cut away"

    @settings(max_examples=300, deadline=None)
    @given(data=st.data())
    def test_any_other_byte_anywhere_before_the_last_record_is_an_error(
        self, data: st.DataObject
    ) -> None:
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            write_numbers(directory, 4)
            segment = directory / SEGMENT_1
            before_last = segment.stat().st_size
            with open_quick(directory) as journal:
                journal.append({"n": 4})
            content = bytearray(segment.read_bytes())
            offset = data.draw(st.integers(0, before_last - 1))
            content[offset] ^= data.draw(st.integers(1, 255))
            segment.write_bytes(content)
            with pytest.raises(JournalError):
                open_quick(directory)

    def test_every_flipped_bit_of_an_opening_is_an_error(self, tmp_path: Path) -> None:
        """Also one that makes it that of the version before."""
        for count in (0, 1):
            write_numbers(tmp_path / str(count), count)
            segment = tmp_path / str(count) / SEGMENT_1
            good = segment.read_bytes()
            for bit in range(8 * FILE_HEADER_BYTES):
                content = bytearray(good)
                content[bit // 8] ^= 1 << bit % 8
                segment.write_bytes(content)
                with pytest.raises(JournalError, match=SEGMENT_1):
                    open_quick(tmp_path / str(count))

    def test_a_damaged_length_does_not_pass_for_a_torn_tail(self, tmp_path: Path) -> None:
        write_numbers(tmp_path, 3)
        segment = tmp_path / SEGMENT_1
        content = bytearray(segment.read_bytes())
        content[FILE_HEADER_BYTES + 6] = 0x7F  # the first payload now seems to go on past the end
        segment.write_bytes(content)
        with pytest.raises(JournalError, match=f"byte offset {FILE_HEADER_BYTES}: restore"):
            open_quick(tmp_path)

    def test_damage_to_the_only_snapshot_is_an_error(self, tmp_path: Path) -> None:
        with open_quick(tmp_path) as journal:
            journal.append({"n": 0})
            journal.rotate().install({"numbers": [0]}, b"state")
        snapshot = tmp_path / SNAPSHOT_2
        good = snapshot.read_bytes()
        for offset in range(len(good)):
            content = bytearray(good)
            content[offset] ^= 0x10
            snapshot.write_bytes(content)
            with pytest.raises(JournalError, match=SNAPSHOT_2):
                open_quick(tmp_path)
        for other in (good[:-1], good + b"\0", b""):
            snapshot.write_bytes(other)
            with pytest.raises(JournalError, match=SNAPSHOT_2):
                open_quick(tmp_path)
        snapshot.write_bytes(good)
        assert total(reopen(tmp_path)) == [0]

    def test_a_damaged_snapshot_is_passed_over_while_all_it_replaced_is_there(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        write_numbers(tmp_path, 2)
        with open_quick(tmp_path) as journal:
            rotation = journal.rotate()
            segment = (tmp_path / SEGMENT_1).read_bytes()
            rotation.install({"numbers": [0, 1]})
            journal.append({"n": 2})
        (tmp_path / SEGMENT_1).write_bytes(segment)
        (tmp_path / SNAPSHOT_2).write_bytes(b"SLKW")
        assert total(reopen(tmp_path)) == [0, 1, 2]
        assert SNAPSHOT_2 in caplog.text
        (tmp_path / SEGMENT_2).unlink()
        with pytest.raises(JournalError, match=f"{SNAPSHOT_2} is damaged"):
            open_quick(tmp_path)

    @pytest.mark.parametrize("number", [1, 2])
    def test_a_missing_segment_is_an_error(self, tmp_path: Path, number: int) -> None:
        with open_quick(tmp_path) as journal:
            for _ in range(2):
                journal.rotate()
        (tmp_path / f"segment-{number:012d}.log").unlink()
        with pytest.raises(JournalError, match=f"segment-{number:012d}.log is missing"):
            open_quick(tmp_path)

    def test_a_snapshot_without_its_segment_is_an_error(self, tmp_path: Path) -> None:
        with open_quick(tmp_path) as journal:
            journal.rotate().install({"numbers": []})
        (tmp_path / SEGMENT_2).unlink()
        with pytest.raises(JournalError, match=f"{SEGMENT_2} is missing"):
            open_quick(tmp_path)


def record_ends(segment: Path) -> list[int]:
    """Find where each record of a segment ends, the file's header counted as the first."""
    data, ends = segment.read_bytes(), [FILE_HEADER_BYTES]
    while ends[-1] < len(data):
        header, payload = struct.unpack_from("<IQ", data, ends[-1])
        ends.append(ends[-1] + 20 + header + payload + 1)
    return ends


def spoiled(content: bytes, keep: int) -> list[bytes]:
    """Cut a file after so many bytes, or fill the rest with zeros."""
    return [content[:keep], content[:keep] + bytes(len(content) - keep), content[:keep] + bytes(3)]


class TestLostRecords:
    """What was durable and is gone is never taken for a write that was torn."""

    @pytest.mark.parametrize("ended", ["closed", "killed"])
    def test_a_last_segment_without_records_that_were_durable_is_refused(
        self, tmp_path: Path, ended: str
    ) -> None:
        journal = Journal.open(tmp_path / "live")
        for n in range(3):
            journal.sync(journal.append({"n": n}, bytes(5)))
        durable = (tmp_path / "live" / SEGMENT_1).stat().st_size
        journal.append({"n": 3}, b"not flushed")
        if ended == "closed":
            journal.close()
            durable = (tmp_path / "live" / SEGMENT_1).stat().st_size
        left = Path(shutil.copytree(tmp_path / "live", tmp_path / "left"))
        journal.close()
        whole = (left / SEGMENT_1).read_bytes()
        says = rf"{SEGMENT_1} is damaged at byte offset \d+: restore .*\({durable} bytes of it"
        for keep in range(durable):
            for content in spoiled(whole, keep):
                (left / SEGMENT_1).write_bytes(content)
                for read in (open_quick, Journal.read_only):
                    with pytest.raises(JournalError, match=says):
                        read(left)
                assert (left / SEGMENT_1).read_bytes() == content, "damage is not cut away"
        for keep in range(durable, len(whole) + 1):  # nobody was told that this was there
            (left / SEGMENT_1).write_bytes(whole[:keep])
            assert total(Journal.read_only(left)) == [0, 1, 2, 3][: 4 if keep == len(whole) else 3]

    @pytest.mark.parametrize("gone", [SEGMENT_1, "all"])
    def test_a_journal_whose_files_are_gone_is_refused(self, tmp_path: Path, gone: str) -> None:
        write_numbers(tmp_path, 2)
        (tmp_path / SEGMENT_1).unlink()
        if gone == "all":
            (tmp_path / "lock").unlink()
        with pytest.raises(JournalError, match=f"{SEGMENT_1} is missing"):
            open_quick(tmp_path)

    def test_a_segment_that_was_begun_and_then_reported_as_failed_stays_readable(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Doubtful(disk.Disk):
            def replace(self, source: disk.Place, target: disk.Place) -> None:
                super().replace(source, target)
                raise OSError(errno.EIO, "no answer")

        write_numbers(tmp_path, 2)
        with open_quick(tmp_path) as journal:
            with monkeypatch.context() as patch:
                patch.setattr(disk, "current", Doubtful())
                with pytest.raises(JournalError, match="no answer"):
                    journal.rotate()
            with pytest.raises(JournalError, match="start again"):
                journal.append({"n": 2})
        assert total(reopen(tmp_path)) == [0, 1]

    def test_the_newest_segment_is_missed(self, tmp_path: Path) -> None:
        with open_quick(tmp_path) as journal:
            journal.append({"n": 0})
            journal.rotate()
            journal.append({"n": 1})
        (tmp_path / SEGMENT_2).unlink()
        with pytest.raises(JournalError, match=f"{SEGMENT_2} is missing"):
            open_quick(tmp_path)

    def test_an_earlier_segment_cut_between_records_is_refused(self, tmp_path: Path) -> None:
        write_numbers(tmp_path, 3)
        with open_quick(tmp_path) as journal:
            journal.rotate()
            journal.append({"n": 3})
        whole = (tmp_path / SEGMENT_1).read_bytes()
        for keep in record_ends(tmp_path / SEGMENT_1)[:-1]:
            for content in spoiled(whole, keep):
                (tmp_path / SEGMENT_1).write_bytes(content)
                with pytest.raises(JournalError, match=rf"{SEGMENT_1} is damaged at byte offset"):
                    open_quick(tmp_path)
        (tmp_path / SEGMENT_1).write_bytes(whole)
        assert total(reopen(tmp_path)) == [0, 1, 2, 3]

    def test_a_flipped_bit_in_the_mark_is_detected_or_harmless(self, tmp_path: Path) -> None:
        with open_quick(tmp_path) as journal:
            journal.append({"n": 0})
            journal.rotate().install({"numbers": [0]})
            journal.append({"n": 1})
        good = (tmp_path / NAME).read_bytes()
        for offset in (*range(25), *range(511, len(good))):
            flipped = bytearray(good)
            flipped[offset] ^= 1 << offset % 8
            (tmp_path / NAME).write_bytes(flipped)
            assert total(Journal.read_only(tmp_path)) == [0, 1]
        for content in (b"", good[:10], bytes(len(good)), bytes(4) + good[4:512] + bytes(24)):
            (tmp_path / NAME).write_bytes(content)
            with pytest.raises(JournalError, match=rf"{NAME} is damaged .*remove this one file"):
                open_quick(tmp_path)

    def test_without_a_mark_the_end_is_believed_and_a_warning_given(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        write_numbers(tmp_path, 2)
        (tmp_path / NAME).unlink()
        os.truncate(tmp_path / SEGMENT_1, record_ends(tmp_path / SEGMENT_1)[1])
        assert total(reopen(tmp_path)) == [0]
        assert f"{NAME} is missing" in caplog.text
        assert (tmp_path / NAME).exists()

    def test_a_mark_that_cannot_be_written_stops_nobody(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        write = disk.current.write

        def refuses_marks(handle: int, buffers: Sequence[Any], offset: int) -> int:
            if bytes(buffers[0][:4]) == b"SLKM":
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return write(handle, buffers, offset)

        with Journal.open(tmp_path) as journal:
            monkeypatch.setattr(disk.current, "write", refuses_marks)
            for n in range(3):
                journal.sync(journal.append({"n": n}))
        assert total(reopen(tmp_path)) == [0, 1, 2]
        assert caplog.text.count("could not be written") == 2  # once each time it is open

    def test_a_mark_costs_no_flush(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        flushes: list[int] = []
        sync_data = disk.current.sync_data

        def counted(handle: int) -> None:
            flushes.append(handle)
            sync_data(handle)

        with Journal.open(tmp_path) as journal:
            monkeypatch.setattr(disk.current, "sync_data", counted)
            for n in range(20):
                journal.sync(journal.append({"n": n}))
            assert len(flushes) == 20

    def test_a_rotation_that_fails_leaves_a_segment_that_goes_on(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with Journal.open(tmp_path) as journal:
            journal.append({"n": 0})
            with monkeypatch.context() as patch:

                def refused(source: Path, target: Path) -> None:
                    raise OSError(errno.EACCES, os.strerror(errno.EACCES))

                patch.setattr(disk.current, "replace", refused)
                with pytest.raises(JournalError, match="cannot start"):
                    journal.rotate()
            journal.sync(journal.append({"n": 1}))
            journal.rotate()
            journal.append({"n": 2})
        assert total(reopen(tmp_path)) == [0, 1, 2]


class TestVersions:
    @pytest.mark.parametrize("torn", [b"", b"torn", bytes(40)])
    @pytest.mark.parametrize("snapshot", [False, True])
    def test_a_journal_of_the_version_before_is_read_and_goes_on(
        self, tmp_path: Path, torn: bytes, snapshot: bool
    ) -> None:
        def file(kind: int, number: int, *headers: bytes) -> bytes:
            content = [struct.pack("<4sHHQ", b"SLKW", 2, kind, number)]
            for header in headers:
                lengths = struct.pack("<IQI", len(header), 3, zlib.crc32(header + b"xyz\xa5"))
                content += [lengths, struct.pack("<I", zlib.crc32(lengths)), header, b"xyz\xa5"]
            return b"".join(content)

        if snapshot:
            (tmp_path / SNAPSHOT_2).write_bytes(file(2, 2, b'{"numbers":[0]}'))
        else:
            (tmp_path / SEGMENT_1).write_bytes(file(1, 1, b'{"n":0}'))
        (tmp_path / SEGMENT_2).write_bytes(file(1, 2, b'{"n":1}') + torn)
        assert total(Journal.read_only(tmp_path)) == [0, 1]
        with Journal.open(tmp_path) as journal:
            assert (total(journal.recovered), journal.recovered.torn_bytes) == ([0, 1], len(torn))
            journal.append({"n": 2})
        assert (tmp_path / SEGMENT_2).read_bytes() == file(1, 2, b'{"n":1}')
        for _ in range(2):
            assert total(reopen(tmp_path)) == [0, 1, 2]
        with open_quick(tmp_path) as journal:
            journal.rotate().install({"numbers": [0, 1, 2]})
        assert total(reopen(tmp_path)) == [0, 1, 2]

    @pytest.mark.parametrize("name", [SEGMENT_2, SNAPSHOT_2])
    @pytest.mark.parametrize("kept_bytes", [6, None])
    @pytest.mark.parametrize(("version", "remedy"), [(1, "version that wrote it"), (4, "upgrade")])
    def test_another_format_is_refused_and_left_alone(
        self, tmp_path: Path, name: str, kept_bytes: int | None, version: int, remedy: str
    ) -> None:
        with open_quick(tmp_path) as journal:
            journal.rotate().install({"numbers": []})
            journal.append({"n": 0})
        content = bytearray((tmp_path / name).read_bytes())
        content[4:6] = version.to_bytes(2, "little")
        (tmp_path / name).write_bytes(content[:kept_bytes])
        before = files(tmp_path)
        says = f"{name} has format version {version}.*{remedy}"
        for read in (open_quick, Journal.read_only):
            with pytest.raises(JournalVersionError, match=says):
                read(tmp_path)
        assert files(tmp_path) == before

    def test_the_format_is_the_documented_one(self, tmp_path: Path) -> None:
        with open_quick(tmp_path) as journal:
            journal.append({"n": 1}, b"xyz")
        content = b'{"n":1}xyz\xa5'
        lengths = struct.pack("<IQI", 7, 3, zlib.crc32(content))
        opening = struct.pack("<4sHHQ", b"SLKW", 3, 1, 1)
        assert (tmp_path / SEGMENT_1).read_bytes() == b"".join(
            [
                opening,
                struct.pack("<I", zlib.crc32(opening)),
                lengths,
                struct.pack("<I", zlib.crc32(lengths)),
                content,
            ]
        )


HOLD = """
import sys
from slackwater.runtime.journal import Journal
journal = Journal.open(sys.argv[1])
journal.sync(journal.append({"n": 0}))
print("held", flush=True)
sys.stdin.read()
"""


class TestOwnership:
    def test_a_second_process_is_refused_until_the_first_is_killed(self, tmp_path: Path) -> None:
        with in_process(HOLD, tmp_path) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            with pytest.raises(JournalLockedError) as raised:
                Journal.open(tmp_path)
            for part in (str(tmp_path), str(holder.pid), "stop that one"):
                assert part in str(raised.value)
            assert total(Journal.read_only(tmp_path)) == [0]
            holder.send_signal(signal.SIGKILL)
            holder.wait()
            with Journal.open(tmp_path) as journal:
                assert total(journal.recovered) == [0]

    def test_the_same_process_is_refused_too_until_it_closes(self, tmp_path: Path) -> None:
        with open_quick(tmp_path), pytest.raises(JournalLockedError, match=str(os.getpid())):
            open_quick(tmp_path)
        open_quick(tmp_path).close()

    def test_a_failed_open_releases_the_lock(self, tmp_path: Path) -> None:
        write_numbers(tmp_path, 1)
        good = (tmp_path / SEGMENT_1).read_bytes()
        (tmp_path / SEGMENT_1).write_bytes(b"something else")
        with pytest.raises(JournalError, match="byte offset 0"):
            open_quick(tmp_path)
        (tmp_path / SEGMENT_1).write_bytes(good)
        assert total(reopen(tmp_path)) == [0]

    def test_a_directory_that_cannot_be_made_is_explained(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(JournalError, match=r"cannot open the journal in .*file"):
            Journal.open(tmp_path / "file")

    def test_foreign_files_are_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "notes.tmp").write_text("mine")
        (tmp_path / "segment-1.log").write_text("mine")
        write_numbers(tmp_path, 1)
        assert (tmp_path / "notes.tmp").read_text() == "mine"
        assert (tmp_path / "segment-1.log").read_text() == "mine"


class TestReadOnly:
    def test_reading_changes_nothing_even_with_a_torn_tail_and_leftovers(
        self, tmp_path: Path
    ) -> None:
        write_numbers(tmp_path, 2)
        with (tmp_path / SEGMENT_1).open("ab") as segment:
            segment.write(b"torn")
        (tmp_path / f"{SNAPSHOT_2}.tmp").write_bytes(b"half")
        before = files(tmp_path)
        recovered = Journal.read_only(tmp_path)
        assert (total(recovered), recovered.torn_bytes) == ([0, 1], 4)
        assert files(tmp_path) == before

    def test_what_is_no_journal_is_said_so(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        for directory in (tmp_path, tmp_path / "nowhere", tmp_path / "file"):
            with pytest.raises(JournalError, match="name the directory of one"):
                Journal.read_only(directory)
        assert not (tmp_path / "nowhere").exists()

    def test_files_replaced_while_being_read_are_read_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with open_quick(tmp_path) as journal:
            journal.append({"n": 0})
            read = disk.current.read
            installs = iter([[0]])

            def racing(path: Path) -> bytes:
                for numbers in installs:
                    journal.rotate().install({"numbers": numbers})
                return read(path)

            monkeypatch.setattr(disk.current, "read", racing)
            assert total(Journal.read_only(tmp_path)) == [0]


def photographs(directory: Path, album: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Copy the directory before and after each change of a file's name or bytes from now on."""
    taken: list[Path] = []

    def observed(change: Callable[..., Any]) -> Callable[..., Any]:
        def changing(*arguments: Any, **options: Any) -> Any:
            taken.append(Path(shutil.copytree(directory, album / f"{len(taken):04d}")))
            result = change(*arguments, **options)
            taken.append(Path(shutil.copytree(directory, album / f"{len(taken):04d}")))
            return result

        return changing

    for change in ("replace", "remove", "write"):
        monkeypatch.setattr(disk.current, change, observed(getattr(disk.current, change)))
    return taken


class TestCrashes:
    def test_every_state_on_the_way_through_rotations_and_snapshots_is_recoverable(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        journal = Journal.open(tmp_path / "state")
        (tmp_path / "album").mkdir()
        numbers: list[int] = []
        for turn in range(3):
            numbers.append(len(numbers))
            journal.append({"n": numbers[-1]})
            during = len(numbers)
            with monkeypatch.context() as patch:
                taken = photographs(tmp_path / "state", tmp_path / f"album-{turn}", patch)
                journal.rotate()  # never installed
                rotation = journal.rotate()
                journal.append({"n": during})
                rotation.install({"numbers": numbers}, b"state")
            assert len(taken) >= 14
            for state in taken:
                (state / "segment-000000000099.log.tmp").write_bytes(b"SLKW half a file")
                assert total(reopen(state)) in (numbers, [*numbers, during])
                assert not list(state.glob("*.tmp"))
            numbers.append(during)
        journal.close()
        assert total(reopen(tmp_path / "state")) == numbers

    def test_a_snapshot_never_installed_leaves_older_snapshot_and_all_segments(
        self, tmp_path: Path
    ) -> None:
        with open_quick(tmp_path) as journal:
            journal.append({"n": 0})
            journal.rotate().install({"numbers": [0]})
            for n in range(1, 4):
                journal.append({"n": n})
                journal.rotate()
            assert journal.records_since_snapshot == 3
        recovered = reopen(tmp_path)
        assert recovered.snapshot == Record({"numbers": [0]})
        assert total(recovered) == [0, 1, 2, 3]

    def test_what_was_synced_survives_kill_at_any_moment(self, tmp_path: Path) -> None:
        writer = """
import sys
from slackwater.runtime.journal import Journal
with Journal.open(sys.argv[1], durable=False) as journal:
    found = journal.recovered
    numbers = (found.snapshot.header["numbers"] if found.snapshot else 0) + len(found.records)
    while True:
        numbers += 1
        journal.sync(journal.append({"n": numbers}, bytes(numbers % 700)))
        print(numbers, flush=True)
        if numbers % 7 == 0:
            journal.rotate().install({"numbers": numbers}, bytes(2000))
"""
        dice = random.Random(7)
        least = 0
        for _ in range(8):
            with in_process(writer, tmp_path) as process:
                assert process.stdout is not None
                for _ in range(dice.randrange(1, 60)):
                    least = max(least, int(process.stdout.readline()))
                process.send_signal(signal.SIGKILL)
                told = process.stdout.read().split("\n")[:-1]
                least = max([least, *map(int, told)])
            found = Journal.read_only(tmp_path)
            known = found.snapshot.header["numbers"] if found.snapshot else 0
            after = [record.header["n"] for record in found.records]
            assert after == list(range(known + 1, known + 1 + len(after)))
            assert known + len(after) in (least, least + 1)
            least = known + len(after)


class TestFailures:
    @pytest.fixture
    def full_disk(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """Let every file take only the first bytes of a write while the list is not empty."""
        room: list[int] = []
        pwritev = os.pwritev

        def short(fd: int, buffers: list[Any], offset: int) -> int:
            if not room:
                return pwritev(fd, buffers, offset)
            left = room[0]
            if left == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            room[0] = 0
            return pwritev(fd, [b"".join(buffers)[:left]], offset)

        monkeypatch.setattr(os, "pwritev", short)
        return room

    @pytest.mark.parametrize("left", [0, 1, 19, 21, 40])
    def test_a_record_the_disk_did_not_take_is_taken_back(
        self, tmp_path: Path, full_disk: list[int], left: int
    ) -> None:
        with open_quick(tmp_path) as journal:
            journal.append({"n": 0})
            before = (tmp_path / SEGMENT_1).read_bytes()
            full_disk.append(left)
            with pytest.raises(JournalError, match=r"No space left.*free space"):
                journal.append({"n": 1}, bytes(100))
            assert (tmp_path / SEGMENT_1).read_bytes() == before
            full_disk.clear()
            journal.append({"n": 2})
            assert journal.records_since_snapshot == 2
        recovered = reopen(tmp_path)
        assert (total(recovered), recovered.torn_bytes) == ([0, 2], 0)

    def test_a_record_that_cannot_be_taken_back_fails_the_journal_for_good(
        self, tmp_path: Path, full_disk: list[int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        journal = open_quick(tmp_path)
        journal.append({"n": 0})
        full_disk.append(30)

        def broken(fd: int, length: int) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        with monkeypatch.context() as patch:
            patch.setattr(os, "ftruncate", broken)
            with pytest.raises(JournalError):
                journal.append({"n": 1}, bytes(100))
        full_disk.clear()
        refused: list[Callable[[], object]] = [
            lambda: journal.append({"n": 2}),
            lambda: journal.sync(0),
            journal.rotate,
        ]
        for call in refused:
            with pytest.raises(JournalError, match="unfinished record"):
                call()
        journal.close()
        recovered = reopen(tmp_path)
        assert total(recovered) == [0]
        assert recovered.torn_bytes == 30

    def test_short_writes_are_completed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pwritev = os.pwritev

        def trickle(fd: int, buffers: list[Any], offset: int) -> int:
            return pwritev(fd, [b"".join(buffers)[:7]], offset)

        monkeypatch.setattr(os, "pwritev", trickle)
        with open_quick(tmp_path) as journal:
            journal.append({"n": 0}, bytes(range(50)))
        assert reopen(tmp_path).records == [Record({"n": 0}, bytes(range(50)))]

    def test_an_interrupted_append_is_taken_back(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pwritev = os.pwritev

        def interrupted(fd: int, buffers: list[Any], offset: int) -> int:
            pwritev(fd, buffers, offset)
            raise KeyboardInterrupt

        with open_quick(tmp_path) as journal:
            with monkeypatch.context() as patch:
                patch.setattr(os, "pwritev", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    journal.append({"n": 0}, bytes(500))
            journal.append({"n": 1})
        recovered = reopen(tmp_path)
        assert (total(recovered), recovered.torn_bytes) == ([1], 0)

    def test_a_failed_flush_fails_the_journal_for_good(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        journal = Journal.open(tmp_path)
        position = journal.append({"n": 0})

        def broken(fd: int) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        with monkeypatch.context() as patch:
            patch.setattr(journal_module, "flush", broken)
            with pytest.raises(JournalError, match="could not be flushed"):
                journal.sync(position)
        for call in (lambda: journal.sync(position), lambda: journal.append({"n": 1})):
            with pytest.raises(JournalError, match="could not be flushed"):
                call()
        journal.close()

    def test_a_snapshot_the_disk_did_not_take_loses_nothing_and_may_be_tried_again(
        self, tmp_path: Path, full_disk: list[int]
    ) -> None:
        with open_quick(tmp_path) as journal:
            journal.append({"n": 0})
            rotation = journal.rotate()
            journal.append({"n": 1})
            full_disk.append(25)
            with pytest.raises(JournalError, match=r"cannot install .*No space left"):
                rotation.install({"numbers": [0]}, bytes(100))
            full_disk.clear()
            assert sorted(files(tmp_path)) == [SEGMENT_1, SEGMENT_2]
            rotation.install({"numbers": [0]}, bytes(100))
            assert sorted(files(tmp_path)) == [SEGMENT_2, SNAPSHOT_2]
        assert total(reopen(tmp_path)) == [0, 1]

    def test_a_segment_that_cannot_be_started_leaves_the_old_one_in_use(
        self, tmp_path: Path, full_disk: list[int]
    ) -> None:
        with open_quick(tmp_path) as journal:
            full_disk.append(3)
            with pytest.raises(JournalError, match=r"cannot start .*No space left"):
                journal.rotate()
            full_disk.clear()
            journal.append({"n": 0})
        assert sorted(files(tmp_path)) == [SEGMENT_1]
        assert total(reopen(tmp_path)) == [0]


class TestSnapshots:
    def test_a_snapshot_replaces_what_came_before_the_rotation_and_nothing_else(
        self, tmp_path: Path
    ) -> None:
        with open_quick(tmp_path) as journal:
            journal.append({"n": 0})
            rotation = journal.rotate()
            position = journal.append({"n": 1})
            rotation.install({"numbers": [0]}, b"state")
            assert journal.records_since_snapshot == 1
            assert 0 < journal.bytes_since_snapshot < position
        recovered = reopen(tmp_path)
        assert recovered.snapshot == Record({"numbers": [0]}, b"state")
        assert headers(recovered) == [{"n": 1}]

    def test_an_older_rotation_cannot_undo_a_newer_snapshot(self, tmp_path: Path) -> None:
        with open_quick(tmp_path) as journal:
            journal.append({"n": 0})
            older = journal.rotate()
            journal.append({"n": 1})
            newer = journal.rotate()
            newer.install({"numbers": [0, 1]})
            older.install({"numbers": [0]})
            newer.install({"numbers": ["twice"]})
            assert journal.records_since_snapshot == 0
        assert total(reopen(tmp_path)) == [0, 1]

    def test_what_was_recovered_is_let_go_once_a_snapshot_replaces_it(self, tmp_path: Path) -> None:
        write_numbers(tmp_path, 3)
        with open_quick(tmp_path) as journal:
            rotation = journal.rotate()
            assert total(journal.recovered) == [0, 1, 2]
            rotation.install({"numbers": [0, 1, 2]})
            assert journal.recovered == Recovered()

    def test_regular_snapshots_bound_files_and_bytes_over_100_000_records(
        self, tmp_path: Path
    ) -> None:
        most_files = most_bytes = 0
        with open_quick(tmp_path) as journal:
            for n in range(1, 100_001):
                journal.append({"n": n}, b"12345678")
                if journal.bytes_since_snapshot > 100_000:
                    before = files(tmp_path)
                    most_files = max(most_files, len(before))
                    most_bytes = max(most_bytes, sum(map(len, before.values())))
                    journal.rotate().install({"numbers": [n]}, bytes(1_000))
        assert most_files == 2
        assert most_bytes < 102_000
        recovered = reopen(tmp_path)
        assert total(recovered) == list(range(total(recovered)[0], 100_001))


class TestThreads:
    def test_waiting_syncs_share_one_flush(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        flushes: list[int] = []
        entered, released = threading.Event(), threading.Event()
        flush = segments_module.flush

        def counted(fd: int) -> None:
            flushes.append(fd)
            entered.set()
            released.wait()
            flush(fd)

        with Journal.open(tmp_path) as journal:
            monkeypatch.setattr(journal_module, "flush", counted)
            first = threading.Thread(target=journal.sync, args=[journal.append({"n": 0})])
            first.start()
            entered.wait()
            # Appends go on during a flush, and what they wrote is not part of it.
            positions = [journal.append({"n": n}) for n in range(1, 9)]
            others = [threading.Thread(target=journal.sync, args=[p]) for p in positions]
            for thread in others:
                thread.start()
            released.set()
            for thread in (first, *others):
                thread.join()
            assert len(flushes) == 2
            journal.sync(positions[-1])
            assert len(flushes) == 2

    def test_sync_does_not_flush_without_durability(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def never(*_: object) -> None:
            raise AssertionError("flushed")

        monkeypatch.setattr(os, "fsync", never)
        monkeypatch.setattr(os, "fdatasync", never)
        with open_quick(tmp_path) as journal:
            journal.sync(journal.append({"n": 0}))
            journal.rotate().install({"numbers": [0]})
        reopen(tmp_path)

    def test_records_after_a_rotation_wait_for_the_name_of_their_segment(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        flushed: list[Path] = []
        with Journal.open(tmp_path) as journal:
            journal.rotate()
            monkeypatch.setattr(journal_module, "flush_path", flushed.append)
            journal.sync(journal.append({"n": 0}))
            journal.sync(journal.append({"n": 1}))
        assert flushed == [tmp_path]

    @pytest.mark.parametrize("durable", [True, False])
    def test_appends_syncs_rotations_and_snapshots_from_many_threads_lose_nothing(
        self, tmp_path: Path, durable: bool
    ) -> None:
        per_writer, writers = 150, 4
        state: list[str] = []
        state_lock = threading.Lock()
        errors: list[BaseException] = []
        done = threading.Event()

        def guarded(work: Callable[[], None]) -> threading.Thread:
            def run() -> None:
                try:
                    work()
                except BaseException as error:
                    errors.append(error)

            return threading.Thread(target=run)

        with Journal.open(tmp_path, durable=durable) as journal:

            def write(writer: int) -> None:
                for n in range(per_writer):
                    with state_lock:
                        position = journal.append({"n": f"{writer}:{n}"}, os.urandom(n))
                        state.append(f"{writer}:{n}")
                    if n % 3 == 0:
                        journal.sync(position)

            def compact() -> None:
                while not done.is_set():
                    with state_lock:
                        rotation, captured = journal.rotate(), list(state)
                    rotation.install({"numbers": captured})

            def watch() -> None:
                while not done.is_set():
                    with suppress(JournalError):  # files may be replaced faster than they are read
                        seen = list(map(str, total(Journal.read_only(tmp_path))))
                        with state_lock:
                            assert seen == state[: len(seen)]

            threads = [guarded(partial(write, writer)) for writer in range(writers)]
            background = [guarded(compact), guarded(compact), guarded(watch)]
            for thread in threads + background:
                thread.start()
            for thread in threads:
                thread.join()
            done.set()
            for thread in background:
                thread.join()
        assert not errors
        assert len(state) == per_writer * writers
        assert total(reopen(tmp_path)) == state
        assert len(files(tmp_path)) <= 3
