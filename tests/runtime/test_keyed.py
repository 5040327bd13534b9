"""Sessions and counted windows of several queries, step by step, without Spark."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import slackwater as sw
from slackwater.app.windows import CountWindows, KeyedWindows
from slackwater.runtime.keyed import KeyedQuery, split_by_lateness, take_in
from slackwater.runtime.state import KeyedState
from slackwater.spark.frames import ROWS, SLICE
from slackwater.spark.keyed_rows import FIRST, LAST, TIES
from slackwater.spark.shapes import ResultShape
from slackwater.spark.sinks.pane_tables import last_panes
from slackwater.spark.sources.base import QUERY

AGGREGATES = {"n": sw.count(), "total": sw.sum("v")}
Event = tuple[int, str | None, int, int]  # query, key, time in ms, value: also its offset
EVENTS = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from(["a", None]), st.integers(0, 50)),
    max_size=30,
)


@dataclass
class Runner:
    """Take steps in as the executor does, for two queries of a template."""

    windows: KeyedWindows
    lateness_ms: int
    now_ms: int = 0
    panes: list[pa.Table] = field(default_factory=list)
    taken_in: list[Event] = field(default_factory=list)
    too_late: int = 0

    def __post_init__(self) -> None:
        shape = ResultShape(self.windows, ("k",), AGGREGATES)
        self.template: Any = SimpleNamespace(
            pipeline=SimpleNamespace(shapes=[shape]), output=SimpleNamespace(windows=self.windows)
        )
        self.queries: list[Any] = [
            SimpleNamespace(
                number=number,
                grid=self.windows.grid(number),
                state=SimpleNamespace(
                    name=f"q{number}", keyed=KeyedState(), watermark_ms=None, gone_until_ms=None
                ),
            )
            for number in (7, 3)  # numbers need not come in order
        ]

    def step(self, events: list[Event], progress_ms: int) -> None:
        """Take in some events, and let event time pass."""
        self.now_ms += progress_ms
        rows, late = split_by_lateness(self._rows(events), self.queries)
        self.too_late += 0 if late is None else late.num_rows
        if rows is not None:
            kept = set(rows["total__value"].to_pylist())
            self.taken_in += [event for event in events if event[3] in kept]
            if not isinstance(self.windows, CountWindows):
                rows = rows.rename_columns(
                    ["total__sum" if name == "total__value" else name for name in rows.column_names]
                )
        cell_ms = self.windows.size_ms
        gone_ms = self.now_ms - cell_ms - self.lateness_ms
        step = take_in(
            self.template, rows, [KeyedQuery(each, self.now_ms, gone_ms) for each in self.queries]
        )
        fired = sum(map(len, step.windows))
        assert fired == (0 if step.panes is None else step.panes.table.num_rows)
        if step.panes is not None:
            self.panes.append(step.panes.table)
        for each, change in zip(self.queries, step.changes, strict=True):
            each.state.keyed = each.state.keyed.after(change)
            each.state.watermark_ms, each.state.gone_until_ms = self.now_ms, gone_ms

    def _rows(self, events: list[Event]) -> pa.Table:
        """Write events, one row each, the way a step's job brings them back."""
        time = np.array([time_ms for _, _, time_ms, _ in events], dtype=np.int64)
        ones = np.ones(len(events), dtype=np.int64)
        value = pa.array([value for _, _, _, value in events], pa.int64())
        common = {
            QUERY: pa.array([self.queries[query].number for query, _, _, _ in events], pa.int32()),
            SLICE: pa.array(time // self.windows.size_ms * self.windows.size_ms),
            "k": pa.array([key for _, key, _, _ in events], pa.string()),
            ROWS: pa.array(ones),
            FIRST: pa.array(time * 1_000),
            LAST: pa.array(time * 1_000),
        }
        if isinstance(self.windows, CountWindows):
            return pa.table({**common, **dict.fromkeys(TIES, value), "total__value": value})
        return pa.table({**common, "n__n": pa.array(ones), "total__value": value})

    def shown(self) -> list[tuple[Any, ...]]:
        """List what a reader sees in the end: query, key, start, end, count and sum."""
        if not self.panes:
            return []
        table = last_panes(pa.concat_tables(self.panes))
        columns = [
            table["query"],
            table["k"],
            *(table[name].cast(pa.int64()) for name in ("window_start", "window_end")),
            table["n"],
            table["total"],
        ]
        return sorted(zip(*(c.to_pylist() for c in columns), strict=True), key=str)


def batch(windows: KeyedWindows, events: list[Event]) -> list[tuple[Any, ...]]:
    """Form the windows of all events at once, in plain loops."""
    runs: list[list[Event]] = []
    for event in sorted(events, key=lambda e: (e[0], e[1] or "", e[2], e[3])):
        last = runs[-1][-1] if runs else None
        if last is None or last[:2] != event[:2] or event[2] - last[2] > windows.gap_ms:
            runs.append([])
        runs[-1].append(event)
    found, counted = [], isinstance(windows, CountWindows)
    for run in runs:
        size = windows.events if isinstance(windows, CountWindows) else len(run)
        slide = windows.every if isinstance(windows, CountWindows) else len(run)
        for begin in range(0, len(run), slide):
            part = run[begin : begin + size]
            end_ms = part[-1][2] + (0 if counted else windows.gap_ms)
            total = sum(event[3] for event in part)
            query, key = ("q7", "q3")[part[0][0]], part[0][1]
            found.append((query, key, part[0][2] * 1_000, end_ms * 1_000, len(part), total))
    return sorted(found, key=str)


WINDOWS = st.one_of(
    st.integers(1, 9).map(lambda ms: sw.sessions(f"{ms} ms")),
    st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 30)).map(
        lambda n: sw.counted(n[0], slide=min(n[:2]), pause=f"{n[2]} ms")
    ),
)


@settings(max_examples=400)
@given(
    windows=WINDOWS,
    events=EVENTS,
    cuts=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 12)), max_size=12),
    lateness_ms=st.integers(0, 20),
)
def test_what_readers_see_is_one_batch_over_all_that_was_not_too_late(
    windows: KeyedWindows,
    events: list[tuple[int, str | None, int]],
    cuts: list[tuple[int, int]],
    lateness_ms: int,
) -> None:
    runner = Runner(windows, lateness_ms)
    rest = [(*event, number) for number, event in enumerate(events)]
    for size, progress_ms in [*cuts, (len(events), 0), (0, 10_000)]:
        runner.step(rest[:size], progress_ms)
        rest = rest[size:]
    assert len(runner.taken_in) + runner.too_late == len(events)
    assert runner.shown() == batch(windows, runner.taken_in)
    assert all(query.state.keyed.rows is None for query in runner.queries)


def test_an_event_within_the_lateness_is_never_too_late() -> None:
    runner = Runner(sw.sessions("5 ms"), lateness_ms=10)
    runner.step([(0, "a", 0, 0)], 40)
    runner.step([(0, "a", 30, 1), (0, "a", 24, 2)], 0)
    assert (len(runner.taken_in), runner.too_late) == (2, 1)


def test_nothing_to_look_at_changes_nothing() -> None:
    runner = Runner(sw.sessions("5 ms"), lateness_ms=10)
    runner.step([(0, "a", 0, 0)], 1)
    before = [query.state.keyed for query in runner.queries]
    runner.step([], 1)
    assert [query.state.keyed for query in runner.queries] == before
    assert runner.panes == []
