"""Fixtures for the commands: a runner, and a journal with something of everything in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

import slackwater as sw
from slackwater.cli.main import app as cli
from slackwater.testing import ManualClock, scripted

Invoke = Callable[..., Result]


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Run the command line with these arguments, on a wide page without colours."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    runner = CliRunner()

    def run(*arguments: object) -> Result:
        return runner.invoke(cli, [str(argument) for argument in arguments])

    return run


@pytest.fixture(scope="session")
def journal(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a journal: 10 s windows, a late event, one too late, one malformed."""
    directory = tmp_path_factory.mktemp("status") / "state"
    events = scripted("ts timestamp, user string", event_time="ts", watermark=sw.bounded("2 s"))
    for second in range(40):
        events.add(ts=f"2024-01-01 00:00:{second:02d}", user="ab"[second % 2])
    events.add(ts="2024-01-01 00:00:25", user="late", arrives="2024-01-01 00:00:40")
    events.add(ts="2024-01-01 00:00:05", user="too late", arrives="2024-01-01 00:00:41")
    events.add_line("{broken")
    events.end("2024-01-01 00:10:00")
    app = sw.App("t")
    (
        app.source("events")
        .window(sw.tumbling("10 seconds"), by="user")
        .aggregate(n=sw.count())
        .to(sw.memory(), lateness="10 s")
    )
    clock = ManualClock(events.first_arrival_ms)
    with sw.Runtime(spark, journal=directory, clock=clock) as rt:
        rt.deploy(app, "counts", events=events)
        rt.run(seconds=60)
    return directory
