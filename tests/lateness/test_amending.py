"""What steps bring to past windows: counted, waiting, due, settled."""

from __future__ import annotations

from dataclasses import replace

from slackwater.lateness.amending import LateStep, PastWindows
from slackwater.lateness.cleanup import Cover
from slackwater.lateness.observed import WINDOWS_PER_GENERATION, Seen, bin_of
from slackwater.lateness.state import Amendment, LatenessState, LatenessWish
from slackwater.lateness.triggers import EveryEvents
from slackwater.progress.bounds import WindowBounds
from slackwater.progress.closing import Closing, Firing, close_windows
from slackwater.progress.grid import WindowGrid
from slackwater.progress.times import END_OF_TIME_MS

GRID = WindowGrid(10, 10)
WISH = LatenessWish(20, EveryEvents(5))


def stepped(
    rows: dict[int, int],
    before_ms: int | None,
    after_ms: int,
    *,
    wish: LatenessWish = WISH,
    state: LatenessState | None = None,
    grid: WindowGrid = GRID,
) -> LateStep:
    state = state or LatenessState()
    bounds = WindowBounds(wish.first_ms, state.bounds)
    past = PastWindows(wish, grid, bounds, state, after_ms)
    return LateStep.of(past, rows, before_ms)


def test_events_are_late_by_how_far_the_watermark_had_passed_their_window() -> None:
    step = stepped({0: 3, 10: 2, 30: 4}, before_ms=25, after_ms=32)
    assert step.seen == Seen(on_time=4, late={bin_of(15): 3, bin_of(5): 2})
    assert step.by_window == {0: 3, 10: 2}
    assert step.amendments[0] == Amendment(executed_ms=10, waiting=3, late=3)


def test_events_after_the_purge_are_counted_but_wait_for_nothing() -> None:
    step = stepped({0: 3}, before_ms=30, after_ms=40)
    assert step.seen.late == {bin_of(20): 3}
    assert step.by_window == {}


def test_events_of_several_windows_count_in_each() -> None:
    step = stepped({5: 2}, before_ms=12, after_ms=14, grid=WindowGrid(10, 5))
    assert step.by_window == {0: 2}
    assert step.seen.on_time == 2


def test_all_events_are_in_time_before_the_first_watermark() -> None:
    assert stepped({0: 3}, before_ms=None, after_ms=40).seen == Seen(on_time=3)


def test_windows_are_due_by_the_trigger_and_only_in_steps_that_amend() -> None:
    step = stepped({0: 5, 10: 4}, before_ms=22, after_ms=24)
    amending = step.amending(now=True)
    assert amending is not None
    assert (amending.waiting, amending.due) == (frozenset({0, 10}), frozenset({0}))
    later = step.amending(now=False)
    assert later is not None
    assert (later.waiting, later.due) == (frozenset({0, 10}), frozenset())


def test_without_a_trigger_windows_are_amended_with_every_late_event() -> None:
    wish = LatenessWish(Cover(0.9, 0.9, 50))
    assert stepped({0: 5}, before_ms=22, after_ms=24, wish=wish).amending(now=True) is None


def closed(step: LateStep, before_ms: int, after_ms: int) -> Closing:
    return close_windows(
        GRID,
        bounds=step.past.bounds,
        held=[0, 10],
        arrived=[0],
        panes={0: 1, 10: 1},
        gone_until_ms=None,
        before_ms=before_ms,
        after_ms=after_ms,
        amending=step.amending(now=True),
    )


def test_an_executed_window_starts_anew_and_one_that_is_over_is_settled() -> None:
    step = stepped({0: 6}, before_ms=22, after_ms=24)
    state = LatenessState().after(step.change(closed(step, 22, 24)))
    assert state.amendments == {0: Amendment(executed_ms=24, waiting=0, late=6)}
    assert state.waiting == frozenset()
    last = stepped({0: 1}, before_ms=24, after_ms=31, state=state)
    assert state.after(last.change(closed(last, 24, 31))).amendments == {}


def test_what_is_not_due_waits() -> None:
    step = stepped({0: 2}, before_ms=22, after_ms=24)
    state = LatenessState().after(step.change(closed(step, 22, 24)))
    assert state.waiting == {0}
    again = stepped({0: 2}, before_ms=24, after_ms=26, state=state)
    assert again.amendments[0] == Amendment(executed_ms=10, waiting=4, late=4)
    assert again.past.next_execution_ms(0) == 30  # its purge; three more events would be sooner


def some_closing(first: int) -> Closing:
    firings = tuple(Firing(10 * n, 0, "on_time") for n in range(first))
    return Closing(firings, {}, None, frozenset(), frozenset())


def test_bounds_are_learned_when_a_generation_is_full_and_hold_for_new_windows() -> None:
    wish = LatenessWish(Cover(0.9, 0.9, 50))
    state = LatenessState(since_ms=0)
    step = stepped({0: 100, 1_000: 900}, before_ms=25, after_ms=40, wish=wish, state=state)
    full = some_closing(WINDOWS_PER_GENERATION)
    assert step.change(full).bounds is None  # events as late as 50 had no time to come yet
    step = stepped({0: 100, 1_000: 900}, before_ms=25, after_ms=60, wish=wish, state=state)
    assert step.change(some_closing(WINDOWS_PER_GENERATION - 1)).bounds is None
    change = step.change(full)
    assert change.bounds is not None
    [(after_ms, bound_ms)] = change.bounds
    assert after_ms == 60
    assert 15 <= bound_ms <= 16
    ended = replace(step, past=replace(step.past, watermark_ms=END_OF_TIME_MS))
    assert ended.change(full).bounds is None  # there are no new windows


def test_a_plain_lateness_after_a_learned_one_holds_for_new_windows() -> None:
    state = LatenessState(bounds=((100, 70),))
    step = stepped({0: 1}, before_ms=120, after_ms=130, wish=LatenessWish(30), state=state)
    assert step.change(some_closing(0)).bounds == ((100, 70), (130, 30))
    assert stepped({}, 120, 130, wish=LatenessWish(30)).change(some_closing(0)).bounds is None
