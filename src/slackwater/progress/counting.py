"""What new events and a new watermark mean for windows of so many events of a key.

A key's events are numbered in the order of their time; a key that pauses for longer than its gap
begins anew with 0, so that keys which never come back can be forgotten. Window k of a *run* between
two pauses holds the events from k * slide on, `size` of them, or fewer at the end of the run:

    size 3    events    1  2  4 | 5  7  8 | 9     ...pause...     | 30 31
              windows  [0......][1......][2]  short: the run is over  [0...

An event that comes late moves all behind it by one place. Windows that were shown and begin
elsewhere now are taken back, and the new ones are shown: a window is known by its first event's
time, and all of a key that begin at the same instant are shown together.

Once no event can come before the end of some windows, their events become one row that only counts
them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slackwater.progress.sessions import Flags, Horizon, Ints, cut_sessions


@dataclass(frozen=True)
class CountedRows:
    """Hold the events of all keys, in any order, as columns.

    A row stands for one event, or, where `events` says more and `is_prefix`, for the events of a
    run that are done with. `tie` columns order events of the same time, the first one foremost.
    """

    group: Ints
    first_us: Ints
    last_us: Ints
    events: Ints
    is_prefix: Flags
    ties: tuple[NDArray[np.int64], ...]
    arrived: Flags
    shown: Flags  # a window that begins with this event has been emitted


@dataclass(frozen=True)
class CountClosing:
    """Say which windows are shown, and what becomes of the rows."""

    members: Ints  # rows, window by window
    window: Ints  # of each member
    start_us: Ints  # of each window
    last_us: Ints  # of each window: the time of its last event
    late: Flags  # of each window
    retracted: Ints  # rows that began a window which is none any more; one for each instant
    shown: Flags  # of each row, from now on
    dropped: Flags  # of each row: a prefix takes its place, or nothing needs it
    prefix_row: Ints  # a row of each run that has a new prefix, for its key
    prefix_events: Ints  # how many events each new prefix stands for
    prefix_first_us: Ints
    prefix_last_us: Ints


def close_counted(
    rows: CountedRows, horizon: Horizon, *, gap_us: int, size: int, slide: int
) -> CountClosing:
    """Decide what a step means for the windows of all keys."""
    run_of_row = cut_sessions(rows.group, rows.first_us, rows.last_us, gap_us)
    order = np.lexsort((*reversed(rows.ties), rows.first_us, ~rows.is_prefix, run_of_row))
    run = run_of_row[order]
    time_us, arrived, shown = rows.first_us[order], rows.arrived[order], rows.shown[order]
    count = int(run.max(initial=-1)) + 1
    bounds = np.searchsorted(run, np.arange(count + 1))
    first_row, until_row = bounds[:-1], bounds[1:]
    has_prefix = rows.is_prefix[order][first_row].astype(np.int64)
    done = np.where(has_prefix > 0, rows.events[order][first_row], 0)
    total = done + (until_row - first_row) - has_prefix
    latest_us = np.maximum.reduceat(rows.last_us[order], first_row) if count else time_us
    now = horizon.of(order[first_row])
    over = latest_us + gap_us < now.after_us
    forgotten = latest_us + gap_us < now.settled_us

    # All windows that are not done with, run by run; `begin` and `end` are rows in order.
    windows = np.maximum(-(-(total - done) // slide), 0)
    of = np.repeat(np.arange(count), windows)
    number = np.arange(len(of)) - np.repeat(np.cumsum(windows) - windows, windows)
    begin = first_row[of] + has_prefix[of] + number * slide
    end = np.minimum(begin + size, until_row[of])
    start_us, last_us = time_us[begin], time_us[end - 1]
    complete = end - begin == size
    closed = over[of] | (complete & (last_us < now.after_us[of]))

    first_arrived = np.full(count, len(run))
    np.minimum.at(first_arrived, run[arrived], np.flatnonzero(arrived))
    instant_of = _numbered(of, start_us)  # windows of a run that begin at the same time
    instants = int(instant_of.max(initial=-1)) + 1
    shown_at = _instants_of(run, time_us, shown, of, start_us, instant_of)
    was_shown = np.zeros(instants, dtype=np.bool_)
    was_shown[shown_at[shown_at >= 0]] = True
    moved = first_arrived[of] < end
    closed_before = (latest_us + gap_us < now.before_us)[of]
    closed_before |= complete & (last_us < now.before_us[of])
    due = np.zeros(instants, dtype=np.bool_)
    due[instant_of[closed & (moved | ~closed_before | ~was_shown[instant_of])]] = True
    emitted = closed & due[instant_of]

    is_shown = due | was_shown
    shown_after = np.zeros(len(run), dtype=np.bool_)
    shown_after[begin[is_shown[instant_of]]] = True
    stray = np.flatnonzero(shown)[shown_at < 0]  # nothing begins there any more
    new = np.ones(len(stray), dtype=np.bool_)
    new[1:] = (np.diff(run[stray]) != 0) | (np.diff(time_us[stray]) != 0)

    settled = _settled(of, start_us, closed & complete & (last_us < now.settled_us[of]), count)
    settled_events = np.where(forgotten, 0, settled * slide)
    keeps_from = first_row + has_prefix + settled_events
    dropped = np.arange(len(run)) < np.repeat(
        np.where(forgotten, until_row, np.where(settled > 0, keeps_from, first_row)),
        until_row - first_row,
    )
    renewed = np.flatnonzero((settled > 0) & ~forgotten)

    lengths = (end - begin)[emitted]
    window = np.repeat(np.arange(len(lengths)), lengths)
    within = np.arange(len(window)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return CountClosing(
        members=order[np.repeat(begin[emitted], lengths) + within],
        window=window,
        start_us=start_us[emitted],
        last_us=last_us[emitted],
        late=(was_shown[instant_of] | closed_before)[emitted],
        retracted=order[stray[new]],
        shown=_back(shown_after, order),
        dropped=_back(dropped, order),
        prefix_row=order[first_row[renewed]],
        prefix_events=(done + settled_events)[renewed],
        prefix_first_us=time_us[first_row[renewed]],
        prefix_last_us=time_us[keeps_from[renewed] - 1],
    )


def _numbered(run: Ints, start_us: Ints) -> Ints:
    """Give each different (run, start) of windows, which come in that order, a number."""
    changes = (np.diff(run, prepend=-1) != 0) | (np.diff(start_us, prepend=0) != 0)
    return np.cumsum(changes) - 1


def _instants_of(
    run: Ints, time_us: Ints, shown: Flags, of: Ints, start_us: Ints, instant_of: Ints
) -> Ints:
    """Find for each shown row the instant at which windows of its run begin; -1 where none do."""
    rows = np.flatnonzero(shown)
    found = np.full(len(rows), -1, dtype=np.int64)
    if not len(rows) or not len(of):
        return found
    times, rank = np.unique(np.concatenate((start_us, time_us[rows])), return_inverse=True)
    windows = of * len(times) + rank[: len(of)]
    wanted = run[rows] * len(times) + rank[len(of) :]
    place = np.minimum(np.searchsorted(windows, wanted), len(windows) - 1)
    here = windows[place] == wanted
    found[here] = instant_of[place[here]]
    return found


def _settled(of: Ints, start_us: Ints, final: Flags, count: int) -> Ints:
    """Count, for each run, its first windows that nothing can change or show again.

    A window that begins with one that is not final yet is shown again together with it.
    """
    settled = np.bincount(of, minlength=count).astype(np.int64)
    not_final = np.flatnonzero(~final)
    runs, first_at = np.unique(of[not_final], return_index=True)
    first = not_final[first_at]
    stop, limit_us = np.full(count, len(of)), np.full(count, np.iinfo(np.int64).max)
    stop[runs], limit_us[runs] = first, start_us[first]
    before = (np.arange(len(of)) < stop[of]) & (start_us < limit_us[of])
    settled[runs] = np.bincount(of[before], minlength=count)[runs]
    return settled


def _back(flags: Flags, order: Ints) -> Flags:
    """Put flags of ordered rows back into the rows' own order."""
    found = np.empty(len(flags), dtype=np.bool_)
    found[order] = flags
    return found
