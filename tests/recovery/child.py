"""A process to be killed: run queries over finite inputs, with a journal and durable sinks.

    python child.py DIRECTORY

prints a line per committed step, and "finished" when all inputs are read and all windows closed.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from operator import methodcaller
from pathlib import Path

import slackwater as sw
from slackwater.app.outputs import Output
from slackwater.runtime import ledger
from slackwater.runtime.reports import StepReport
from slackwater.scheduling.snapshot import Decision, FleetSnapshot
from slackwater.spark.sources.generator import Generator

START_MS = 1_700_000_000_000
EVENTS = 60_000
QUERIES = 3
RATE = 2_000
SCHEMA = "ts timestamp, user string, amount double"


class SmallSteps:
    """Choose as round_robin does, a few thousand events at a time, so that there are many steps."""

    name = "small_steps"

    def decide(self, fleet: FleetSnapshot) -> Decision:
        """Limit every step."""
        decision = sw.round_robin().decide(fleet)
        return Decision(tuple(replace(step, max_events=3_000) for step in decision.steps))


class Progress:
    """Tell the parent of every committed step."""

    def step_committed(self, report: StepReport) -> None:
        """Print it."""
        print("step", report.step, flush=True)


def generated(seed: int) -> Generator:
    """Describe one query's input: delays with a long tail that the watermark does not wait for."""
    return sw.ysb(
        rate=RATE,
        delay="exp",
        watermark_lag="200 ms",
        seed=seed,
        limit=EVENTS,
        start_ms=START_MS,
    )


def rates(directory: Path) -> tuple[sw.App, Output]:
    """Describe a chain of windows over a join of two inputs; late panes replace what they amend."""
    app = sw.App("rates")
    sides = [
        app.source(f"{kind}s")
        .transform(methodcaller("where", f"event_type = '{kind}'"))
        .window(sw.tumbling("3 seconds"), by="ad_type")
        .aggregate(**{kind: sw.count(), f"{kind}_users": sw.sum("user_id")})
        for kind in ("view", "click")
    ]
    joined = sides[0].join(sides[1], on="ad_type", how="full")
    output = (
        joined.window(sw.tumbling("10 seconds"), by="ad_type")
        .aggregate(
            windows=sw.count(),
            views=sw.sum("view"),
            users=sw.sum("click_users"),
            most=sw.max("click"),
            spread=sw.variance("view"),
        )
        .to(sw.parquet(directory / "rates"), lateness="1 hour")
    )
    return app, output


def clicks(directory: Path) -> tuple[sw.App, tuple[Output, ...]]:
    """Describe windows that each advertisement has for itself; late events merge and move them."""
    app = sw.App("clicks")
    rare = app.source("events").transform(methodcaller("where", "ad_id < 40"))
    return app, tuple(
        rare.window(windows, by="ad_id")
        .aggregate(n=sw.count(), users=sw.sum("user_id"), pages=sw.mean("page_id"))
        .to(sw.parquet(directory / name), name=name, lateness="1 hour")
        for name, windows in (
            ("sessions", sw.sessions("300 ms")),
            ("counted", sw.counted(3, slide=2, pause="3 seconds")),
        )
    )


def deploy(runtime: sw.Runtime, directory: Path) -> None:
    """Deploy fused, sliding, `apply`, chained, keyed and file queries."""
    exact = sw.App("exact")  # everything is accepted, in the end, and shown when due
    views = exact.source("events").transform(lambda df: df.where("event_type = 'view'"))
    views.window(sw.tumbling("3 seconds", offset="spread"), by="ad_type").aggregate(
        n=sw.count(), users=sw.sum("user_id"), top=sw.max("ad_id")
    ).to(sw.parquet(directory / "exact"), lateness="5 seconds", staleness=0.02)
    strict = sw.App("strict")  # what is later than most is a dead letter
    strict.source("events").window(sw.sliding("1200 ms", "500 ms")).aggregate(n=sw.count()).to(
        sw.parquet(directory / "strict"), lateness=sw.cover(0.97, start="3 seconds")
    )
    users = sw.App("users")
    (
        users.source("lines")
        .window(sw.tumbling("10 seconds"))
        .apply(
            lambda df: df.groupBy("user").sum("amount").withColumnRenamed("sum(amount)", "total")
        )
        .to(sw.parquet(directory / "users"), lateness="1 hour")
    )
    for query in range(QUERIES):
        runtime.deploy(exact, f"exact-{query}", events=generated(query))
    runtime.deploy(strict, "strict", events=generated(99))
    runtime.deploy(rates(directory)[0], "rates", views=generated(50), clicks=generated(51))
    runtime.deploy(clicks(directory)[0], "clicks", events=generated(60))
    lines = sw.files(
        directory / "lines", format="json", schema=SCHEMA, event_time="ts", follow=False
    )
    runtime.deploy(users, "users", lines=lines)


def main(directory: Path) -> None:
    """Run to the end of all inputs, or to the kill."""
    spark = sw.session("local[2]")
    ledger.SNAPSHOT_RECORDS = 25  # so that kills come between, during and after snapshots too
    with sw.Runtime(spark, journal=directory / "state", policy=SmallSteps()) as runtime:
        deploy(runtime, directory)
        runtime.observe(Progress())
        print("running", flush=True)
        runtime.run()
        for query in runtime.queries():
            assert query.quarantined is None, query.quarantined
    print("finished", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
