"""Which windows fire, are amended or forgotten, against a model that knows no slices."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from slackwater.progress.bounds import WindowBounds
from slackwater.progress.closing import Amending, Closing, close_windows
from slackwater.progress.grid import WindowGrid

grids = st.builds(
    WindowGrid,
    size_ms=st.integers(1, 12),
    slide_ms=st.integers(1, 12),
    offset_ms=st.integers(0, 11),
)
# A step brings some event times, and then moves time on by so much (None: not at all yet).
steps = st.lists(
    st.tuples(st.lists(st.integers(0, 40), max_size=5), st.none() | st.integers(0, 25)),
    max_size=10,
)

Pane = tuple[int, int, str, tuple[int, ...]]  # window, pane, timing, event times in it


@dataclass
class Sliced:
    """Keep state as the runtime does: events by slice, panes by window."""

    grid: WindowGrid
    lateness_ms: int
    watermark_ms: int | None = None
    slices: dict[int, list[int]] = field(default_factory=dict)
    panes: dict[int, int] = field(default_factory=dict)
    gone_until_ms: int | None = None

    def step(self, times: list[int], after_ms: int | None) -> tuple[list[Pane], list[int]]:
        arrived: dict[int, list[int]] = {}
        for time_ms in times:
            start_ms = self.grid.slice_start(time_ms)
            if start_ms is not None:
                arrived.setdefault(start_ms, []).append(time_ms)
        closing = close_windows(
            self.grid,
            bounds=WindowBounds(self.lateness_ms),
            held=self.slices.keys(),
            arrived=arrived.keys(),
            panes=self.panes,
            gone_until_ms=self.gone_until_ms,
            before_ms=self.watermark_ms,
            after_ms=after_ms,
        )
        for start_ms, more in arrived.items():
            if start_ms not in closing.too_late:
                self.slices[start_ms] = self.slices.get(start_ms, []) + more
        panes = [
            (firing.window_ms, firing.pane, firing.timing, self._content(firing.window_ms))
            for firing in closing.firings
        ]
        self._forget(closing)
        self.watermark_ms = after_ms
        return panes, sorted(t for start in closing.too_late for t in arrived[start])

    def _content(self, window_ms: int) -> tuple[int, ...]:
        times = (t for s in self.grid.slices_of(window_ms) for t in self.slices.get(s, []))
        return tuple(sorted(times))

    def _forget(self, closing: Closing) -> None:
        for start_ms in closing.forgotten:
            del self.slices[start_ms]
        self.panes = dict(closing.panes)
        self.gone_until_ms = closing.gone_until_ms


@dataclass
class ByWindow:
    """Say what should happen, event by event and window by window."""

    grid: WindowGrid
    lateness_ms: int
    watermark_ms: int | None = None
    content: dict[int, list[int]] = field(default_factory=dict)
    fired: Counter[int] = field(default_factory=Counter)

    def step(self, times: list[int], after_ms: int | None) -> tuple[list[Pane], list[int]]:
        touched, too_late = set(), []
        for time_ms in times:
            windows = [
                start
                for start in range(time_ms - self.grid.size_ms + 1, time_ms + 1)
                if (start - self.grid.offset_ms) % self.grid.slide_ms == 0
            ]
            kept = [w for w in windows if not self._past(w + self.lateness_ms, self.watermark_ms)]
            for window_ms in kept:
                self.content.setdefault(window_ms, []).append(time_ms)
                touched.add(window_ms)
            if windows and not kept:
                too_late.append(time_ms)
        panes: list[Pane] = []
        for window_ms in sorted(self.content):
            if self._past(window_ms, self.watermark_ms):
                timing = "late" if window_ms in touched else None
            else:
                timing = "on_time" if self._past(window_ms, after_ms) else None
            if timing is not None:
                times_in_it = tuple(sorted(self.content[window_ms]))
                panes.append((window_ms, self.fired[window_ms], timing, times_in_it))
                self.fired[window_ms] += 1
        self.watermark_ms = after_ms
        return panes, sorted(too_late)

    def _past(self, window_ms: int, watermark_ms: int | None) -> bool:
        return watermark_ms is not None and window_ms + self.grid.size_ms <= watermark_ms


@given(grids, st.integers(0, 30), steps)
def test_slices_close_windows_as_if_each_window_held_its_own_events(
    grid: WindowGrid, lateness_ms: int, script: list[tuple[list[int], int | None]]
) -> None:
    sliced, model = Sliced(grid, lateness_ms), ByWindow(grid, lateness_ms)
    now_ms: int | None = None
    for times, ahead_ms in script:
        if ahead_ms is not None:
            now_ms = ahead_ms if now_ms is None else now_ms + ahead_ms
        assert sliced.step(times, now_ms) == model.step(times, now_ms)


@given(grids, st.integers(0, 30), steps)
def test_nothing_is_kept_once_every_window_is_over(
    grid: WindowGrid, lateness_ms: int, script: list[tuple[list[int], int | None]]
) -> None:
    sliced = Sliced(grid, lateness_ms)
    for times, _ in script:
        sliced.step(times, sliced.watermark_ms)
    sliced.step([], 1_000)
    assert not sliced.slices
    assert not sliced.panes


def test_a_late_event_amends_its_window_until_the_lateness_is_over() -> None:
    """Follow one window of 10 with a lateness of 5.

    watermark   -      8      12           14             15          16
    events      3      -      -            7              2           1
    window      .      .      on time {3}  late {3,7}     late {..2}  (1 is too late)
    """
    state = Sliced(WindowGrid(10, 10), lateness_ms=5)
    assert state.step([3], None) == ([], [])
    assert state.step([], 8) == ([], [])
    assert state.step([], 12) == ([(0, 0, "on_time", (3,))], [])
    assert state.step([7], 14) == ([(0, 1, "late", (3, 7))], [])
    assert state.step([2], 15) == ([(0, 2, "late", (2, 3, 7))], [])
    assert state.step([1], 16) == ([], [1])


def test_windows_that_are_over_stay_so_when_the_lateness_is_raised() -> None:
    """Raise the lateness from 0 to 20 when the first window is over already.

    watermark   12            14             24            26
    events      3             7              13            15
    windows     0: on time    (too late)     10: on time   10: late
    """
    state = Sliced(WindowGrid(10, 10), lateness_ms=0)
    assert state.step([3], 12) == ([(0, 0, "on_time", (3,))], [])
    state.lateness_ms = 20
    assert state.step([7], 14) == ([], [7])
    assert state.step([13], 24) == ([(10, 0, "on_time", (13,))], [])
    assert state.step([15, 8], 26) == ([(10, 1, "late", (13, 15))], [8])


def test_a_window_that_opens_and_closes_within_one_step_fires_on_time() -> None:
    state = Sliced(WindowGrid(10, 10), lateness_ms=0)
    state.step([], 5)
    assert state.step([7, 31], 25) == ([(0, 0, "on_time", (7,))], [])


def test_an_event_too_late_for_one_window_still_counts_in_another() -> None:
    """Slide windows of 10 by 5; the event at 7 comes when the first of its two windows is gone.

    windows     [0.......10)
                     [5.......15)
    """
    state = Sliced(WindowGrid(10, 5), lateness_ms=0)
    assert state.step([6], 12) == ([(0, 0, "on_time", (6,))], [])
    assert state.step([7], 15) == ([(5, 0, "on_time", (6, 7))], [])


@dataclass
class Amended(Sliced):
    """Keep state where windows are amended when asked to, under bounds that change."""

    bounds: WindowBounds = field(default_factory=lambda: WindowBounds(0))
    waiting: frozenset[int] = frozenset()
    accepted: dict[int, list[int]] = field(default_factory=dict)  # by window, in all
    shown: dict[int, tuple[int, ...]] = field(default_factory=dict)  # by window, in its last pane

    def amend(self, times: list[int], after_ms: int, due: frozenset[int], *, now: bool) -> None:
        arrived: dict[int, list[int]] = {}
        late = set()
        for time_ms in times:
            start_ms = self.grid.slice_start(time_ms)
            if start_ms is None:
                continue
            arrived.setdefault(start_ms, []).append(time_ms)
            for window_ms in self.grid.windows_of(start_ms):
                end_ms = window_ms + self.grid.size_ms
                if not self.bounds.over(end_ms, self.watermark_ms):
                    self.accepted.setdefault(window_ms, []).append(time_ms)
                    if self.watermark_ms is not None and end_ms <= self.watermark_ms:
                        late.add(window_ms)
        closing = close_windows(
            self.grid,
            bounds=self.bounds,
            held=self.slices.keys(),
            arrived=arrived.keys(),
            panes=self.panes,
            gone_until_ms=self.gone_until_ms,
            before_ms=self.watermark_ms,
            after_ms=after_ms,
            amending=Amending(self.waiting | late, due, now),
        )
        before = dict(self.slices)
        for start_ms, more in arrived.items():
            if start_ms not in closing.too_late:
                self.slices[start_ms] = self.slices.get(start_ms, []) + more
        whole = self.slices
        for firing in closing.firings:
            assert firing.pane == self.fired[firing.window_ms]
            self.fired[firing.window_ms] += 1
            self.slices = before if firing.held_only else whole
            self.shown[firing.window_ms] = self._content(firing.window_ms)
        self.slices = whole
        self._forget(closing)
        self.waiting, self.watermark_ms = closing.waiting, after_ms

    fired: Counter[int] = field(default_factory=Counter)


@given(
    grids,
    st.integers(0, 30),
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 60), max_size=5),
            st.integers(0, 15),
            st.booleans(),
            st.frozensets(st.integers(-12, 60)),
            st.none() | st.integers(0, 30),
        ),
        max_size=12,
    ),
)
def test_last_panes_show_all_that_was_accepted_whenever_windows_are_amended(
    grid: WindowGrid,
    lateness_ms: int,
    script: list[tuple[list[int], int, bool, frozenset[int], int | None]],
) -> None:
    state = Amended(grid, 0, bounds=WindowBounds(lateness_ms))
    now_ms = 0
    for times, ahead_ms, now, due, bound_ms in script:
        now_ms += ahead_ms
        state.amend(times, now_ms, due, now=now)
        if bound_ms is not None:
            state.bounds = state.bounds.changed(now_ms, bound_ms)
    state.amend([], 10_000, frozenset(), now=True)
    assert state.shown == {w: tuple(sorted(times)) for w, times in state.accepted.items()}
    assert not state.slices
    assert not state.panes
    assert not state.waiting
