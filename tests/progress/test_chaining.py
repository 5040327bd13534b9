"""Windows over windows, against a model that computes them from all events at once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from slackwater.progress.bounds import WindowBounds
from slackwater.progress.chaining import close_stage
from slackwater.progress.closing import close_windows
from slackwater.progress.grid import WindowGrid

END_MS = 10_000
grids = st.builds(
    WindowGrid,
    size_ms=st.integers(1, 12),
    slide_ms=st.integers(1, 12),
    offset_ms=st.integers(0, 11),
)
# A step brings some events, each so much behind the watermark, and then moves time on.
steps = st.lists(
    st.tuples(st.lists(st.integers(-8, 8), max_size=4), st.integers(0, 9)), min_size=1, max_size=12
)


@dataclass
class Chain:
    """Keep two stages as the runtime does; rows are the event times themselves."""

    first: WindowGrid
    second: WindowGrid
    lateness_ms: int
    watermark_ms: int = 100
    slices: dict[int, list[int]] = field(default_factory=dict)
    first_panes: dict[int, int] = field(default_factory=dict)
    first_gone_ms: int | None = None
    sources: dict[int, tuple[int, ...]] = field(default_factory=dict)
    second_panes: dict[int, int] = field(default_factory=dict)
    second_gone_ms: int | None = None
    accepted: list[int] = field(default_factory=list)
    emitted: dict[int, list[tuple[str, tuple[int, ...]]]] = field(default_factory=dict)

    def step(self, times: list[int], after_ms: int) -> None:
        arrived: dict[int, list[int]] = {}
        for time in times:
            if (start := self.first.slice_start(time)) is not None:
                arrived.setdefault(start, []).append(time)
        closing = close_windows(
            self.first,
            bounds=WindowBounds(self.lateness_ms),
            held=self.slices,
            arrived=arrived,
            panes=self.first_panes,
            gone_until_ms=self.first_gone_ms,
            before_ms=self.watermark_ms,
            after_ms=after_ms,
        )
        for start, found in arrived.items():
            if start not in closing.too_late:
                self.slices.setdefault(start, []).extend(found)
                self.accepted += found
        fired = {
            firing.window_ms: tuple(
                time
                for start in self.first.slices_of(firing.window_ms)
                for time in self.slices.get(start, ())
            )
            for firing in closing.firings
        }
        for start in closing.forgotten:
            self.slices.pop(start)
        self.first_panes, self.first_gone_ms = dict(closing.panes), closing.gone_until_ms
        self._close_second(fired, after_ms)
        self.watermark_ms = after_ms

    def _close_second(self, fired: dict[int, tuple[int, ...]], after_ms: int) -> None:
        closing = close_stage(
            self.second,
            self.first.size_ms,
            bounds=WindowBounds(self.lateness_ms),
            held=self.sources,
            arrived=fired,
            panes=self.second_panes,
            gone_until_ms=self.second_gone_ms,
            before_ms=self.watermark_ms,
            after_ms=after_ms,
        )
        self.sources |= fired
        for firing in closing.firings:
            panes = self.emitted.setdefault(firing.window_ms, [])
            assert firing.pane == len(panes)
            rows = (t for source in closing.sources[firing.window_ms] for t in self.sources[source])
            panes.append((firing.timing, tuple(sorted(rows))))
            self.second_panes[firing.window_ms] = firing.pane + 1
        for source in closing.forgotten:
            self.sources.pop(source)
        self.second_gone_ms = closing.gone_until_ms

    def expected(self) -> dict[int, tuple[int, ...]]:
        """Say what each window of the second stage comes to, without slices, panes or time."""
        found: dict[int, list[int]] = {}
        for time in self.accepted:
            for window in _windows(self.first, time):
                for outer in _windows(self.second, window + self.first.size_ms - 1):
                    found.setdefault(outer, []).append(time)
        return {window: tuple(sorted(times)) for window, times in found.items()}


def _windows(grid: WindowGrid, time: int) -> list[int]:
    near = range(time - grid.size_ms - grid.slide_ms, time + 1)
    starts = (start for start in near if (start - grid.offset_ms) % grid.slide_ms == 0)
    return [start for start in starts if start <= time < start + grid.size_ms]


def played(first: WindowGrid, second: WindowGrid, lateness_ms: int, script: object) -> Chain:
    chain = Chain(first, second, lateness_ms)
    assert isinstance(script, list)
    for behind, forward in script:
        now = chain.watermark_ms
        chain.step([now - each for each in behind], now + forward)
    chain.step([], END_MS)
    return chain


@given(first=grids, second=grids, script=steps)
def test_the_last_pane_holds_all_that_was_accepted_in_time(
    first: WindowGrid, second: WindowGrid, script: object
) -> None:
    """Events are never later than the lateness, so nothing may be missing."""
    chain = played(first, second, 8, script)
    assert {window: panes[-1][1] for window, panes in chain.emitted.items()} == chain.expected()
    assert not chain.sources


@given(first=grids, second=grids, lateness_ms=st.integers(0, 6), script=steps)
def test_only_the_first_pane_is_on_time_and_an_amendment_never_finds_its_rows_gone(
    first: WindowGrid, second: WindowGrid, lateness_ms: int, script: object
) -> None:
    """Where events can be too late, a pane still holds all that an earlier one did."""
    chain = played(first, second, lateness_ms, script)
    for panes in chain.emitted.values():
        assert all(timing == "late" for timing, _ in panes[1:])
        for (_, before), (_, after) in pairwise(panes):
            assert Counter(before) <= Counter(after)


def test_a_window_that_ends_between_two_windows_is_forgotten_at_once() -> None:
    closing = close_stage(
        WindowGrid(size_ms=2, slide_ms=10),
        4,
        bounds=WindowBounds(0),
        held=[],
        arrived=[0],
        panes={},
        gone_until_ms=None,
        before_ms=0,
        after_ms=4,
    )
    assert closing.firings == ()
    assert closing.forgotten == {0}
