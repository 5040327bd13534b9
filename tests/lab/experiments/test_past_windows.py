"""Memory over past windows: how systems are ended, and what is said of them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from past_window_systems import START_MS, WINDOW_S, Load, _window_rows
from past_windows import Warden, _cause, summary, table
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

_MB = 1024 * 1024


def _child(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _result(system: str, held: list[float], failure: str | None = None) -> dict[str, Any]:
    points = [
        {
            "past_windows": at,
            "python_mb": mb - 60.0,
            "heap_mb": 60.0,
            "state_mb": None,
            "events": at * 10,
            "seconds": at / 2,
        }
        for at, mb in enumerate(held, start=1)
    ]
    return {"system": system, "reached": len(held), "failure": failure, "points": points}


def test_process_that_holds_too_much_is_ended() -> None:
    with _child("kept = b'x' * (300 << 20); input()") as process:
        warden = Warden(process, 100 * _MB, seconds=60)
        assert process.wait() < 0
        warden.close()
    assert warden.reason is not None
    assert warden.reason.endswith("above 100 MB")


def test_process_within_its_limit_ends_by_itself() -> None:
    with _child("input()") as process:
        warden = Warden(process, 2_000 * _MB, seconds=60)
        process.communicate("done\n")
        warden.close()
    assert process.returncode == 0
    assert warden.reason is None


def test_table_says_where_a_system_had_failed() -> None:
    results = [_result("tiered", [100.0] * 5), _result("stock", [150.0, 200.0], "full")]
    assert table(results).splitlines() == [
        "| past windows | tiered | stock |",
        "|---|---|---|",
        "| 1 | 100 MB | 150 MB |",
        "| 5 | 100 MB | failed |",
    ]


def test_summary_compares_with_one_window() -> None:
    said = summary(_result("memory", [100.0, 150.0], "full"))
    assert said == (
        "memory: 2 past windows; held 100 MB with one, 150 MB at most (1.50 times), 20 events/s; "
        "failed: full"
    )


def test_cause_is_memory_where_anything_says_so() -> None:
    said = "Terminating due to java.lang.OutOfMemoryError: Java heap space\nConnectionRefusedError"
    assert _cause(said).endswith("OutOfMemoryError: Java heap space")
    assert _cause("first\nlast") == "last"
    assert _cause("") == "ended without a word"


@pytest.mark.spark
def test_stock_gets_each_window_whole(spark: SparkSession) -> None:
    load = Load(windows=4, rows=50, payload=256)
    rows = _window_rows(spark, load, 3)
    times = rows.agg(
        F.count("*"),
        F.min(F.unix_millis("event_time")),
        F.max(F.unix_millis("event_time")),
        F.min(F.length("payload")),
    ).first()
    assert times is not None
    count, first_ms, last_ms, length = times
    start_ms = START_MS + 3 * WINDOW_S * 1_000
    assert start_ms % (WINDOW_S * 1_000) == 0
    assert (count, length) == (50, 256)
    assert start_ms <= first_ms <= last_ms < start_ms + WINDOW_S * 1_000
