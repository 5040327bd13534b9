"""Compositions run as deployed queries: prepared where possible, in many small steps."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final

from pyspark.sql import SparkSession
from tests.fuzz.compositions import Composition, Plan, function_of
from tests.fuzz.events import START, TENANTS, script_of
from tests.fuzz.outcomes import Outcome, Rows, essence

import slackwater as sw
from slackwater.app.results import Result
from slackwater.errors import QuarantinedError, SlackwaterError
from slackwater.runtime.reports import QueryReport
from slackwater.runtime.runtime import Runtime
from slackwater.scheduling.snapshot import Decision, FleetSnapshot
from slackwater.spark.sinks.memory import MemorySink
from slackwater.testing import ManualClock

PATIENCE_S: Final = 240.0  # with all compositions that run together
LATENESS: Final = "20000 days"  # transforms may move event time as far back as they like


class Chopped:
    """Run what has arrived in steps of a few records, of all tenants together."""

    name = "chopped"

    def decide(self, fleet: FleetSnapshot) -> Decision:
        steps = sw.round_robin().decide(fleet).steps
        return Decision(tuple(replace(step, max_events=12) for step in steps))


def in_steps(
    spark: SparkSession, compositions: Sequence[Composition], plans: Sequence[Plan]
) -> list[Outcome]:
    """Run compositions together, each for all tenants."""
    outcomes: dict[int, Outcome] = {}
    sinks: dict[int, MemorySink] = {}
    reports: dict[str, QueryReport] = {}
    settings = {"durable": False, "slots": 1, "clock": ManualClock(START)}
    with Runtime(spark, policy=Chopped(), **settings) as runtime:  # type: ignore[arg-type]
        for index, (composition, plan) in enumerate(zip(compositions, plans, strict=True)):
            sink = sw.memory()
            try:
                _deploy(spark, runtime, composition, plan, index, sink)
                sinks[index] = sink
            except SlackwaterError as error:
                outcomes[index] = Outcome(refused=str(error))
            except Exception as error:
                outcomes[index] = Outcome(error=essence(error))
        if sinks:
            with _patience(runtime), suppress(QuarantinedError):  # the reports tell which
                runtime.run()
        reports = {report.name: report for report in runtime.queries()}
    for index, sink in sinks.items():
        outcomes[index] = _outcome(sink, [reports[f"{index}/{n}"] for n in range(TENANTS)])
    return [outcomes[index] for index in range(len(compositions))]


def _deploy(
    spark: SparkSession,
    runtime: Runtime,
    composition: Composition,
    plan: Plan,
    index: int,
    sink: MemorySink,
) -> None:
    app = sw.App(f"app{index}")
    function, windows = (
        function_of(spark, composition),
        sw.sliding("4 s", f"{composition.slide_s} s"),
    )
    rows = app.source("events")
    result: Result
    if composition.applied:
        result = rows.window(windows).apply(function)
    else:
        result = rows.transform(function).window(windows, by=plan.by).aggregate(**plan.ours())
    result.to(sink, lateness=LATENESS)
    for tenant in range(TENANTS):
        script = script_of(composition.columns, composition.events, tenant)
        runtime.deploy(app, f"{index}/{tenant}", events=script)


def _outcome(sink: MemorySink, reports: Sequence[QueryReport]) -> Outcome:
    table = sink.last_panes()
    found: dict[int, Rows] = {tenant: [] for tenant in range(TENANTS)}
    for row in table.drop_columns(["pane", "timing", "accuracy", "window_end"]).to_pylist():
        row["start"] = row.pop("window_start")
        found[int(row.pop("query").split("/")[1])].append(row)
    failures: Mapping[int, str] = {
        tenant: report.quarantined
        for tenant, report in enumerate(reports)
        if report.quarantined is not None
    }
    return Outcome(
        rows=found,
        types={field.name: field.type for field in table.schema},
        failed=frozenset(failures),
        error=next(iter(failures.values()), None),
        rebuilt=bool(reports[0].rebuilt_because),
    )


@contextmanager
def _patience(runtime: Runtime) -> Iterator[None]:
    """Stop a runtime that does not end by itself, and say so."""
    over = threading.Event()

    def give_up() -> None:
        over.set()
        runtime.stop()

    timer = threading.Timer(PATIENCE_S, give_up)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
    assert not over.is_set(), f"still running after {PATIENCE_S} s"
