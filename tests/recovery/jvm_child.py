"""A process whose JVM is killed: run queries over a paced input, with a journal and a Parquet sink.

    python jvm_child.py DIRECTORY SECONDS

prints the JVM's process, a line per committed step, and "finished" at the end of its input, which
comes in at a fixed rate for so many seconds from the first start on.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import slackwater as sw
from slackwater.runtime.reports import StepReport

QUERIES = 4
RATE = 500


class Progress:
    """Tell the parent of every committed step."""

    def step_committed(self, report: StepReport) -> None:
        """Print it."""
        print("step", report.step, flush=True)


def main(directory: Path, seconds: int) -> None:
    """Run to the end of all inputs, or of the JVM."""
    spark = sw.session("local[2]")
    begun = directory / "begun"
    if not begun.exists():
        begun.write_text(str(int(time.time() * 1_000)))
    start_ms = int(begun.read_text())
    app = sw.App("counts")
    windows = app.source("events").window(sw.tumbling("1 second", offset="spread"), by="key")
    windows.aggregate(n=sw.count()).to(sw.parquet(directory / "out"))
    with sw.Runtime(spark, journal=directory / "state") as runtime:
        for query in range(QUERIES):
            events = sw.generator(rate=RATE, limit=RATE * seconds, start_ms=start_ms, seed=query)
            runtime.deploy(app, f"q{query}", events=events)
        runtime.observe(Progress())
        jvm = spark.sparkContext._jvm
        assert jvm is not None
        print("jvm", jvm.java.lang.ProcessHandle.current().pid(), flush=True)
        runtime.run()
    print("finished", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
