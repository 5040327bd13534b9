"""What the loop does when things go wrong around it: Spark gone, steps that hang, set clocks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from tests.runtime.loop_rig import LoopRig, script

from slackwater.errors import (
    QuarantinedError,
    SlackwaterError,
    SparkLostError,
    UnavailableError,
)
from slackwater.runtime import overdue
from slackwater.runtime.ledger import Ledger
from slackwater.runtime.planning import PlannedStep
from slackwater.scheduling.policies import policy_named
from slackwater.testing import ManualClock

HOUR_MS = 3_600_000.0
NOON_MS = 1_704_110_400_000
Made = Callable[..., LoopRig]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    rigs: list[LoopRig] = []

    def make(**settings: object) -> LoopRig:
        rigs.append(LoopRig(tmp_path, **settings))  # type: ignore[arg-type]
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.close()


def names(step: PlannedStep) -> set[str]:
    return {query.state.name for query in step.queries}


# --- quarantine -----------------------------------------------------------------------------------


def test_a_run_whose_queries_are_all_quarantined_raises_and_names_them(made: Made) -> None:
    def fail(step: PlannedStep, slot: int) -> None:
        raise ValueError("no such column")

    rig = made(clock=ManualClock(0), work=fail)
    for n in range(5):
        rig.deploy(f"q{n}", script(20, ends=False))
    with pytest.raises(QuarantinedError) as raised:
        rig.run()
    assert "5 of 5 queries are quarantined: q0: ValueError: no such column" in str(raised.value)
    assert "; q1: ValueError: no such column" in str(raised.value)
    assert "(and 2 more, see queries()). Mend what" in str(raised.value)
    assert "resume(name) each" in str(raised.value)


def test_a_run_that_ends_with_its_inputs_raises_for_the_one_that_was_stopped(made: Made) -> None:
    def fail(step: PlannedStep, slot: int) -> None:
        if "q1" in names(step):
            raise ValueError("no such column")

    rig = made(clock=ManualClock(0), work=fail)
    for n in range(3):
        rig.deploy(f"q{n}", script(20))
    with pytest.raises(QuarantinedError, match="1 of 3 queries are quarantined: q1: ValueError"):
        rig.run()
    assert rig.records() == {"q0": 20, "q1": 0, "q2": 20}


@pytest.mark.parametrize("how", ["seconds", "until", "stop"])
def test_a_run_that_is_stopped_returns_and_logs_what_was_quarantined(
    made: Made, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    def fail(step: PlannedStep, slot: int) -> None:
        if "q1" in names(step):
            raise ValueError("no such column")

    rig = made(clock=ManualClock(0), work=fail)
    for n in range(3):
        rig.deploy(f"q{n}", script(100))

    def late() -> bool:
        if rig.clock.now_ms() < 5_000:
            return False
        if how == "stop":
            rig.loop.stop()
        return how == "until"

    rig.run(seconds=5 if how == "seconds" else None, until=late)
    assert 0 < rig.records()["q0"] < 100
    assert "1 of 3 queries are quarantined" in caplog.text


# --- Spark is gone --------------------------------------------------------------------------------


def test_the_loss_of_spark_ends_the_run_and_stops_no_query(
    made: Made, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def lose(step: PlannedStep, slot: int) -> None:
        if rig.clock.now_ms() > 1_000:
            rig.jobs.lost = "its driver's JVM does not answer"
            raise ConnectionRefusedError(111, "Connection refused")

    rig = made(clock=ManualClock(0), work=lose)
    for n in range(4):
        rig.deploy(f"q{n}", script(30), alone=n % 2 == 0)
    with pytest.raises(SparkLostError, match=r"does not answer.*start the process again") as raised:
        rig.run()
    assert isinstance(raised.value.__cause__, ConnectionRefusedError)
    assert rig.quarantined() == {}
    with pytest.raises(SparkLostError):
        rig.run()  # it does not come back by itself
    before = rig.records()
    assert sum(before.values()) < 4 * 30
    rig.close()
    with_journal = Ledger(tmp_path, durable=False)
    assert all(state.quarantined is None for state in with_journal.content.queries.values())
    with_journal.close()

    again = made(clock=ManualClock(0))
    for n in range(4):
        again.deploy(f"q{n}", script(30), alone=n % 2 == 0)
    again.run()
    assert again.records() == {f"q{n}": 30 for n in range(4)}


@pytest.mark.parametrize("error", [ValueError("x"), UnavailableError("away")])
def test_whatever_a_step_says_spark_is_asked_before_a_query_is_blamed(
    made: Made, error: Exception
) -> None:
    def lose(step: PlannedStep, slot: int) -> None:
        rig.jobs.lost = "its context was stopped"
        raise error

    rig = made(clock=ManualClock(0), work=lose)
    rig.deploy("q", script(10))
    with pytest.raises(SparkLostError, match="its context was stopped"):
        rig.run()


def test_a_source_that_fails_because_spark_is_gone_is_not_blamed(made: Made) -> None:
    rig = made(clock=ManualClock(0))
    query = rig.deploy("q", script(10))

    def fail(*_: object) -> int:
        rig.jobs.lost = "its driver's JVM does not answer"
        raise ConnectionRefusedError(111, "Connection refused")

    query.readers[0].available_one = fail  # type: ignore[method-assign, assignment]
    with pytest.raises(SparkLostError):
        rig.run()
    assert rig.quarantined() == {}


# --- steps that hang ------------------------------------------------------------------------------


class Hanging:
    """Hang in the steps of some queries until let go; a Spark job ends when it is cancelled."""

    def __init__(self, *hung: str, cancellable: bool = False) -> None:
        self.hung = set(hung)
        self.go = threading.Event()
        self.cancellable = cancellable
        self.tries: list[set[str]] = []

    def __call__(self, step: PlannedStep, slot: int) -> None:
        if self.hung & names(step):
            self.tries.append(names(step))
            if self.cancellable:
                self.go.clear()
            wait_here(self.go)
            if self.cancellable:
                raise RuntimeError("Job 3 cancelled")


def wait_here(event: threading.Event) -> None:
    assert event.wait(60)


@pytest.fixture
def little_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overdue.OverdueSteps.__init__, "__defaults__", (300.0,))


def test_a_step_over_its_limit_is_told_of_cancelled_and_its_query_alone_quarantined(
    made: Made, caplog: pytest.LogCaptureFixture
) -> None:
    hanging = Hanging("q1", cancellable=True)
    rig = made(work=hanging, slots=2, step_limit_ms=200)
    rig.jobs.on_cancel = hanging.go.set
    now_ms = int(rig.clock.now_ms())
    for n in range(4):
        rig.deploy(f"q{n}", script(10, start_ms=now_ms - 5_000))
    with pytest.raises(QuarantinedError):
        rig.run()
    assert rig.records() == {"q0": 10, "q1": 0, "q2": 10, "q3": 10}
    assert hanging.tries[-1] == {"q1"}
    assert len(hanging.tries) <= 3
    assert "longer than step_limit='200 ms' allows" in rig.quarantined()["q1"]
    assert "Job 3 cancelled" in rig.quarantined()["q1"]
    assert "in wait_here" in rig.quarantined()["q1"]
    assert "longer than it may (step_limit): it is cancelled. It is at" in caplog.text
    assert rig.jobs.cancelled


@pytest.mark.usefixtures("little_grace")
def test_as_many_steps_that_nothing_can_end_as_there_are_slots_do_not_stop_the_others(
    made: Made,
) -> None:
    hanging = Hanging("q0", "q1")
    rig = made(work=hanging, slots=2, step_limit_ms=200)
    now_ms = int(rig.clock.now_ms())
    for n in range(4):
        rig.deploy(f"q{n}", script(10, start_ms=now_ms - 5_000), alone=True)
    seen = set[str | None]()

    def look() -> bool:
        seen.update(rig.live.tell(query, 0).waits_for for query in rig.fleet.queries)
        return False

    with pytest.raises(QuarantinedError, match="2 of 4 queries are quarantined: q0: StepOverdue"):
        rig.run(until=look)
    assert rig.records() == {"q0": 0, "q1": 0, "q2": 10, "q3": 10}
    assert any("longer than step_limit allows, at" in str(each) for each in seen)

    # What comes late from a step that was given up is not committed, and its number not used again.
    pending = {q.state.name: q.state.pending for q in rig.fleet.queries}
    hanging.hung.clear()
    hanging.go.set()
    while any("slackwater-slot" in t.name for t in threading.enumerate() if t.name[-1] in "01"):
        time.sleep(0.01)
    assert rig.records()["q0"] == 0
    assert {q.state.name: q.state.pending for q in rig.fleet.queries} == pending
    for name in ("q0", "q1"):
        rig.inbox.ask(lambda name=name: resume(rig, name))  # type: ignore[misc]
    rig.run()
    assert rig.records() == {f"q{n}": 10 for n in range(4)}


def resume(rig: LoopRig, name: str) -> None:
    query = rig.fleet.named(name)
    rig.fleet.refresh(query, rig.clock.now_ms())
    rig.ledger.quarantine(query.number, None)
    rig.fleet.freed(query)


@pytest.mark.usefixtures("little_grace")
def test_of_queries_that_share_a_step_which_is_given_up_only_the_one_that_hangs_stops(
    made: Made,
) -> None:
    hanging = Hanging("q1")
    rig = made(work=hanging, slots=2, step_limit_ms=200)
    now_ms = int(rig.clock.now_ms())
    for n in range(3):
        rig.deploy(f"q{n}", script(10, start_ms=now_ms - 5_000))
    with pytest.raises(QuarantinedError, match=r"1 of 3 .*could not be cancelled"):
        rig.run()
    assert rig.records() == {"q0": 10, "q1": 0, "q2": 10}
    hanging.go.set()


@pytest.mark.usefixtures("little_grace")
def test_stop_returns_though_a_step_does_not_and_the_next_run_does_it_again(
    made: Made, caplog: pytest.LogCaptureFixture
) -> None:
    hanging = Hanging("q")
    rig = made(work=hanging, slots=1, stop_limit_ms=200)
    now_ms = int(rig.clock.now_ms())
    rig.deploy("q", script(10, start_ms=now_ms - 5_000))
    rig.run(until=lambda: bool(hanging.tries))
    assert (
        "a step of q did not end within 0 s (stop_limit) and is cancelled; it is at" in caplog.text
    )
    assert "in wait_here" in caplog.text
    assert rig.quarantined() == {}
    hanging.hung.clear()
    rig.run()
    assert rig.records() == {"q": 10}
    hanging.go.set()


# --- the clock is set -----------------------------------------------------------------------------


@pytest.mark.parametrize("by_ms", [-HOUR_MS, HOUR_MS])
@pytest.mark.parametrize("policy", ["klink", "deadline", "round_robin"])
def test_pauses_take_as_long_as_they_say_when_the_clock_is_set(
    made: Made, by_ms: float, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock, tries = ManualClock(NOON_MS), list[float]()

    def away(step: PlannedStep, slot: int) -> None:
        tries.append(clock.steady_ms())
        if len(tries) == 1:
            clock.set_to(clock.now_ms() + by_ms)
        if len(tries) < 4:
            raise UnavailableError("the other end is away")

    rig = made(clock=clock, work=away, policy=policy_named(policy))
    rig.deploy("q", script(10, start_ms=NOON_MS - 5_000))
    rig.run()
    assert [b - a for a, b in pairwise(tries[:4])] == [500.0, 1_000.0, 2_000.0]
    assert rig.records() == {"q": 10}
    way = "forward" if by_ms > 0 else "back"
    assert f"the machine's clock was set {way} by 3600 s" in caplog.text


def test_a_run_of_some_seconds_takes_those_when_the_clock_is_set(made: Made) -> None:
    clock = ManualClock(NOON_MS)
    set_once = iter([True])

    def until() -> bool:
        if clock.steady_ms() - NOON_MS > 2_000 and next(set_once, False):
            clock.set_to(clock.now_ms() - HOUR_MS)
        return False

    rig = made(clock=clock)
    rig.deploy("q", script(1_000, start_ms=NOON_MS))
    rig.run(seconds=5, until=until)
    assert clock.steady_ms() == NOON_MS + 5_000
    assert clock.now_ms() == NOON_MS + 5_000 - HOUR_MS


def test_no_duration_is_learned_from_a_clock_that_is_set(made: Made) -> None:
    clock = ManualClock(NOON_MS)
    by_ms = iter([-HOUR_MS, HOUR_MS] * 20)

    def set_it(step: PlannedStep, slot: int) -> None:
        clock.set_to(clock.now_ms() + next(by_ms, 0.0))
        clock.advance_to(clock.now_ms() + 30)

    rig = made(clock=clock, work=set_it, slots=1)
    rig.deploy("q", script(40, start_ms=NOON_MS - 100_000, apart_ms=1_000))
    rig.run()
    cost = rig.fleet.cost_learner(0).cost
    assert cost.observations > 0
    assert 0 <= cost.duration_ms(1) <= 200


# --- threads --------------------------------------------------------------------------------------


def test_queries_are_asked_about_deployed_and_moved_while_they_run(made: Made) -> None:
    rig = made(slots=4)
    now_ms = int(rig.clock.now_ms())
    for n in range(4):
        rig.deploy(f"q{n}", script(400, start_ms=now_ms, apart_ms=5))
    stop, errors, moved = threading.Event(), list[BaseException](), threading.Event()

    def keep(act: Callable[[int], object]) -> threading.Thread:
        def work() -> None:
            for turn in range(1_000_000):
                if stop.is_set():
                    return
                try:
                    act(turn)
                except BaseException as error:
                    errors.append(error)
                    return
                time.sleep(0.0005)

        thread = threading.Thread(target=work)
        thread.start()
        return thread

    def move(turn: int) -> None:  # as the lane's threads do when window state has been moved
        query = rig.fleet.queries[turn % len(rig.fleet.queries)]
        rig.inbox.post(lambda: rig.fleet.reweigh(query))
        moved.set()

    def deploy(turn: int) -> None:
        if turn < 40:
            rig.deploy(f"more-{turn}", script(20, start_ms=now_ms, apart_ms=10))

    def look(turn: int) -> None:
        for query in list(rig.fleet.queries):
            rig.live.tell(query, rig.live.queued(query.number))
            query.open_windows()

    threads = [keep(move), keep(move), keep(deploy), keep(look)]
    try:
        rig.run(seconds=3)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert errors == []
    assert moved.is_set()
    assert rig.quarantined() == {}
    assert set(rig.records().values()) == {400, 20}
    assert len(rig.records()) == 44


def test_the_fleet_refuses_a_thread_that_comes_in_by_another_way(made: Made) -> None:
    refused = list[str]()

    def change(step: PlannedStep, slot: int) -> None:
        try:
            rig.fleet.reweigh(step.queries[0])
        except RuntimeError as error:
            refused.append(str(error))

    rig = made(clock=ManualClock(0), work=change)
    rig.deploy("q", script(10))
    rig.run()
    assert "'slackwater-slot_1' changes the fleet, which is for 'MainThread' alone" in refused[0]


def test_a_second_run_at_once_is_refused(made: Made) -> None:
    rig = made(clock=ManualClock(0))
    rig.deploy("q", script(10))

    def again() -> bool:
        with pytest.raises(SlackwaterError, match="running already"):
            rig.run()
        return True

    rig.run(until=again)
