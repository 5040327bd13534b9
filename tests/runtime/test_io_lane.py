"""The one lane that all transfers of window state go through."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from functools import partial

import pytest

from slackwater.runtime.io_lane import IoLane, Urgency


@pytest.fixture
def lane() -> Iterator[IoLane]:
    made = IoLane()
    yield made
    made.close()


def nothing(*_: object) -> None:
    return None


def test_what_is_urgent_overtakes_what_waits(lane: IoLane) -> None:
    order: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    def occupy(_: object) -> None:
        begun.set()
        go_on.wait()

    lane.submit(Urgency.DESTAGE, nothing, occupy, nothing)
    begun.wait()
    for urgency in (Urgency.COMPACT, Urgency.DESTAGE, Urgency.LATE_WRITE, Urgency.PRESTAGE):
        # More of each than may be encoded ahead: the urgent must not wait for room.
        for number in range(5):
            name = f"{urgency.name} {number}"
            lane.submit(urgency, partial(str, name), order.append, nothing)
    # What is urgent is ready before the lane is free again.
    deadline = time.monotonic() + 30
    while lane.ready < 5 and time.monotonic() < deadline:
        time.sleep(0.001)
    go_on.set()
    lane.settle()
    assert order[:5] == [f"PRESTAGE {number}" for number in range(5)]
    late = [order.index(f"LATE_WRITE {number}") for number in range(5)]
    assert late == sorted(late)
    assert sorted(order) == sorted(set(order))
    assert len(order) == 20


def test_transfers_are_one_at_a_time_and_codecs_side_by_side(lane: IoLane) -> None:
    both = threading.Barrier(2, timeout=30)
    inside = threading.Semaphore(1)

    def transfer(_: object) -> None:
        assert inside.acquire(blocking=False)
        inside.release()

    futures = [lane.submit(Urgency.DESTAGE, both.wait, transfer, nothing) for _ in range(6)]
    for future in futures:
        future.result()


def test_each_part_gets_what_the_one_before_returned(lane: IoLane) -> None:
    seen: list[int] = []
    lane.submit(Urgency.PRESTAGE, lambda: 1, lambda one: one + 1, seen.append).result()
    lane.settle()
    assert seen == [2]


def fail(*_: object) -> None:
    raise OSError("no space left")


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_transfer_that_fails_tells_and_leaves_the_lane_working(lane: IoLane, place: int) -> None:
    parts = [nothing, nothing, nothing]
    parts[place] = fail
    with pytest.raises(OSError, match="no space"):
        lane.submit(Urgency.DESTAGE, *parts).result()
    lane.submit(Urgency.DESTAGE, nothing, nothing, nothing).result()
    lane.settle()
    assert lane.backlog == 0


def test_closing_ends_what_has_begun_and_gives_up_the_rest() -> None:
    lane = IoLane(workers=1)
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def occupy(_: object) -> None:
        begun.set()
        go_on.wait()
        done.set()

    first = lane.submit(Urgency.DESTAGE, nothing, occupy, nothing)
    begun.wait()
    others = [lane.submit(Urgency.DESTAGE, nothing, nothing, nothing) for _ in range(50)]
    threading.Timer(0.05, go_on.set).start()
    lane.close()
    first.result()
    assert done.is_set()
    given_up = 0
    for other in others:
        try:
            other.result()
        except CancelledError:
            given_up += 1
    assert given_up
    assert lane.submit(Urgency.DESTAGE, nothing, nothing, nothing).cancelled()


def test_many_transfers_all_arrive() -> None:
    lane = IoLane(workers=3)
    seen: list[int] = []
    for number in range(500):
        urgency = Urgency(number % 4)
        lane.submit(urgency, partial(int, number), lambda value: value, seen.append)
    lane.settle()
    lane.close()
    assert sorted(seen) == list(range(500))
