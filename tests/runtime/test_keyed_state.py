from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import slackwater as sw
from slackwater.runtime.keyed_state import (
    SHOWN,
    held_windows,
    may_change,
    next_end_ms,
    settled_bytes,
    unended,
)
from slackwater.spark.keyed_rows import FIRST, LAST

SESSIONS = sw.sessions("20 s")


def held(*rows: tuple[int, int, bool]) -> pa.Table:
    """Hold rows of (first second, last second, shown)."""
    return pa.table(
        {
            "user": ["ann"] * len(rows),
            FIRST: [first * 1_000_000 for first, _, _ in rows],
            LAST: [last * 1_000_000 for _, last, _ in rows],
            SHOWN: [shown for _, _, shown in rows],
        }
    )


def test_without_state_the_next_session_ends_a_gap_after_the_watermark() -> None:
    assert next_end_ms(SESSIONS, None, 5_000) == 25_001


def test_the_first_session_to_end_tells_when_to_look_next() -> None:
    rows = held((0, 10, False), (2, 40, False), (0, 1, True))
    assert next_end_ms(SESSIONS, rows, 22_000) == 31_000  # just past 30, rounded up by patience
    assert next_end_ms(SESSIONS, rows, 31_000) == 51_001  # an unread event may end before 60


def test_the_next_look_is_always_after_the_watermark() -> None:
    rows = held((0, 10, False))
    for watermark_ms in range(29_000, 33_000, 7):
        assert next_end_ms(SESSIONS, rows, watermark_ms) > watermark_ms
        assert next_end_ms(sw.counted(3), rows, watermark_ms) > watermark_ms


@pytest.mark.parametrize(
    "keys",
    [
        ["ann", "bob", None],
        [1, 2, None],
        [True, False, None],
        [1.5, float("nan"), None],
        [Decimal("1.5"), Decimal("2.5"), None],
        [date(2024, 1, 1), date(2024, 1, 2), None],
        [b"a", b"b", None],
    ],
)
def test_sessions_of_keys_with_new_events_are_looked_at_whatever_the_key(keys: list[Any]) -> None:
    rows = held((0, 10, False), (0, 10, False), (0, 10, False)).set_column(
        0, "user", pa.array(keys)
    )
    for place in range(3):
        arrived = rows.select(["user"]).slice(place, 1)
        look = may_change(SESSIONS, rows, ["user"], arrived, (0, 0, 0))
        assert look[place]
        assert look.sum() == (3 if isinstance(keys[0], float) else 1)


def test_sessions_that_end_or_are_settled_are_looked_at_without_events() -> None:
    rows = held((0, 10, False), (0, 10, True), (0, 40, False))
    until_us = 31_000_000
    look = may_change(SESSIONS, rows, ["user"], None, (until_us, until_us, 0))
    assert look.tolist() == [True, False, False]
    look = may_change(SESSIONS, rows, ["user"], None, (until_us, until_us, until_us))
    assert look.tolist() == [True, True, False]
    look = may_change(SESSIONS, rows, ["user"], None, (30_000_000, until_us, 0))
    assert look.tolist() == [True, True, False]  # late events had opened the second one again


def test_sessions_are_listed_one_by_one_and_counted_windows_by_key() -> None:
    rows = held((0, 10, True), (40, 50, False))
    assert held_windows(SESSIONS, rows, ["user"]) == [(0, 30_000, 1, 1), (40_000, 70_000, 0, 1)]
    assert held_windows(sw.counted(3), rows, ["user"]) == [(0, 50_000, 1, 2)]
    assert (unended(SESSIONS, rows, ["user"]), unended(sw.counted(3), rows, ["user"])) == (1, 1)
    assert held_windows(SESSIONS, None, ["user"]) == []
    assert unended(SESSIONS, None, ["user"]) == 0


def test_only_what_late_events_cannot_reach_is_freed() -> None:
    rows = held((0, 10, True), (40, 50, False))
    assert settled_bytes(SESSIONS, rows, lateness_ms=5_000, deadline_ms=35_000) == 0
    assert settled_bytes(SESSIONS, rows, lateness_ms=5_000, deadline_ms=36_000) == rows.nbytes // 2
