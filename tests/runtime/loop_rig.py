"""The loop with all but Spark: real fleet, ledger, journal and slots; steps are functions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from pyspark.sql.types import LongType, StructType, TimestampType

import slackwater as sw
from slackwater.progress.watermarks import PartitionTime
from slackwater.runtime.clock import Clock, SystemClock
from slackwater.runtime.deployed import DeployedQuery
from slackwater.runtime.fleet import Fleet
from slackwater.runtime.inbox import Inbox
from slackwater.runtime.ledger import Ledger
from slackwater.runtime.live import LiveInputs
from slackwater.runtime.loop import Loop
from slackwater.runtime.memory_gauge import MemoryGauge
from slackwater.runtime.planning import PlannedStep
from slackwater.runtime.reports import StepReport, StepTimes
from slackwater.runtime.state import Counters, QueryChange
from slackwater.scheduling.snapshot import Policy
from slackwater.testing import Script
from slackwater.testing.script import ScriptReader

SCHEMA = StructType().add("ts", TimestampType()).add("v", LongType())
WINDOWS = sw.tumbling("1 second")


def script(records: int, *, start_ms: int = 0, apart_ms: int = 100, ends: bool = True) -> Script:
    """Write records down, one every `apart_ms`, with a watermark beside each."""
    found = Script(
        SCHEMA, event_time="ts", watermark=sw.from_source(), partitions=1, max_ahead_ms=60_000
    )
    for n in range(records):
        at_ms = start_ms + n * apart_ms
        found.add_line("{}", arrives=float(at_ms))
        found.announce(float(at_ms), arrives=float(at_ms))
    return found.end() if ends else found


class Jobs:
    """Stand for Spark's jobs: they can be cancelled, and Spark can be gone."""

    def __init__(self) -> None:
        self.lost: str | None = None
        self.cancelled: list[int] = []
        self.on_cancel: Callable[[], None] = lambda: None

    def begin(self, slot: int) -> None: ...

    def cancel(self, slot: int) -> None:
        self.cancelled.append(slot)
        self.on_cancel()

    def gone(self) -> str | None:
        return self.lost


class LoopRig:
    """Deploy queries over scripts; `work` is what each step does before it is committed."""

    def __init__(
        self,
        directory: Path,
        *,
        clock: Clock | None = None,
        policy: Policy | None = None,
        slots: int = 2,
        step_limit_ms: float = 600_000,
        stop_limit_ms: float = 30_000,
        work: Callable[[PlannedStep, int], None] = lambda step, slot: None,
    ) -> None:
        self.clock = clock or SystemClock()
        self.work = work
        self.jobs = Jobs()
        self.inbox = Inbox()
        self.fleet = Fleet(tiered=True, inbox=self.inbox)
        self.ledger = Ledger(directory, durable=False)
        self.steps: list[StepReport] = []
        self.served: list[str] = []
        live = LiveInputs(self.fleet, directory, lambda query: self.loop.reason(query))
        self.live = live
        self.loop = Loop(
            fleet=self.fleet,
            ledger=self.ledger,
            executor=cast(Any, self),
            clerk=None,
            auditor=cast(Any, SimpleNamespace(look=lambda queries: False)),
            policy=policy or sw.klink(),
            clock=self.clock,
            slots=slots,
            budget_ms=250,
            step_limit_ms=step_limit_ms,
            stop_limit_ms=stop_limit_ms,
            memory=MemoryGauge(1 << 30, lambda: 0),
            live=live,
            inbox=self.inbox,
            jobs=cast(Any, self.jobs),
        )
        self.loop.observers.append(self)

    def deploy(self, name: str, source: Script, *, alone: bool = False) -> DeployedQuery:
        """Deploy a query; those that are not `alone` share steps."""
        known = self.ledger.content.queries.get(name)
        state = known or self.ledger.introduce(name, {})
        template = SimpleNamespace(
            index=1 + state.number if alone else 0,
            query=state.number if alone else None,
            samples=False,
            keeps_rows=False,
            output=SimpleNamespace(windows=WINDOWS, stages=(), place=name, by=()),
            pipeline=SimpleNamespace(shapes=[SimpleNamespace(windows=WINDOWS)]),
        )
        query = DeployedQuery(
            row=len(self.fleet.queries),
            state=state,
            template=cast(Any, template),
            readers=(ScriptReader(source, SCHEMA),),
            grid=WINDOWS.grid(state.number),
        )
        self.inbox.ask(lambda: self.fleet.add(query, self.clock.now_ms()))
        return query

    def run(self, *, seconds: float | None = None, until: Any = None) -> None:
        with self.inbox.owned():
            self.loop.run(seconds=seconds, until=until)

    def step_committed(self, report: StepReport) -> None:
        self.steps.append(report)

    def execute(self, step: PlannedStep, slot: int) -> StepReport:
        """Do a step as the executor does, without any rows."""
        started_ms, begun_ms = self.clock.now_ms(), self.clock.steady_ms()
        self.work(step, slot)
        changes = []
        for query in step.queries:
            plan = step.plans[query.number]
            times = [PartitionTime((i, p.partition), p.watermark_ms, p.idle) for i, p in plan]
            changes.append(
                QueryChange(
                    query=query.number,
                    positions={(index, piece.partition): piece.until for index, piece in plan},
                    watermarks=query.state.watermarks.advance(times),
                    fired={},
                    windows_gone_until_ms=None,
                    slices_gone=(),
                    added={},
                    blocks={},
                    counted=Counters(records=sum(piece.events for _, piece in plan)),
                )
            )
        self.ledger.commit(step.number, changes, [])
        return StepReport(
            step=step.number,
            queries=tuple(query.state.name for query in step.queries),
            template=step.template.index,
            events=step.events,
            prepared=True,
            panes=(),
            times=StepTimes(),
            started_ms=started_ms,
            committed_ms=self.clock.now_ms(),
            took_ms=self.clock.steady_ms() - begun_ms,
        )

    def records(self) -> dict[str, int]:
        return {query.state.name: query.state.records_read for query in self.fleet.queries}

    def quarantined(self) -> dict[str, str]:
        return {
            query.state.name: query.state.quarantined
            for query in self.fleet.queries
            if query.state.quarantined is not None
        }

    def close(self) -> None:
        self.loop.close()
        self.ledger.close()


def threads_of_slots() -> int:
    return sum("slackwater-slot" in thread.name for thread in threading.enumerate())
