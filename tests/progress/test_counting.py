"""Windows of so many events, whatever order the events come in."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st

from slackwater.progress.counting import CountedRows, close_counted
from slackwater.progress.sessions import Horizon

GAP = 9
LONG_AGO = -(2**62)
Event = tuple[int, int, int]  # key, time, offset
Window = tuple[int, int, tuple[int, ...]]  # key, start, offsets of the events


@dataclass(frozen=True)
class Row:
    """Hold one event, or a count of those done with."""

    key: int
    first: int
    last: int
    events: int
    offset: int
    prefix: bool = False
    shown: bool = False


def windows_of(events: list[Event], size: int, slide: int) -> Counter[Window]:
    """Count off the events of each key, in plain loops."""
    runs: dict[int, list[list[tuple[int, int]]]] = {}
    for key, time, offset in sorted(events):
        mine = runs.setdefault(key, [])
        if not mine or time - mine[-1][-1][0] > GAP:
            mine.append([])
        mine[-1].append((time, offset))
    found: Counter[Window] = Counter()
    for key, mine in runs.items():
        for run in mine:
            for begin in range(0, len(run), slide):
                members = run[begin : begin + size]
                found[key, members[0][0], tuple(offset for _, offset in members)] += 1
    return found


@dataclass
class Follower:
    """Keep events as the runtime does, and what a reader sees: the newest rows of each start."""

    size: int
    slide: int
    rows: list[Row] = field(default_factory=list)
    seen: dict[tuple[int, int], list[tuple[int, ...]]] = field(default_factory=dict)
    late: int = 0
    retractions: int = 0

    def step(self, events: list[Event], before: int, after: int, settled: int) -> None:
        rows = self.rows + [Row(key, time, time, 1, offset) for key, time, offset in events]

        def column(name: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
            return np.array([getattr(row, name) for row in rows], dtype=np.int64)

        closing = close_counted(
            CountedRows(
                group=column("key"),
                first_us=column("first"),
                last_us=column("last"),
                events=column("events"),
                is_prefix=column("prefix") > 0,
                ties=(column("offset"),),
                arrived=np.arange(len(rows)) >= len(self.rows),
                shown=column("shown") > 0,
            ),
            Horizon(*(np.full(len(rows), time) for time in (before, after, settled))),
            gap_us=GAP,
            size=self.size,
            slide=self.slide,
        )
        for row in closing.retracted:
            del self.seen[rows[row].key, rows[row].first]
            self.retractions += 1
        fresh: dict[tuple[int, int], list[tuple[int, ...]]] = {}
        for window in range(len(closing.start_us)):
            members = [rows[row] for row in closing.members[closing.window == window]]
            assert not any(member.prefix for member in members)
            assert closing.last_us[window] == members[-1].last
            start = (members[0].key, int(closing.start_us[window]))
            assert start[1] == members[0].first
            fresh.setdefault(start, []).append(tuple(member.offset for member in members))
            self.late += int(closing.late[window])
        self.seen |= fresh
        self.rows = [
            Row(row.key, row.first, row.last, row.events, row.offset, row.prefix, bool(shown))
            for row, shown, dropped in zip(rows, closing.shown, closing.dropped, strict=True)
            if not dropped
        ]
        self.rows += [
            Row(rows[row].key, int(first), int(last), int(count), 0, prefix=True)
            for row, count, first, last in zip(
                closing.prefix_row,
                closing.prefix_events,
                closing.prefix_first_us,
                closing.prefix_last_us,
                strict=True,
            )
        ]

    def view(self) -> Counter[Window]:
        return Counter(
            (key, start, members) for (key, start), found in self.seen.items() for members in found
        )


@settings(max_examples=500)
@given(
    times=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 40)), max_size=40),
    cuts=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 12)), max_size=12),
    lateness=st.integers(0, 20),
    size=st.integers(1, 5),
    slide=st.integers(1, 5),
)
def test_what_is_shown_last_is_one_batch_over_all_that_was_taken_in(
    times: list[tuple[int, int]],
    cuts: list[tuple[int, int]],
    lateness: int,
    size: int,
    slide: int,
) -> None:
    slide = min(size, slide)
    follower, taken_in, now, settled = Follower(size, slide), list[Event](), 0, LONG_AGO
    rest = [(key, time, offset) for offset, (key, time) in enumerate(times)]
    for length, progress in [*cuts, (len(times), 0), (0, 1_000)]:
        batch, rest = rest[:length], rest[length:]
        batch = [each for each in batch if each[1] >= settled]
        taken_in += batch
        before, now = now, now + progress
        settled = max(settled, now - lateness)
        follower.step(batch, before, now, settled)
    assert follower.view() == windows_of(taken_in, size, slide)
    assert follower.rows == []  # keys that never come back are forgotten
    event(f"retractions: {follower.retractions > 0}, late windows: {follower.late > 0}")


def test_a_window_closes_once_the_watermark_is_past_its_last_event() -> None:
    follower = Follower(2, 2)
    follower.step([(0, 1, 0), (0, 3, 1)], LONG_AGO, 3, LONG_AGO)
    assert follower.seen == {}  # another event of time 3 may come, from a lower partition
    follower.step([], 3, 4, LONG_AGO)
    assert follower.seen == {(0, 1): [(0, 1)]}


def test_a_late_event_moves_all_behind_it() -> None:
    """Two events a window:  1 3 | 5 7   then 2 comes late:  1 2 | 3 5 | 7."""
    follower = Follower(2, 2)
    follower.step([(0, 1, 0), (0, 3, 1), (0, 5, 2), (0, 7, 3)], LONG_AGO, 8, LONG_AGO)
    assert follower.seen == {(0, 1): [(0, 1)], (0, 5): [(2, 3)]}
    follower.step([(0, 2, 4)], 8, 8, LONG_AGO)
    assert follower.seen == {(0, 1): [(0, 4)], (0, 3): [(1, 2)]}
    assert (follower.retractions, follower.late) == (1, 2)


def test_windows_that_begin_at_the_same_instant_are_shown_together() -> None:
    follower = Follower(2, 2)
    follower.step([(0, 1, 0), (0, 1, 1), (0, 1, 2)], LONG_AGO, 2, LONG_AGO)
    assert follower.seen == {(0, 1): [(0, 1)]}
    follower.step([(0, 4, 3)], 2, 5, LONG_AGO)
    assert follower.seen == {(0, 1): [(0, 1), (2, 3)]}


def test_a_key_that_pauses_begins_anew_with_what_it_has_shown() -> None:
    follower = Follower(3, 3)
    follower.step([(0, 1, 0), (0, 2, 1)], LONG_AGO, 30, LONG_AGO)
    assert follower.seen == {(0, 1): [(0, 1)]}  # 2 + 9 is past: it is as full as it will be
    follower.step([(0, 30, 2), (0, 31, 3), (0, 32, 4)], 30, 33, LONG_AGO)
    assert follower.seen[0, 30] == [(2, 3, 4)]


def test_continuous_traffic_keeps_only_what_late_events_may_still_change() -> None:
    follower = Follower(3, 3)
    for time in range(300):
        follower.step([(0, time, time)], time - 1, time, time - 5)
    assert len(follower.rows) <= 10
    assert sum(row.events for row in follower.rows) == 300
