"""A process to be killed: a query that samples, whose panes are printed as they are emitted.

    python sampled_child.py DIRECTORY SINCE_MS KILL_AT

begins so long after the input does, and kills itself right after it has printed its KILL_AT-th
pane, before the step can commit (0: never). Time stands still while a step runs.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pyarrow as pa

import slackwater as sw
from slackwater.testing import ManualClock

START_MS = 1_700_000_000_000
SECONDS = 20
shown = 0


def show(panes: pa.Table) -> None:
    """Print panes, and die if it is time."""
    global shown
    for row in panes.to_pylist():
        print("pane", json.dumps(row, default=str), flush=True)
        shown += 1
        if shown == int(sys.argv[3]):
            os.kill(os.getpid(), signal.SIGKILL)


def main(directory: Path, since_ms: int) -> None:
    """Run to the end of the input, or to the kill."""
    app = sw.App("bounded")
    (
        app.source("events")
        .transform(lambda df: df.where("event_type = 'view'"))
        .window(sw.tumbling("1 s"))
        .aggregate(n=sw.count(), users=sw.mean("user_id"))
        .to(sw.callback(show), error=sw.within(0.1))
    )
    spark = sw.session("local[2]")
    clock = ManualClock(START_MS + since_ms)
    with sw.Runtime(spark, journal=directory, clock=clock) as runtime:
        events = sw.ysb(rate=4_000, delay="exp", gap="gamma", start_ms=START_MS, seconds=SECONDS)
        runtime.deploy(app, "test", events=events)
        runtime.run()
        (report,) = runtime.queries()
        assert report.quarantined is None, report.quarantined
    print("finished", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
