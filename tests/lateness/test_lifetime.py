"""A query's windows from first event to last pane, through restarts, without Spark."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from random import Random

import pytest

from slackwater.lateness.amending import LateStep, PastWindows
from slackwater.lateness.cleanup import Cover
from slackwater.lateness.state import LatenessState, LatenessWish
from slackwater.lateness.triggers import EveryEvents, Staleness
from slackwater.progress.bounds import WindowBounds
from slackwater.progress.closing import close_windows
from slackwater.progress.grid import WindowGrid
from slackwater.progress.times import END_OF_TIME_MS
from slackwater.runtime.lateness_records import (
    lateness_change_from_json,
    lateness_change_to_json,
    lateness_from_json,
    lateness_to_json,
    wish_from_json,
    wish_to_json,
)

WISHES = (
    LatenessWish(300, Staleness(0.05)),
    LatenessWish(300, EveryEvents(20)),
    LatenessWish(Cover(0.98, 0.9, 600)),
    LatenessWish(Cover(0.98, 0.9, 600), Staleness(0.1)),
)


@dataclass
class Life:
    """Do with counts what the runtime does with rows."""

    grid: WindowGrid
    wish: LatenessWish
    restarts: bool  # what is known goes through the journal's JSON at each step
    state: LatenessState = field(default_factory=LatenessState)
    watermark_ms: int | None = None
    gone_until_ms: int | None = None
    slices: Counter[int] = field(default_factory=Counter)
    panes: dict[int, int] = field(default_factory=dict)
    accepted: Counter[int] = field(default_factory=Counter)  # by window
    shown: dict[int, int] = field(default_factory=dict)  # by window, in its last pane
    too_late: int = 0
    emitted: list[tuple[int, int, str, int]] = field(default_factory=list)

    def step(self, times: list[int], after_ms: int, *, amends: bool) -> None:
        if self.restarts:
            self.state = lateness_from_json(json.loads(json.dumps(lateness_to_json(self.state))))
            self.wish = wish_from_json(json.loads(json.dumps(wish_to_json(self.wish))))
        starts = (self.grid.slice_start(time_ms) for time_ms in times)
        arrived = Counter(start for start in starts if start is not None)
        bounds = WindowBounds(self.wish.first_ms, self.state.bounds)
        past = PastWindows(self.wish, self.grid, bounds, self.state, after_ms, self.gone_until_ms)
        late = LateStep.of(past, arrived, self.watermark_ms)
        closing = close_windows(
            self.grid,
            bounds=bounds,
            held=self.slices.keys(),
            arrived=arrived.keys(),
            panes=self.panes,
            gone_until_ms=self.gone_until_ms,
            before_ms=self.watermark_ms,
            after_ms=after_ms,
            amending=late.amending(now=amends or after_ms >= END_OF_TIME_MS),
        )
        for start, count in arrived.items():
            if start in closing.too_late:
                self.too_late += count
            for window_ms in self.grid.windows_of(start):
                if self.watermark_ms is None or not past.over(window_ms, self.watermark_ms):
                    self.accepted[window_ms] += count
        kept = {s: n for s, n in arrived.items() if s not in closing.too_late}
        for firing in closing.firings:
            held = sum(self.slices[s] for s in self.grid.slices_of(firing.window_ms))
            if not firing.held_only:
                held += sum(kept.get(s, 0) for s in self.grid.slices_of(firing.window_ms))
            self.shown[firing.window_ms] = held
            self.emitted.append((firing.window_ms, firing.pane, firing.timing, held))
        self.slices.update(kept)
        for start in closing.forgotten:
            del self.slices[start]
        change = late.change(closing)
        if self.restarts:
            change = lateness_change_from_json(
                json.loads(json.dumps(lateness_change_to_json(change)))
            )
        self.state = self.state.after(change)
        assert self.state.waiting == closing.waiting
        self.panes, self.gone_until_ms = dict(closing.panes), closing.gone_until_ms
        self.watermark_ms = after_ms


def lived(life: Life, seed: int) -> Life:
    """Bring events of two hundred windows, one in three of them late, in steps of any length."""
    chance, now_ms = Random(seed), 0
    while now_ms < 20_000:
        now_ms += chance.randrange(5, 120)
        times = [
            max(0, now_ms - (int(chance.lognormvariate(4, 1)) if chance.random() < 0.33 else 1))
            for _ in range(chance.randrange(30))
        ]
        life.step(times, now_ms, amends=chance.random() < 0.5)
    life.step([], END_OF_TIME_MS, amends=False)
    return life


@pytest.mark.parametrize("grid", [WindowGrid(100, 100), WindowGrid(100, 40), WindowGrid(60, 90)])
@pytest.mark.parametrize("wish", WISHES, ids=repr)
@pytest.mark.parametrize("seed", range(3))
def test_last_panes_show_all_that_was_accepted_and_nothing_stays(
    grid: WindowGrid, wish: LatenessWish, seed: int
) -> None:
    life = lived(Life(grid, wish, restarts=False), seed)
    assert life.shown == dict(life.accepted)
    assert not life.slices
    assert not life.panes
    assert not life.state.amendments
    panes: dict[int, list[int]] = {}
    for window_ms, pane, _, _ in life.emitted:
        panes.setdefault(window_ms, []).append(pane)
    assert all(numbers == list(range(len(numbers))) for numbers in panes.values())
    timings = {timing for _, _, timing, _ in life.emitted}
    assert ("final" in timings) == (wish.trigger is not None)


@pytest.mark.parametrize("wish", WISHES, ids=repr)
def test_restarts_change_nothing(wish: LatenessWish) -> None:
    grid = WindowGrid(100, 40)
    straight, restarted = (lived(Life(grid, wish, restarts=again), 7) for again in (False, True))
    assert restarted.emitted == straight.emitted
    assert restarted.too_late == straight.too_late
    assert restarted.state == straight.state


def test_a_learned_bound_drops_about_what_it_may() -> None:
    life = lived(Life(WindowGrid(100, 100), LatenessWish(Cover(0.98, 0.9, 600)), False), 1)
    assert life.state.bounds
    whole = life.too_late + sum(life.accepted.values())
    assert 0.002 < life.too_late / whole < 0.025


def test_staleness_makes_fewer_panes_than_amending_with_every_late_event() -> None:
    grid = WindowGrid(100, 100)
    rarely = lived(Life(grid, LatenessWish(900, Staleness(0.3)), False), 3)
    always = lived(Life(grid, LatenessWish(900, EveryEvents(1)), False), 3)
    assert rarely.shown == always.shown
    late = [
        sum(timing != "on_time" for _, _, timing, _ in each.emitted) for each in (rarely, always)
    ]
    assert late[0] < 0.85 * late[1]
