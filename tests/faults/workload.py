"""A small fixed workload with everything that reaches the disk, and what it must come to.

Five queries over one scripted stream, whose events are on time, late (they amend their windows),
far too late or unreadable (they become dead letters). Window state moves between memory and files,
the journal is replaced by snapshots, sinks begin new files: all of it every few records.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructType, TimestampType
from tests.faults.faulty_disk import FaultyDisk

import slackwater as sw
from slackwater import disk
from slackwater.lateness.compacting import to_compact
from slackwater.lateness.tier_policies import Bootstrap
from slackwater.runtime import compaction, ledger, tiers
from slackwater.runtime.placing import Limits
from slackwater.scheduling.snapshot import Decision, FleetSnapshot
from slackwater.spark.sinks.dead_letters import DeadLetterFiles
from slackwater.spark.sinks.pane_tables import last_panes
from slackwater.spark.sinks.parquet import read_panes
from slackwater.testing import ManualClock, Script, scripted

START_MS = 1_700_000_000_000
SECONDS = 16
SPACING_MS = 400
BURST_MS = 2_000  # records arrive together, so that there are few steps
LATENESS = "4 seconds"
SESSION_GAP_MS = 1_300
QUERIES = ("one", "two", "sliding", "chain", "session")
WITH_SPARK = ("two", "sliding", "rows")  # the last is a function over each window's rows

Letter = tuple[str, int, int, str]  # query, partition, offset, reason


@dataclass(frozen=True)
class Event:
    """Hold a sound record."""

    partition: int
    offset: int
    time_ms: int
    key: str
    value: int
    too_late: bool


@dataclass(frozen=True)
class Result:
    """Hold what a run left: the rows that hold now, and dead letters, each as often as found."""

    rows: Mapping[str, Counter[tuple[Any, ...]]]
    letters: Counter[Letter]


class SmallSteps:
    """Choose as round_robin does, a few events at a time.

    So what is too late is so in every run: its windows are gone before the step that reads it, even
    where a process finds all of the input waiting.
    """

    name = "small_steps"

    def decide(self, fleet: FleetSnapshot) -> Decision:
        """Limit every step."""
        decision = sw.round_robin().decide(fleet)
        return Decision(tuple(replace(step, max_events=8) for step in decision.steps))


def stream() -> tuple[Script, list[Event], list[tuple[int, int]]]:
    """Write the records: the script, the sound ones, and the places of those that are not."""
    chance = random.Random(7)
    script = scripted(
        StructType().add("ts", TimestampType()).add("k", StringType()).add("v", LongType()),
        event_time="ts",
        watermark=sw.bounded("1 second"),
        partitions=2,
    )
    planned: list[tuple[int, int | None, bool]] = []  # arrival, event time, too late
    for number in range(SECONDS * 1_000 // SPACING_MS):
        time_ms = START_MS + number * SPACING_MS + chance.randrange(100)
        delay_ms = chance.choice([0, 100, 2_800, 2_800])
        planned.append((time_ms + delay_ms, time_ms, False))
    for second in (SECONDS - 1, SECONDS):
        arrival_ms = START_MS + second * 1_000
        planned.append((arrival_ms, START_MS + chance.randrange(900), True))  # longer than is kept
        planned.append((arrival_ms - 12_000, None, False))
    planned = [(at - at % BURST_MS + BURST_MS, time, late) for at, time, late in planned]
    events, unsound = [], []
    for place, (arrival_ms, time, too_late) in enumerate(sorted(planned, key=lambda each: each[0])):
        partition = place % 2
        offset = len(script.lanes[partition].records)
        if time is None:
            script.add_line('{"ts": "2023-', arrives=arrival_ms, partition=partition)
            unsound.append((partition, offset))
            continue
        event = Event(
            partition, offset, time, chance.choice("abc"), chance.randrange(1_000), too_late
        )
        moment = datetime.fromtimestamp(time / 1_000, UTC).replace(tzinfo=None)
        script.add(arrives=arrival_ms, partition=partition, ts=moment, k=event.key, v=event.value)
        events.append(event)
    return script.end(), events, unsound


def apps(directory: Path) -> dict[str, sw.App]:
    """Describe the queries, by the names they are deployed under."""

    def to(result: Any, name: str) -> None:
        result.to(sw.parquet(directory / name, roll_writes=3), lateness=LATENESS)

    totals, sliding, chain, session = (sw.App(name) for name in ("t", "s", "c", "g"))
    windowed = totals.source("events").window(sw.tumbling("2 seconds"), by="k")
    to(windowed.aggregate(n=sw.count(), total=sw.sum("v")), "totals")
    windowed = sliding.source("events").window(sw.sliding("3 seconds", "2 seconds"), by="k")
    to(windowed.aggregate(least=sw.min("v"), most=sw.max("v"), n=sw.count()), "sliding")
    first = chain.source("events").window(sw.tumbling("1 second"), by="k").aggregate(n=sw.count())
    second = first.window(sw.tumbling("4 seconds"))
    to(second.aggregate(groups=sw.count(), most=sw.max("n"), all=sw.sum("n")), "chain")
    windowed = session.source("events").window(sw.sessions(f"{SESSION_GAP_MS} ms"), by="k")
    to(windowed.aggregate(n=sw.count(), total=sw.sum("v")), "session")
    rows = sw.App("r")
    to(rows.source("events").window(sw.tumbling("2 seconds")).apply(_totals), "rows")
    return {
        "one": totals,
        "two": totals,
        "sliding": sliding,
        "chain": chain,
        "session": session,
        "rows": rows,
    }


def _totals(rows: DataFrame) -> DataFrame:
    return rows.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("total"))


def sinks(directory: Path) -> list[Path]:
    """List where panes go."""
    return [directory / name for name in ("totals", "sliding", "chain", "session", "rows")]


def in_a_hurry(patch: pytest.MonkeyPatch) -> None:
    """Let the journal be replaced and state be moved every few records."""
    patch.setattr(ledger, "SNAPSHOT_RECORDS", 25)
    patch.setattr(tiers, "LOOK_EVERY_MS", 0.0)
    patch.setattr(tiers, "PATIENCE", 0)
    patch.setattr(compaction, "to_compact", partial(to_compact, least=2))


@contextmanager
def using(other: FaultyDisk) -> Iterator[FaultyDisk]:
    """Let the product use another disk meanwhile."""
    before, disk.current = disk.current, other
    try:
        yield other
    finally:
        disk.current = before


def live(
    spark: Any,
    directory: Path,
    *,
    queries: Sequence[str] = QUERIES,
    resumes: bool = False,
    **settings: Any,
) -> None:
    """Be one process: open, deploy, run to the end of the input, close."""
    script, _, _ = stream()
    clock = ManualClock(script.first_arrival_ms)
    if resumes and script.ended_ms is not None:
        clock.advance_to(script.ended_ms)  # all of the input is waiting
    with sw.Runtime(
        spark,
        journal=directory / "state",
        storage=directory / "storage",
        policy=SmallSteps(),
        slots=1,
        memory="60 KB",
        tiering=Bootstrap(small_bytes=0, keep_share=0.3),
        limits=Limits(journal_bytes=150, function_bytes=400),
        clock=clock,
        **settings,
    ) as runtime:
        described = apps(directory / "out")
        for name in queries:
            runtime.deploy(described[name], name, events=script)
        if resumes:
            for query in runtime.queries():
                runtime.resume(query.name)
        runtime.run()
        if resumes:
            for query in runtime.queries():
                assert query.quarantined is None, query.quarantined
                assert not query.queued, f"{query.name} has not read all"


def found(directory: Path) -> Result:
    """Read what is there, as a user would; refuse a pane that is there twice."""
    rows: dict[str, Counter[tuple[Any, ...]]] = defaultdict(Counter)
    for sink in sinks(directory / "out"):
        panes = read_panes(sink)
        _require_single(panes)
        kept = [name for name in panes.column_names if name not in ("pane", "timing", "accuracy")]
        by = ["k"] if sink.name == "session" else []
        for row in last_panes(panes, by).select(kept).to_pylist():
            query, start, end, *values = row.values()
            rows[query][_ms(start), _ms(end), *values] += 1
    letters = DeadLetterFiles(directory / "state" / "dead-letters").read()
    places = ("query", "partition", "offset", "reason")
    listed = (tuple(row[name] for name in places) for row in letters.to_pylist())
    return Result(rows, Counter(listed))


def expected(queries: Sequence[str] = QUERIES) -> Result:
    """Work out in plain Python what every run must come to."""
    _, events, unsound = stream()
    sound = [event for event in events if not event.too_late]
    totals = _windows(sound, 2_000, 2_000)
    first = _windows(sound, 1_000, 1_000)
    rows: dict[str, Counter[tuple[Any, ...]]] = {
        "one": Counter((*at, k, len(g), sum(g)) for (at, k), g in totals.items()),
        "sliding": Counter(
            (*at, k, min(g), max(g), len(g)) for (at, k), g in _windows(sound, 3_000, 2_000).items()
        ),
        "chain": _chained({key: len(group) for key, group in first.items()}),
        "session": _sessions(sound),
    }
    rows["two"] = rows["rows"] = rows["one"]
    letters = [(each.partition, each.offset, "too late") for each in events if each.too_late]
    letters += [(partition, offset, "malformed") for partition, offset in unsound]
    places = Counter((query, *each) for query in queries for each in letters)
    return Result({query: rows[query] for query in queries}, places)


def require_same(result: Result, wanted: Result) -> None:
    """Compare, and say what is missing and what is too much."""
    for query, want in wanted.rows.items():
        got = result.rows.get(query, Counter())
        assert got == want, f"{query}: missing {want - got}, too much {got - want}"
    missing, extra = wanted.letters - result.letters, result.letters - wanted.letters
    assert not missing | extra, f"dead letters: missing {missing}, too much {extra}"


def _windows(
    events: list[Event], size_ms: int, slide_ms: int
) -> dict[tuple[tuple[int, int], str], list[int]]:
    groups: dict[tuple[tuple[int, int], str], list[int]] = defaultdict(list)
    for event in events:
        start_ms = event.time_ms - event.time_ms % slide_ms
        while start_ms + size_ms > event.time_ms:
            groups[(start_ms, start_ms + size_ms), event.key].append(event.value)
            start_ms -= slide_ms
    return groups


def _chained(first: Mapping[tuple[tuple[int, int], str], int]) -> Counter[tuple[Any, ...]]:
    groups: dict[int, list[int]] = defaultdict(list)
    for ((start_ms, _), _), count in first.items():
        groups[start_ms - start_ms % 4_000].append(count)
    return Counter((at, at + 4_000, len(g), max(g), sum(g)) for at, g in groups.items())


def _sessions(events: list[Event]) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for key in sorted({event.key for event in events}):
        mine = sorted((e.time_ms, e.value) for e in events if e.key == key)
        session: list[tuple[int, int]] = []
        for time_ms, value in [*mine, (10**15, 0)]:
            if session and time_ms - session[-1][0] > SESSION_GAP_MS:
                values = [each for _, each in session]
                ends_ms = session[-1][0] + SESSION_GAP_MS
                found[session[0][0], ends_ms, key, len(values), sum(values)] += 1
                session = []
            session.append((time_ms, value))
    return found


def _require_single(panes: pa.Table) -> None:
    keys = ["query", "window_start", "pane", *(["k"] if "k" in panes.column_names else [])]
    counts = Counter(tuple(row.values()) for row in panes.select(keys).to_pylist())
    twice = [key for key, number in counts.items() if number > 1]
    assert not twice, f"panes twice: {twice[:3]}"


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000)
