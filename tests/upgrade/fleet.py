"""A small fleet with something of everything in its journal, stopped half-way.

    python -m tests.upgrade.fleet journals/NAME

writes the journal (and the results so far) of the version that runs it. Run it before a version's
format changes, and keep what it writes: `test_journals.py` opens each and runs it to its end.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import slackwater as sw
from slackwater.app.stream import Stream
from slackwater.spark.sinks.base import Sink
from slackwater.testing import ManualClock, scripted
from slackwater.testing.script import Script

HALF_WAY_S = 61.5
SECONDS = 120


def events() -> Script:
    """Write the input: three users, some events late, one far too late, one malformed."""
    script = scripted(
        "ts timestamp, user string, amount double", event_time="ts", watermark=sw.bounded("2 s")
    )
    for second in range(SECONDS):
        minute, rest = divmod(second, 60)
        for number, user in enumerate(("ann", "bob", "cat")):
            if (second + number) % (number + 2) == 0:
                at = f"2024-01-01 00:{minute:02d}:{rest:02d}.{number}00"
                script.add(ts=at, user=user, amount=second * 0.5 + number)
        if second % 10 == 7 and second > 20:
            late = second - 15
            at = f"2024-01-01 00:{late // 60:02d}:{late % 60:02d}"
            arrives = f"2024-01-01 00:{minute:02d}:{rest:02d}.500"
            script.add(ts=at, user="late", amount=1.0, arrives=arrives)
    script.add_line("{broken", arrives="2024-01-01 00:01:59.900")
    return script.end("2024-01-01 00:05:00")


def top_amounts(rows: DataFrame) -> DataFrame:
    """Rank users by what they spent."""
    return rows.groupBy("user").agg(F.sum("amount").alias("spent"))


def apps(directory: Path, failing: Callable[[pa.Table], None]) -> dict[str, sw.App]:
    """Describe a query of each kind; all but the last write to Parquet directories of their own."""
    made: dict[str, sw.App] = {}

    def stream(name: str) -> Stream:
        made[name] = sw.App(name)
        return made[name].source("events")

    def out(name: str) -> Sink:
        return sw.parquet(directory / name)

    (
        stream("tumbling")
        .window(sw.tumbling("10 seconds"), by="user")
        .aggregate(n=sw.count(), spent=sw.sum("amount"), mean=sw.mean("amount"))
        .to(out("tumbling"), lateness="20 s")
    )
    (
        stream("sliding")
        .window(sw.sliding("15 seconds", "5 seconds"), by="user")
        .aggregate(n=sw.count(), top=sw.max("amount"))
        .to(out("sliding"), lateness=sw.cover(0.9, start="20 s"), staleness=0.2)
    )
    (
        stream("function")
        .window(sw.tumbling("30 seconds"))
        .apply(top_amounts)
        .to(out("function"), lateness="20 s")
    )
    (
        stream("sessions")
        .window(sw.sessions("3 seconds"), by="user")
        .aggregate(n=sw.count())
        .to(out("sessions"), lateness="20 s")
    )
    (
        stream("counted")
        .window(sw.counted(5), by="user")
        .aggregate(n=sw.count(), spent=sw.sum("amount"))
        .to(out("counted"), lateness="20 s")
    )
    (
        stream("chained")
        .window(sw.tumbling("10 seconds"), by="user")
        .aggregate(n=sw.count())
        .window(sw.tumbling("30 seconds"))
        .aggregate(busiest=sw.max("n"), users=sw.count())
        .to(out("chained"), lateness="20 s")
    )
    (
        stream("failing")
        .window(sw.tumbling("10 seconds"))
        .aggregate(n=sw.count())
        .to(sw.callback(failing))
    )
    return made


def broken(panes: pa.Table) -> None:
    """Let the query be quarantined, with a step that is planned and not committed."""
    raise ValueError("not now")


def run(
    spark: SparkSession,
    directory: Path,
    seconds: float | None = None,
    failing: Callable[[pa.Table], None] = broken,
) -> None:
    """Run the fleet for so long, or to its end, from where its journal is."""
    script = events()
    clock = ManualClock(script.first_arrival_ms)
    with sw.Runtime(spark, journal=directory / "state", clock=clock, slots=1, memory="2 KB") as rt:
        for name, app in apps(directory / "out", failing).items():
            rt.deploy(app, name, events=script)
        if failing is not broken:
            rt.resume("failing")
        rt.run(seconds=seconds)


if __name__ == "__main__":
    run(sw.session(), Path(sys.argv[1]), HALF_WAY_S)
