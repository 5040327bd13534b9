"""A process that kills itself while window state is moved.

    python tier_child.py DIRECTORY POINT NUMBER MOMENT

runs queries over finite inputs, with all state on the move, and ends by SIGKILL at the NUMBERth
call of POINT (write, fetch, remove, move), MOMENT being before, during or after it. With the point
"none" it runs to its end and prints "finished".
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import slackwater as sw
from slackwater.app.outputs import Output
from slackwater.lateness.compacting import to_compact
from slackwater.lateness.tier_policies import Bootstrap
from slackwater.runtime import compaction, ledger, tiers
from slackwater.runtime.block_files import LocalBlockFiles
from slackwater.runtime.placing import Limits
from slackwater.scheduling.snapshot import Decision, FleetSnapshot
from slackwater.spark.sources.generator import Generator

EVENTS = 12_000


class SmallSteps:
    """Choose as round_robin does, a thousand events at a time, so that there are many moves."""

    name = "small_steps"

    def decide(self, fleet: FleetSnapshot) -> Decision:
        """Limit every step."""
        decision = sw.round_robin().decide(fleet)
        return Decision(tuple(replace(step, max_events=1_000) for step in decision.steps))


def generated(seed: int) -> Generator:
    """Describe an input with a long tail of delays that the watermark does not wait for."""
    return sw.ysb(
        rate=1_000,
        delay="exp",
        watermark_lag="100 ms",
        seed=seed,
        limit=EVENTS,
        start_ms=1_700_000_000_000,
    )


def described(directory: Path) -> list[tuple[sw.App, Output]]:
    """Describe a query whose state is partials, and one whose state is rows."""
    counts, rows = sw.App("counts"), sw.App("rows")
    windows = counts.source("events").window(sw.tumbling("2 seconds"), by="user_id")
    totals = windows.aggregate(n=sw.count(), ads=sw.sum("ad_id"))
    best = (
        rows.source("events")
        .window(sw.tumbling("3 seconds"))
        .apply(lambda df: df.groupBy("ad_type").agg({"user_id": "max", "*": "count"}))
    )
    return [
        (counts, totals.to(sw.parquet(directory / "counts"), lateness="1 hour")),
        (rows, best.to(sw.parquet(directory / "rows"), lateness="1 hour")),
    ]


def kill_at(point: str, number: int, moment: str) -> None:
    """Wrap the function that a point names, so that a certain call is the process's last."""
    holder, name = {
        "write": (LocalBlockFiles, "write"),
        "fetch": (LocalBlockFiles, "read"),
        "remove": (LocalBlockFiles, "remove"),
        "move": (ledger.Ledger, "move"),
    }[point]
    function: Callable[..., Any] = getattr(holder, name)
    calls = count(1)

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def wrapped(self: Any, *given: Any) -> Any:
        last = next(calls) == number
        if last and moment == "during" and point == "write":
            place = self._directory / given[0]
            place.parent.mkdir(parents=True, exist_ok=True)
            place.with_name("_tmp-" + place.name).write_bytes(given[1].slice(0, given[1].size // 2))
            die()
        if last and moment != "after":
            die()
        result = function(self, *given)
        if last:
            die()
        return result

    setattr(holder, name, wrapped)


def main(directory: Path, point: str, number: int, moment: str) -> None:
    """Run to the end of all inputs, or to the kill."""
    ledger.SNAPSHOT_RECORDS = 20
    tiers.LOOK_EVERY_MS, tiers.PATIENCE = 0.0, 0
    setattr(compaction, "to_compact", partial(to_compact, least=3))  # noqa: B010
    spark = sw.session("local[2]")
    with sw.Runtime(
        spark,
        journal=directory / "state",
        policy=SmallSteps(),
        memory="8 MB",
        tiering=Bootstrap(small_bytes=0, keep_share=0.1),
        limits=Limits(journal_bytes=4_000, function_bytes=20_000),
    ) as runtime:
        found = set(runtime._blocks._files.names())
        assert found == runtime._ledger.block_paths(), "orphans, or blocks that are missing"
        if point != "none":
            kill_at(point, number, moment)
        for seed, (app, _) in enumerate(described(directory)):
            runtime.deploy(app, app.name, events=generated(seed))
        runtime.run()
        for query in runtime.queries():
            assert query.quarantined is None, query.quarantined
        assert not runtime._blocks._files.names(), "files of windows that are over"
    print("finished", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4])
