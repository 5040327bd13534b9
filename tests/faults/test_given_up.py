"""Steps that were given up and go on all the same, at whatever moment, change nothing."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.faults.arrow_steps import without_spark
from tests.faults.workload import SmallSteps, apps, expected, found, require_same, stream

import slackwater as sw
from slackwater import disk
from slackwater.disk import Disk
from slackwater.errors import QuarantinedError, SinkError
from slackwater.runtime import emitting
from slackwater.runtime.panes import aggregate_panes

WAIT_S = 20.0


@contextmanager
def running(spark: Any, directory: Path, *queries: str) -> Iterator[sw.Runtime]:
    """Deploy queries whose steps are soon given up."""
    script, _, _ = stream()
    with sw.Runtime(
        spark,
        journal=directory / "state",
        policy=SmallSteps(),
        slots=1,
        step_limit="600 ms",
        stop_limit="2 seconds",
    ) as runtime:
        runtime._loop._overdue.grace_ms = 100.0
        described = apps(directory / "out")
        for name in queries:
            runtime.deploy(described[name], name, events=script)
        yield runtime


def run_on(runtime: sw.Runtime, limit_ms: float = 60_000.0) -> None:
    runtime._loop._overdue._limit_ms = limit_ms
    for query in runtime.queries():
        runtime.resume(query.name)
    runtime.run()


def let_go(runtime: sw.Runtime, hung: threading.Event) -> None:
    """Let the steps that were given up go on, to their end."""
    hung.set()
    for worker in runtime._loop._slots._given_up.values():
        assert worker.ended(WAIT_S)


def patched_panes(patch: pytest.MonkeyPatch, before: Callable[[int], object]) -> None:
    """Have something done before panes are computed, by how often they were."""
    compute, calls = aggregate_panes, itertools.count(1)

    def computed(*given: Any) -> Any:
        before(next(calls))
        return compute(*given)

    patch.setattr(emitting, "aggregate_panes", computed)


def test_a_step_that_goes_on_long_after_writes_no_panes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung = threading.Event()
    patched_panes(monkeypatch, lambda call: call > 1 or hung.wait(WAIT_S))
    with running(without_spark(monkeypatch), tmp_path, "one") as runtime:
        with pytest.raises(QuarantinedError):
            runtime.run()
        run_on(runtime)
        let_go(runtime, hung)
    require_same(found(tmp_path), expected(["one"]))


class HangingDisk(Disk):
    """Hang where panes are made durable, until let go."""

    def __init__(self, below: Path, hung: threading.Event) -> None:
        super().__init__()
        self._below, self._hung = below, hung

    def sync(self, handle: int) -> None:
        if Path(f"/proc/self/fd/{handle}").readlink().is_relative_to(self._below):
            self._hung.wait(WAIT_S)
        super().sync(handle)


@pytest.mark.parametrize("resumed", ["before", "after"])
def test_steps_that_hang_in_the_sink_together_write_panes_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resumed: str
) -> None:
    hung = threading.Event()
    with running(without_spark(monkeypatch), tmp_path, "one", "two") as runtime:
        monkeypatch.setattr(disk, "current", HangingDisk(tmp_path / "out", hung))
        with pytest.raises(QuarantinedError):
            runtime.run()
        if resumed == "before":
            with pytest.raises(QuarantinedError):
                run_on(runtime, limit_ms=600.0)
        let_go(runtime, hung)
        run_on(runtime)
    require_same(found(tmp_path), expected(["one", "two"]))


def test_a_query_is_not_stopped_for_another_whose_step_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung = threading.Event()

    def before(call: int) -> None:
        if call <= 2:
            raise ValueError("not yet")
        if call == 3:
            hung.wait(WAIT_S)

    patched_panes(monkeypatch, before)
    with running(without_spark(monkeypatch), tmp_path, "one", "two") as runtime:
        with pytest.raises(QuarantinedError):
            runtime.run()
        stopped = [query.name for query in runtime.queries() if query.quarantined]
        assert len(stopped) == 1
        run_on(runtime)
        let_go(runtime, hung)
    require_same(found(tmp_path), expected(["one", "two"]))


def test_nobody_else_has_a_sink_while_a_step_that_was_given_up_writes_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung, spark = threading.Event(), without_spark(monkeypatch)
    with running(spark, tmp_path, "one") as runtime:
        monkeypatch.setattr(disk, "current", HangingDisk(tmp_path / "out", hung))
        with pytest.raises(QuarantinedError):
            runtime.run()
    with (
        pytest.raises(SinkError, match="is being written by another runtime"),
        running(spark, tmp_path, "one"),
    ):
        pass
    let_go(runtime, hung)
    for thread in threading.enumerate():
        if thread.name == "slackwater-closer":
            thread.join(WAIT_S)
    with running(spark, tmp_path, "one") as runtime:
        run_on(runtime)
    require_same(found(tmp_path), expected(["one"]))
