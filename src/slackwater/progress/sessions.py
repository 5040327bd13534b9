"""What new events and a new watermark mean for session windows: which end, merge, or are forgotten.

A key's events belong together as long as no two neighbours lie more than the gap apart. Whatever
arrives later can only lengthen sessions or merge them, never split one. So a session, or any
stretch of one, is known by its first and its last event, and state is one row for each:

    gap 3     stretches   [1..2]    [4]        [9.11]
              sessions    [1........4]         [9..11]        end: after 4 + 3, after 11 + 3
    then 6 arrives late   [1............6]-----[9..11]        6 + 3 reaches 9: one session

Times here are in microseconds, as Spark has them. Events exactly a gap apart are in one session, as
in Spark; so a session has ended only once the watermark lies *beyond* its last event plus the gap.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Horizon:
    """Say, for each row, how far its query's event time has come, in microseconds.

    No event before `settled_us` will be taken in any more.
    """

    before_us: Ints  # the watermark before the step
    after_us: Ints  # the watermark after it
    settled_us: Ints

    def of(self, rows: Ints) -> Horizon:
        """Return the horizon of some of the rows."""
        return Horizon(self.before_us[rows], self.after_us[rows], self.settled_us[rows])


@dataclass(frozen=True)
class SessionClosing:
    """Say what becomes of sessions, and of the rows (stretches of sessions) they are made from."""

    session: Ints  # of each row
    start_us: Ints  # of each session: its first event
    last_us: Ints  # of each session: its last event
    emitted: Flags  # of each session: it is to be shown now
    late: Flags  # of each session: its end had passed, or part of it was shown, before
    shown: Flags  # of each session: it has been shown, under this start
    forgotten: Flags  # of each session: nothing can change it any more
    retracted: Flags  # of each row: what was shown under its start is no session any more
    changed: Flags  # of each session: its row is not the one that was held


def cut_sessions(group: Ints, first_us: Ints, last_us: Ints, gap_us: int) -> Ints:
    """Tell each row's session by its number; rows are stretches of events of a key, the `group`.

    Numbers rise with group and time.

    >>> time = np.array([9, 1, 4, 4])
    >>> cut_sessions(np.array([0, 0, 0, 1]), time, time, 3)
    array([1, 0, 0, 2])
    """
    if not len(group):
        return np.zeros(0, dtype=np.int64)
    order = np.lexsort((last_us, first_us, group))
    groups, first, last = group[order], first_us[order], last_us[order]
    other_group = np.diff(groups, prepend=groups[0]) != 0
    # The last event so far within the group: a running maximum over (group, rank of the time).
    times, rank = np.unique(last, return_inverse=True)
    numbered = np.cumsum(other_group) * len(times) + rank
    reached = times[np.maximum.accumulate(numbered) % len(times)]
    begins = other_group
    begins[1:] |= first[1:] - reached[:-1] > gap_us
    session = np.empty(len(group), dtype=np.int64)
    session[order] = np.cumsum(begins)
    return session


def close_sessions(
    group: Ints,
    first_us: Ints,
    last_us: Ints,
    *,
    arrived: Flags,
    shown: Flags,
    horizon: Horizon,
    gap_us: int,
) -> SessionClosing:
    """Decide which sessions are shown, shown again, taken back, or forgotten.

    `arrived` are the rows that this step brought; the others were held, each a whole session, and
    `shown` if it has been emitted. A session that late events have opened again stays shown as it
    was until it ends once more; one that is part of an earlier one now is taken back at once.
    """
    session = cut_sessions(group, first_us, last_us, gap_us)
    count = int(session.max(initial=-1)) + 1
    start_us = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(start_us, session, first_us)
    latest_us = np.full(count, np.iinfo(np.int64).min)
    np.maximum.at(latest_us, session, last_us)
    a_row = np.zeros(count, dtype=np.int64)
    a_row[session] = np.arange(len(session))
    time = horizon.of(a_row)
    end_us = latest_us + gap_us

    keeps_start = first_us == start_us[session]
    touched = _any(arrived, session, count)
    shown_before = _any(shown, session, count)
    still_shown = _any(shown & keeps_start, session, count)
    ended = end_us < time.after_us
    ended_before = end_us < time.before_us
    emitted = ended & (touched | ~still_shown | ~ended_before)
    forgotten = end_us < time.settled_us
    return SessionClosing(
        session=session,
        start_us=start_us,
        last_us=latest_us,
        emitted=emitted,
        late=ended_before | shown_before,
        shown=emitted | still_shown,
        forgotten=forgotten,
        retracted=shown & ~keeps_start,
        changed=touched | emitted | forgotten,
    )


def _any(flags: Flags, session: Ints, count: int) -> Flags:
    return np.bincount(session[flags], minlength=count) > 0
