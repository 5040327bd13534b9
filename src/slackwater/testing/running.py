"""Run an app over scripted input, in no time."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from slackwater.app.stream import App
from slackwater.errors import DescriptionError
from slackwater.parsing import brief
from slackwater.runtime.reports import QueryReport
from slackwater.runtime.runtime import Runtime
from slackwater.testing.clock import ManualClock
from slackwater.testing.script import Script


def run_app(
    spark: SparkSession, app: App, name: str = "test", *, runtime: Any = None, **inputs: Script
) -> list[QueryReport]:
    """Deploy an app on scripts, run it to their end, and report how its queries stand.

    `runtime` holds further settings of the Runtime, such as {"slots": 1}.
    """
    for given, script in inputs.items():
        if not isinstance(script, Script):
            raise DescriptionError(
                f"run_app({given}={brief(script)}): give a script, made with scripted(...); a "
                "Runtime of your own runs over other sources"
            )
    if not inputs:
        raise DescriptionError(
            "run_app(spark, app): give each of the app's inputs a script, such as "
            f"{next(iter(app.inputs), 'events')}=scripted(...)"
        )
    start_ms = min(script.first_arrival_ms for script in inputs.values())
    settings = {"clock": ManualClock(start_ms), **(runtime or {})}
    for script in inputs.values():
        if script.ended_ms is None:
            script.end()
    with Runtime(spark, **settings) as running:
        running.deploy(app, name, reset=False, **inputs)
        running.run()
        return running.queries()
