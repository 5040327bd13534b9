"""Sessions, whatever order their events come in, and however often they are looked at."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.progress.sessions import Horizon, close_sessions, cut_sessions

GAP = 4
LONG_AGO = -(2**62)
Event = tuple[int, int]  # key, time
EVENTS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 40)), max_size=30)


def sessions_of(events: list[Event]) -> dict[tuple[int, int], tuple[int, int]]:
    """Find sessions one event at a time: (key, first) -> (last, events)."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    open_ones: dict[int, int] = {}  # key -> start
    for key, time in sorted(events):
        start = open_ones.get(key)
        if start is None or time - found[key, start][0] > GAP:
            start = open_ones[key] = time
        _, count = found.get((key, start), (0, 0))
        found[key, start] = (time, count + 1)
    return found


def ints(values: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


@dataclass
class Follower:
    """Keep sessions as the runtime does, one row each, and what a reader sees of them."""

    rows: list[tuple[int, int, int, int, bool]] = field(default_factory=list)
    seen: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    retractions: int = 0

    def step(self, events: list[Event], before: int, after: int, settled: int) -> None:
        rows = self.rows + [(key, time, time, 1, False) for key, time in events]
        columns = [ints([row[i] for row in rows]) for i in range(4)]
        group, first, last, count = columns
        closing = close_sessions(
            group,
            first,
            last,
            arrived=np.arange(len(rows)) >= len(self.rows),
            shown=np.array([row[4] for row in rows], dtype=bool),
            horizon=Horizon(*(np.full(len(rows), time) for time in (before, after, settled))),
            gap_us=GAP,
        )
        for row in np.flatnonzero(closing.retracted):
            del self.seen[int(group[row]), int(first[row])]
            self.retractions += 1
        kept = []
        for session in range(len(closing.start_us)):
            members = np.flatnonzero(closing.session == session)
            assert closing.changed[session] or len(members) == 1
            key, start = int(group[members[0]]), int(closing.start_us[session])
            total, end = int(count[members].sum()), int(closing.last_us[session])
            if closing.emitted[session]:
                assert end + GAP < after
                late = end + GAP < before or any(row[4] for row in [rows[m] for m in members])
                assert closing.late[session] == late
                self.seen[key, start] = (end, total)
            if not closing.forgotten[session]:
                kept.append((key, start, end, total, bool(closing.shown[session])))
        self.rows = kept


@given(events=EVENTS)
def test_events_not_further_apart_than_the_gap_are_in_one_session(events: list[Event]) -> None:
    key, time = ints([k for k, _ in events]), ints([t for _, t in events])
    session = cut_sessions(key, time, time, GAP)
    found = {}
    for number in np.unique(session):
        mine = session == number
        assert len(set(key[mine])) == 1
        found[int(key[mine][0]), int(time[mine].min())] = (int(time[mine].max()), int(mine.sum()))
    assert found == sessions_of(events)


def test_events_exactly_a_gap_apart_are_together_as_in_spark() -> None:
    times = ints([0, GAP, 2 * GAP + 1])
    assert cut_sessions(ints([0, 0, 0]), times, times, GAP).tolist() == [0, 0, 1]


@settings(max_examples=500)
@given(
    events=EVENTS,
    cuts=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 12)), max_size=12),
    lateness=st.integers(0, 20),
)
def test_what_is_shown_last_is_one_batch_over_all_that_was_taken_in(
    events: list[Event], cuts: list[tuple[int, int]], lateness: int
) -> None:
    """Events come in any order; those before what is settled are left out, as the runtime does."""
    follower, taken_in, now, settled = Follower(), list[Event](), 0, LONG_AGO
    rest = list(events)
    for size, progress in [*cuts, (len(events), 0), (0, 1_000)]:
        batch, rest = rest[:size], rest[size:]
        batch = [event for event in batch if event[1] >= settled]
        taken_in += batch
        before, now = now, now + progress
        settled = max(settled, now - lateness)
        follower.step(batch, before, now, settled)
        ended = {s: v for s, v in sessions_of(taken_in).items() if v[0] + GAP < now}
        assert ended.items() <= follower.seen.items()
    assert follower.seen == sessions_of(taken_in)
    assert follower.rows == []  # keys that never come back are forgotten


def test_a_late_event_merges_sessions_and_takes_back_the_second() -> None:
    """The gap is 4:  [0..2]      [9]   then 5 comes late:   [0..2..5..9]."""
    follower = Follower()
    follower.step([(0, 0), (0, 2), (0, 9)], LONG_AGO, 14, LONG_AGO)
    assert follower.seen == {(0, 0): (2, 2), (0, 9): (9, 1)}
    follower.step([(0, 5)], 14, 14, LONG_AGO)
    assert follower.seen == {(0, 0): (9, 4)}
    assert follower.retractions == 1


def test_a_session_that_a_late_event_opened_again_is_shown_when_it_ends_once_more() -> None:
    follower = Follower()
    follower.step([(0, 0)], LONG_AGO, 5, LONG_AGO)
    follower.step([(0, 3)], 5, 6, LONG_AGO)
    assert follower.seen == {(0, 0): (0, 1)}  # as it was, until it ends after 7
    follower.step([], 6, 8, LONG_AGO)
    assert follower.seen == {(0, 0): (3, 2)}


def test_a_session_that_never_ends_is_one_row() -> None:
    follower = Follower()
    for time in range(0, 400, 4):
        follower.step([(0, time)], time - 1, time, time - 1)
    assert len(follower.rows) == 1
    assert follower.seen == {}
