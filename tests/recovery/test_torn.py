"""A journal cut off at any byte of its last record is the journal without that record."""

from __future__ import annotations

import os
import shutil
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import slackwater as sw
from slackwater.app.outputs import Output
from slackwater.app.stream import App
from slackwater.runtime import ledger as ledgers
from slackwater.runtime.durable_mark import NAME
from slackwater.runtime.journal import Journal
from slackwater.runtime.ledger import Ledger
from slackwater.runtime.runtime import Runtime
from slackwater.spark.sinks.pane_tables import IDENTITY
from slackwater.spark.sinks.parquet import read_panes
from slackwater.testing import ManualClock, Script, assert_same_panes, batch_panes, scripted

pytestmark = pytest.mark.spark

SCHEMA = "ts timestamp, k string, v double"
FILE_HEADER_BYTES, RECORD_PREFIX = 20, struct.Struct("<IQII")
START_MS = 1_704_067_200_000
MALFORMED = 2


def events() -> list[tuple[str, str | None, float]]:
    """List events with some disorder: every fifth is four seconds behind."""
    found = []
    for number in range(40):
        second = number - 4 if number % 5 == 4 else number
        found.append((f"2024-01-01 00:00:{second:02d}", (None, "a", "b")[number % 3], number / 8))
    return found


def script(until: int, *, ended: bool) -> Script:
    written = scripted(SCHEMA, event_time="ts", watermark=sw.bounded("1 s"))
    for number, (ts, k, v) in enumerate(events()[:until]):
        written.add(ts=ts, k=k, v=v, arrives=START_MS + number * 1_000)
        if number in (7, 13):
            written.add_line("{broken")
    return written.end() if ended else written


def described(directory: Path) -> tuple[App, Output]:
    app = App("torn")
    windows = app.source("events").window(sw.sliding("6 s", "4 s"), by="k")
    result = windows.aggregate(n=sw.count(), total=sw.sum("v"), spread=sw.variance("v"))
    return app, result.to(sw.parquet(directory / "out"), lateness="5 s")


def run(spark: SparkSession, directory: Path, *, until: int, ended: bool) -> Output:
    app, output = described(directory)
    clock = ManualClock(START_MS)
    with Runtime(spark, journal=directory / "state", clock=clock, slots=1) as runtime:
        for name in ("one", "two"):
            runtime.deploy(app, name, events=script(until, ended=ended))
        if ended:
            runtime.run()
        else:  # in two parts, so that dead letters are filed in between
            runtime.run(seconds=18)
            runtime.run(seconds=until - 18)
    return output


def content(directory: Path) -> dict[str, Any]:
    """Read what a journal says, as plain values."""
    ledger = Ledger(directory, durable=False)
    try:
        found = ledger.content
        return {
            "queries": {
                name: {
                    **{key: getattr(state, key) for key in ("number", "positions", "watermarks")},
                    **{key: getattr(state, key) for key in ("panes", "gone_until_ms", "pending")},
                    **{key: getattr(state, key) for key in ("counters", "quarantined")},
                    "rows": {
                        start: [row for chunk in held.chunks for row in chunk.to_pylist()]
                        for start, held in state.slices.items()
                    },
                }
                for name, state in found.queries.items()
            },
            "duties": dict(found.duties),
            "batches": dict(found.batches),
            "next": (found.next_query, found.next_step, found.next_batch),
        }
    finally:
        ledger.close()


def last_segment(directory: Path) -> Path:
    return max((directory / "journal").glob("segment-*.log"))


def record_ends(segment: Path) -> list[int]:
    """Find where each record of a segment ends, the file's header counted as the first."""
    data, ends = segment.read_bytes(), [FILE_HEADER_BYTES]
    while ends[-1] < len(data):
        header, payload, _, _ = RECORD_PREFIX.unpack_from(data, ends[-1])
        ends.append(ends[-1] + RECORD_PREFIX.size + header + payload + 1)
    return ends


def last_kinds(directory: Path) -> list[str]:
    """Read what kinds of records the last two are."""
    journal = Journal.open(directory / "journal", durable=False)
    with journal:
        return [record.header["kind"] for record in journal.recovered.records[-2:]]


def copied(state: Path, to: Path, cut_at: int) -> Path:
    """Copy a state directory, with its last segment cut off, and nothing to say it was longer."""
    shutil.copytree(state, to)
    (to / "journal" / NAME).unlink()
    os.truncate(last_segment(to), cut_at)
    return to


@pytest.fixture(scope="module", params=[10_000, 9], ids=["records", "snapshot"])
def stopped(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Path:
    """Run until the middle of the input, with windows open; with a snapshot or without one."""
    directory = tmp_path_factory.mktemp("torn")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledgers, "SNAPSHOT_RECORDS", request.param)
        run(spark, directory, until=26, ended=False)
    snapshots = list((directory / "state" / "journal").glob("snapshot-*"))
    assert bool(snapshots) == (request.param < 100)
    assert last_kinds(directory / "state") == ["plan", "commit"]
    return directory


def test_a_record_cut_anywhere_is_as_if_it_had_not_been_written(
    stopped: Path, tmp_path: Path
) -> None:
    ends = record_ends(last_segment(stopped / "state"))
    for number in range(max(1, len(ends) - 3), len(ends)):
        first, end = ends[number - 1], ends[number]
        before = content(copied(stopped / "state", tmp_path / f"{number} without", first))
        whole = content(copied(stopped / "state", tmp_path / f"{number} whole", end))
        assert before != whole
        torn = copied(stopped / "state", tmp_path / f"{number} torn", end)
        data = last_segment(torn).read_bytes()
        # Every byte of the beginning and the end, some between: all alike to the reader.
        for cut_at in sorted({*range(first, end, 7), *range(first, end)[:80], end - 2, end - 1}):
            last_segment(torn).write_bytes(data[:cut_at])
            (torn / "journal" / NAME).unlink(missing_ok=True)
            assert content(torn) == before
        last_segment(torn).write_bytes(data)
        assert content(torn) == whole


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99, 1.0])
def test_a_run_goes_on_from_a_torn_journal_to_the_same_end(
    spark: SparkSession, stopped: Path, tmp_path: Path, share: float
) -> None:
    directory = tmp_path / "copy"
    shutil.copytree(stopped, directory)
    (directory / "state" / "journal" / NAME).unlink()
    segment = last_segment(directory / "state")
    first, end = record_ends(segment)[-2:]
    os.truncate(segment, first + round((end - first) * share))

    output = run(spark, directory, until=40, ended=True)
    text = spark.createDataFrame(events(), "ts string, k string, v double")
    rows = text.selectExpr("CAST(ts AS TIMESTAMP) AS ts", "k", "v")
    batches = [
        batch_panes(output, {"events": rows}, event_time="ts", query=query)
        for query in ("one", "two")
    ]
    panes = read_panes(directory / "out")
    assert_same_panes(panes, batches[0].union(batches[1]))
    groups = Counter(tuple(row[c] for c in (*IDENTITY, "k")) for row in panes.to_pylist())
    assert set(groups.values()) == {1}
    with Runtime(spark, journal=directory / "state") as runtime:
        letters = Counter(row["query"] for row in runtime.dead_letters.read().to_pylist())
    assert letters == {"one": MALFORMED, "two": MALFORMED}
