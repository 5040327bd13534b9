"""However events arrive and steps are cut, each window's last pane is that of one Spark batch."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial, reduce
from itertools import count
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

import slackwater as sw
from slackwater.app.nodes import leaves
from slackwater.app.outputs import Output
from slackwater.app.results import Result
from slackwater.app.stream import App, Stream
from slackwater.app.watermarks import WatermarkStrategy
from slackwater.app.windows import CountWindows, KeyedWindows, SessionWindows, Windows
from slackwater.errors import SinkError
from slackwater.lateness.tier_policies import Bootstrap, Standard
from slackwater.lateness.triggers import AmendTrigger
from slackwater.runtime import ledger as ledgers
from slackwater.runtime import tiers
from slackwater.runtime.placing import Limits
from slackwater.runtime.reports import PaneReport, QueryReport, StepReport
from slackwater.runtime.runtime import Runtime
from slackwater.scheduling.policies import POLICIES, policy_named
from slackwater.scheduling.snapshot import Decision, FleetSnapshot, Policy
from slackwater.spark.sinks.base import Sink, SinkWriter
from slackwater.spark.sinks.memory import MemorySink
from slackwater.testing import ManualClock, Script, assert_same_panes, batch_panes, scripted

pytestmark = pytest.mark.spark

SCHEMA = "ts timestamp, k string, g int, v double, n bigint, d decimal(12,2), mark boolean"
AGGREGATES = {
    "rows": sw.count(),
    "values": sw.count("v"),
    "sum_double": sw.sum("v"),
    "sum_whole": sw.sum("n"),
    "sum_decimal": sw.sum("d"),
    "sum_expression": sw.sum("v * 2 + n"),
    "mean_double": sw.mean("v"),
    "mean_whole": sw.mean("n"),
    "mean_decimal": sw.mean("d"),
    "least": sw.min("v"),
    "least_text": sw.min("k"),
    "most_decimal": sw.max("d"),
    "latest": sw.max("ts"),
    "spread": sw.variance("v"),
    "deviation": sw.stddev("n"),
    "distinct_keys": sw.approx_distinct("k"),
    "distinct_values": sw.approx_distinct("v"),
    "median": sw.approx_quantile("v", 0.5),
    "tails": sw.approx_quantile("n", (0.05, 0.95)),
}
# Those whose results do not depend on the order of addition.
EXACT = ("rows", "values", "sum_whole", "sum_decimal", "least", "most_decimal", "distinct_keys")
SKETCHES = ("distinct_keys", "distinct_values", "median", "tails")
NUMBERS = (*EXACT, "sum_double", "sum_expression", "mean_double", "mean_decimal", "median")
STALENESS = (None, 0.01, 0.3, sw.amend_every(interval="500 ms"), sw.amend_every(events=3))
KEYS = [(), ("k",), ("g",), ("k", "g"), ("v",), ("d", "mark")]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
YEAR_2024_MS = 1_704_067_200_000


@dataclass(frozen=True)
class Event:
    """Say what a record holds, and how late it is behind its arrival."""

    partition: int
    behind_us: int
    content: int

    def values(self, arrives_ms: int) -> dict[str, Any]:
        x = self.content
        return {
            "ts": EPOCH + timedelta(microseconds=arrives_ms * 1_000 - self.behind_us),
            "k": (None, "a", "b", "it's", "")[x % 5],
            "g": (None, 0, 1)[x % 3],
            "v": None if x % 7 == 0 else x * 0.3 - 10,
            "n": None if x % 11 == 0 else (x - 30) * 10 ** (x % 9),
            "d": None if x % 6 == 0 else Decimal(x * 7 - 99) / 100,
            "mark": x % 4 == 0,
        }


@dataclass(frozen=True)
class Input:
    """Hold the events of one source: some instants of arrival, and what comes at each."""

    partitions: int
    batches: tuple[tuple[int, tuple[Event, ...]], ...]  # (arrival after the one before, events)

    def arrivals(self, start_ms: int) -> list[tuple[int, Event]]:
        found, now_ms = [], start_ms
        for gap_ms, events in self.batches:
            now_ms += gap_ms
            found += [(now_ms, each) for each in events]
        return found

    def places(self) -> list[tuple[int, int]]:
        """List the partition and offset of each event."""
        offsets: Counter[int] = Counter()
        found = []
        for _, each in self.arrivals(0):
            found.append((each.partition, offsets[each.partition]))
            offsets[each.partition] += 1
        return found


# Where state lives: moved at every opportunity, so that steps, moves and restarts meet.
TIERS: dict[str, dict[str, Any]] = {
    "default": {},
    "memory": {"state": "memory"},
    "eager": {"tiering": Standard(small_bytes=0)},
    "bootstrap": {"tiering": Bootstrap(small_bytes=0, keep_share=0.5)},
    "no memory": {"memory": 1},
}


@dataclass(frozen=True)
class Case:
    """Hold everything that one run is made of."""

    inputs: tuple[tuple[Input, ...], ...]  # per deployment, per source of the app
    windows: Windows
    watermark: str
    bound_ms: int
    lateness_ms: int
    start_ms: int
    pipeline: str
    by: tuple[str, ...]
    aggregates: tuple[str, ...]
    apply: str | None
    policy: str
    step_limits: tuple[int, ...]
    prepare: bool
    slots: int
    limits: Limits
    tiers: str
    restarts: tuple[int, ...]  # after so many steps the runtime is closed and opened again
    snapshot_records: int
    failing_writes: frozenset[int]  # the sink has taken these when it reports a failure
    join: str | None = None  # of "results" or "rows"
    hows: tuple[str, ...] = ()
    stages: tuple[Windows, ...] = ()  # of further stages
    stage_by: tuple[str, ...] = ()
    staleness: float | AmendTrigger | None = None

    @property
    def event_times(self) -> dict[str, str]:
        return {"one": "ts", "two": "ts" if self.join is None else "at"}

    def strategy(self, event_time: str) -> WatermarkStrategy:
        bound = timedelta(milliseconds=self.bound_ms)
        if self.watermark == "punctuated":
            passed = f"timestamp_millis(unix_millis({event_time}) - {self.bound_ms}L)"
            return sw.punctuated(f"CASE WHEN mark THEN {passed} END")
        return sw.bounded(bound) if self.watermark == "bounded" else sw.from_source()


def some_input(chance: Random, latest_ms: int) -> Input:
    partitions = chance.randint(1, 3)

    def some_event() -> Event:
        behind_us = chance.choice([0, chance.randint(0, latest_ms * 1_000), latest_ms * 1_000])
        return Event(chance.randrange(partitions), behind_us, chance.randint(0, 60))

    def some_batch() -> tuple[int, tuple[Event, ...]]:
        gap_ms = chance.choice([0, chance.randint(0, 1_000), chance.randint(0, 5_000)])
        return gap_ms, tuple(some_event() for _ in range(chance.randint(1, 10)))

    return Input(partitions, tuple(some_batch() for _ in range(chance.randint(1, 5))))


def some_windows(chance: Random, least_ms: int) -> Windows:
    size_ms = chance.randint(least_ms, chance.choice([max(50, least_ms), 6_000]))
    slide_ms = chance.choice(
        [size_ms, chance.randint(-(-size_ms // 4), size_ms), chance.randint(size_ms, 2 * size_ms)]
    )
    if chance.random() < 0.5:
        return Windows(size_ms, slide_ms, spread=True)
    return Windows(size_ms, slide_ms, offset_ms=chance.randrange(slide_ms))


@st.composite
def cases(draw: st.DrawFn, *, apply: bool = False) -> Case:
    """Draw a case from one seed: all settings vary at once, which few examples need."""
    chance = draw(st.randoms(use_true_random=True))
    bound_ms, lateness_ms = chance.randint(0, 2_000), chance.randint(0, 2_000)
    pipeline = chance.choice(["plain", "fused", "unfused", "union", "joined", "unsafe"])
    watermark = chance.choice(["bounded", "from_source", "punctuated"])
    # Windows that Spark closes, as it does large ones, take a job each: fewer of them will do.
    limits = chance.choice(
        [
            Limits(),
            Limits(journal_bytes=0),
            Limits(journal_bytes=0, function_bytes=0),
            Limits(window_rows=2),
            Limits(window_bytes=200),
        ]
    )
    each_a_job = apply or limits != Limits()
    return Case(
        inputs=tuple(
            tuple(
                some_input(chance, bound_ms + lateness_ms)
                for _ in range(2 if pipeline == "union" else 1)
            )
            for _ in range(1 if apply else chance.randint(1, 3))
        ),
        windows=some_windows(chance, 2_000 if each_a_job else 1),
        watermark=watermark,
        bound_ms=bound_ms,
        lateness_ms=lateness_ms,
        start_ms=chance.choice([-5_000, YEAR_2024_MS]) if watermark == "bounded" else YEAR_2024_MS,
        pipeline=pipeline,
        by=() if apply else chance.choice(KEYS),
        aggregates=() if apply else tuple(chance.sample(sorted(AGGREGATES), 6)),
        apply=chance.choice(["ranking", "pandas"]) if apply else None,
        policy=chance.choice(sorted(POLICIES)),
        step_limits=tuple(chance.randint(4, 30) for _ in range(chance.randint(1, 3))),
        prepare=chance.random() < 0.7,
        slots=chance.randint(1, 2),
        limits=limits,
        tiers=chance.choice(sorted(TIERS)),
        restarts=tuple(chance.randint(0, 4) for _ in range(chance.randint(0, 2))),
        snapshot_records=chance.choice([10_000, 3]),
        failing_writes=frozenset(chance.choice([(), (0,), (1, 6)])),
        staleness=chance.choice(STALENESS) if lateness_ms else None,
    )


@st.composite
def joins(draw: st.DrawFn, join: str) -> Case:
    """Draw a case and join it with another stream, or with two, the second time with itself."""
    case = draw(cases())
    chance = draw(st.randoms(use_true_random=True))
    latest_ms = case.bound_ms + case.lateness_ms
    rows = join == "rows"
    return replace(
        case,
        inputs=tuple(
            (some_input(chance, latest_ms), some_input(chance, latest_ms))
            for _ in case.inputs[: 1 if rows else 3]
        ),
        windows=some_windows(chance, 2_000) if rows else case.windows,
        pipeline=chance.choice(["plain", "fused", "unfused", "joined", "unsafe"]),
        by=chance.choice(KEYS[1:4]) if rows else case.by,
        apply=chance.choice([None, None, "ranking"]) if rows else None,
        join=join,
        hows=tuple(chance.choice(["inner", "left", "full"]) for _ in range(chance.randint(1, 2))),
    )


@st.composite
def chains(draw: st.DrawFn) -> Case:
    """Draw a case, joined or not, and window its results again."""
    case = draw(st.one_of(cases(), cases(apply=True), joins("results"), joins("rows")))
    chance = draw(st.randoms(use_true_random=True))
    # Watermarks that wait little, so that amendments reach windows that had closed in all stages.
    latest_ms = case.bound_ms + case.lateness_ms
    bound_ms = chance.randint(0, latest_ms // 4)
    return replace(
        case,
        bound_ms=bound_ms,
        lateness_ms=latest_ms - bound_ms,
        apply=None if case.apply is None else "ranking",
        aggregates=case.aggregates and (*EXACT[:2], *chance.sample(NUMBERS[2:], 4)),
        stages=tuple(some_windows(chance, 500) for _ in range(chance.randint(1, 2))),
        stage_by=chance.choice([(), case.by[:1], ("rows",)]),
    )


@st.composite
def keyed(draw: st.DrawFn) -> Case:
    """Draw a case whose windows each key has for itself, with many late events."""
    case = draw(cases())
    chance = draw(st.randoms(use_true_random=True))
    latest_ms = case.bound_ms + case.lateness_ms
    bound_ms = chance.randint(0, latest_ms // 4)
    pause = timedelta(milliseconds=chance.choice([1, chance.randint(1, 3_000), 3_600_000]))
    events = chance.randint(1, 6)
    windows: Windows = sw.counted(events, slide=chance.randint(1, events), pause=pause)
    if chance.random() < 0.5:
        windows = sw.sessions(timedelta(milliseconds=chance.choice([1, 200, 1_000, 3_000])))
    exact = [name for name in sorted(AGGREGATES) if name not in SKETCHES]
    return replace(
        case,
        windows=windows,
        bound_ms=bound_ms,
        lateness_ms=latest_ms - bound_ms,
        staleness=None,  # refused: they are amended with every late event
        by=chance.choice(KEYS),
        aggregates=case.aggregates
        if isinstance(windows, SessionWindows)
        else tuple(chance.sample(exact, 6)),
    )


@dataclass
class Choppy:
    """Choose as another policy does, but cut steps as small as a list of limits says."""

    inner: Policy
    limits: tuple[int, ...]
    name: str = "choppy"
    decisions: int = 0

    def decide(self, fleet: FleetSnapshot) -> Decision:
        found = self.inner.decide(fleet)
        self.decisions += 1
        limit = self.limits[self.decisions % len(self.limits)]
        return replace(found, steps=tuple(replace(s, max_events=limit) for s in found.steps))


@dataclass
class Panes:
    """Note every pane that is committed, and count the steps."""

    reports: list[PaneReport] = field(default_factory=list)
    steps: int = 0

    def step_committed(self, report: StepReport) -> None:
        self.reports += report.panes
        self.steps += 1


class Unreliable(Sink):
    """Pass panes on, and now and then fail when they are written: between pane and commit."""

    def __init__(self, inner: MemorySink, failing: frozenset[int]) -> None:
        self._inner, self._failing, self._writes = inner, failing, count()

    def open(self) -> SinkWriter:
        return _UnreliableWriter(self)

    def take(self, panes: pa.Table) -> None:
        self._inner.take(panes)
        if next(self._writes) in self._failing:
            raise SinkError("the answer was lost on the way")


class _UnreliableWriter(SinkWriter):
    def __init__(self, sink: Unreliable) -> None:
        self._sink = sink

    def write(self, panes: pa.Table, lane: int) -> None:
        self._sink.take(panes)


def ranked(rows: DataFrame) -> DataFrame:
    """Keep the two best rows of each key: what no incremental aggregate can do."""
    others = [name for name in rows.columns if name not in ("k", "v")]  # so that all is decided
    order = Window.partitionBy("k").orderBy(F.desc_nulls_last("v"), *others)
    return rows.withColumn("place", F.row_number().over(order)).where("place <= 2")


def by_pandas(rows: DataFrame) -> DataFrame:
    """Pass each group through a pandas function."""

    def largest(group: pd.DataFrame) -> pd.DataFrame:
        values = group["v"].dropna()
        width = float(values.max() - values.min()) if len(values) else None
        return pd.DataFrame({"g": group["g"].head(1), "size": len(group), "width": width})

    return rows.groupBy("g").applyInPandas(largest, "g int, size long, width double")


def described(spark: SparkSession, case: Case, sink: Sink) -> tuple[App, Output]:
    app = App("equivalence")
    stream = app.source("one")
    names = spark.createDataFrame([("a", 1), ("b", 2), ("", 3)], "k string, place int")
    match case.pipeline:
        case "fused":
            stream = stream.transform(_sifted)
        case "unfused":
            columns = [column.split()[0] for column in SCHEMA.split(", ")]
            stream = stream.transform(lambda df: df.select(*columns))
        case "union":
            stream = stream.transform(_sifted).union(app.source("two"))
        case "joined":
            stream = stream.transform(lambda df: df.join(F.broadcast(names), "k", "left"))
        case "unsafe":
            stream = stream.transform(lambda df: df.withColumn("n", F.expr("n + int(rand())")))
    result = {"results": joined_results, "rows": joined_rows, None: plain_result}[case.join](
        app, stream, case
    )
    for number, windows in enumerate(case.stages):
        result = next_stage(case, result, number, windows)
    lateness = timedelta(milliseconds=case.lateness_ms)
    return app, result.to(sink, lateness=lateness, staleness=case.staleness)


def plain_result(app: App, stream: Stream, case: Case) -> Result:
    windowed = stream.window(case.windows, by=case.by)
    if case.apply is not None:
        return windowed.apply({"ranking": ranked, "pandas": by_pandas}[case.apply])
    return windowed.aggregate(**{name: AGGREGATES[name] for name in case.aggregates})


def joined_results(app: App, stream: Stream, case: Case) -> Result:
    """Join with a stream that calls its event time otherwise, and perhaps with the first again."""
    legs = [app.source("two"), app.source("one")][: len(case.hows)]
    result = stream.window(case.windows, by=case.by).aggregate(
        **{name: AGGREGATES[name] for name in case.aggregates}
    )
    for number, (how, leg) in enumerate(zip(case.hows, legs, strict=True), start=2):
        names = [name for name in case.aggregates if name != "latest"]
        other = leg.window(case.windows, by=tuple(reversed(case.by))).aggregate(
            **{f"{name}_{number}": AGGREGATES[name] for name in names}
        )
        result = result.join(other, on=case.by, how=how)
    if "rows" in case.aggregates:
        result = result.derive(difference=lambda t: pc.subtract(t["rows"], t["rows_2"]))
    return result


def joined_rows(app: App, stream: Stream, case: Case) -> Result:
    keys = list(case.by)
    two = app.source("two").transform(
        lambda df: df.selectExpr("_sw_query", "at", *keys, "v AS w", "n AS m")
    )
    joined = stream.window(case.windows).join(
        two.window(case.windows), on=case.by, how=case.hows[0]
    )
    if len(case.hows) > 1:
        three = app.source("one").transform(lambda df: df.select("ts", *keys, F.lit(1).alias("x")))
        joined = joined.join(three.window(case.windows), on=case.by, how=case.hows[1])
    if case.apply is not None:
        return joined.apply(ranked)
    result = joined.aggregate(
        by=case.by[:1],
        rows=sw.count(),
        values=sw.count("w"),
        sum_whole=sw.sum("n - m"),
        most_decimal=sw.max("d"),
        mean_double=sw.mean("v + w"),
        distinct_keys=sw.approx_distinct("m"),
    )
    return result.derive(twice=lambda t: pc.multiply(t["rows"], 2))


def next_stage(case: Case, result: Result, number: int, windows: Windows) -> Result:
    """Window the results again, by a key or a value, with every aggregate that there is."""
    if number:
        return result.window(windows).aggregate(
            windows=sw.count(), all_rows=sw.sum("count_0"), narrowest=sw.min("spread_0")
        )
    if case.apply is not None:
        columns: tuple[str, ...] = ("n", "v", "d", "place")
        exact, by = columns[:1], case.stage_by[:1] if case.stage_by != ("rows",) else ("g",)
    elif case.join == "rows":
        columns = ("rows", "values", "sum_whole", "most_decimal", "mean_double", "twice")
        exact, by = columns[:3], case.stage_by
    else:
        columns = tuple(name for name in case.aggregates if name in NUMBERS)
        exact, by = tuple(name for name in columns if name in EXACT), case.stage_by
    functions = [sw.sum, sw.mean, sw.min, sw.max, sw.count]
    chosen = {f"x{i}": functions[i % 5](name) for i, name in enumerate(columns)}
    chained = result.window(windows, by=by).aggregate(
        count_0=sw.count(), spread_0=sw.variance(exact[-1]), wide=sw.stddev(exact[0]), **chosen
    )
    return chained.derive(
        thrice=lambda t: pc.multiply(t["count_0"], 3), ends=lambda t: t["window_end"]
    )


def _sifted(df: DataFrame) -> DataFrame:
    nan = "IF(g = 1, double('NaN'), v)"
    return df.where("n IS NULL OR n <> 0").withColumn("v", F.expr(nan))


def script_of(case: Case, name: str, source: Input) -> Script:
    event_time = case.event_times[name]
    script = scripted(
        SCHEMA.replace("ts ", f"{event_time} "),
        event_time=event_time,
        watermark=case.strategy(event_time),
        partitions=source.partitions,
    )
    for arrives_ms, each in source.arrivals(case.start_ms):
        values = each.values(arrives_ms)
        values[event_time] = values.pop("ts")
        script.add(arrives=arrives_ms, partition=each.partition, **values)
        if case.watermark == "from_source":
            passed_ms = arrives_ms - case.bound_ms
            script.announce(passed_ms, arrives=arrives_ms, partition=each.partition)
    return script.end()


def expected(spark: SparkSession, case: Case, output: Output) -> DataFrame:
    batches = []
    counted = isinstance(case.windows, CountWindows)  # which goes by the order of arrival too
    places = ", _sw_partition int, _sw_offset bigint" if counted else ""
    for number, sources in enumerate(case.inputs):
        frames = {
            name: spark.createDataFrame(
                [
                    (*e.values(ms).values(), *(place if counted else ()))
                    for (ms, e), place in zip(
                        source.arrivals(case.start_ms), source.places(), strict=True
                    )
                ],
                SCHEMA.replace("ts ", f"{case.event_times[name]} ") + places,
            )
            for name, source in zip(("one", "two"), sources, strict=False)
        }
        times = case.event_times
        batches.append(
            batch_panes(output, frames, event_time=times, query=f"q{number}", number=number)
        )
    return reduce(DataFrame.union, batches)


def run(spark: SparkSession, case: Case, app: App, panes: Panes) -> dict[str, QueryReport]:
    """Run a case to its end, with the restarts it asks for."""
    clock = ManualClock(max(0, case.start_ms))
    reports: dict[str, QueryReport] = {}
    with TemporaryDirectory() as journal, pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledgers, "SNAPSHOT_RECORDS", case.snapshot_records)
        patch.setattr(tiers, "LOOK_EVERY_MS", 0.0)
        patch.setattr(tiers, "PATIENCE", 0)
        for steps in (*case.restarts, None):
            with Runtime(
                spark,
                policy=Choppy(policy_named(case.policy), case.step_limits),
                journal=journal,
                slots=case.slots,
                prepare=case.prepare,
                durable=False,
                dead_letters="count",
                limits=case.limits,
                clock=clock,
                storage=f"{journal}/elsewhere" if case.tiers == "eager" else None,
                **TIERS[case.tiers],
            ) as runtime:
                runtime.observe(panes)
                for number, sources in enumerate(case.inputs):
                    named = {
                        source: script_of(case, source, events)
                        for source, events in zip(("one", "two"), sources, strict=False)
                    }
                    runtime.deploy(app, f"q{number}", reset=False, **named)
                enough = None if steps is None else panes.steps + steps
                runtime.run(until=partial(_reached, panes, enough))
                reports = {report.name: report for report in runtime.queries()}
    return reports


def _reached(panes: Panes, steps: int | None) -> bool:
    return steps is not None and panes.steps >= steps


def check(spark: SparkSession, case: Case) -> None:
    """Run a case as a stream and as a batch, and compare; then account for every record."""
    sink, panes = sw.memory(), Panes()
    app, output = described(spark, case, Unreliable(sink, case.failing_writes))
    reports = run(spark, case, app, panes)

    for number, sources in enumerate(case.inputs):
        report = reports[f"q{number}"]
        assert report.quarantined is None
        sizes = dict(zip(("one", "two"), (len(s.arrivals(0)) for s in sources), strict=False))
        assert report.records == sum(sizes[leaf.name] for leaf in leaves(output.stream))
        assert (report.rejected, report.too_late_rows) == (0, 0)
        assert (report.queued, report.open_windows, report.state_rows) == (0, 0, 0)
    if isinstance(case.windows, KeyedWindows):
        check_keyed_panes(panes.reports, sink, case)
    else:
        check_panes(panes.reports, sink)
    assert_same_panes(sink.table(), expected(spark, case, output))
    late = sum(pane.timing in ("late", "final") for pane in panes.reports)
    kind = f"{case.join or 'no'} join, {len(case.stages)} further stages, {case.pipeline}"
    event(f"{kind}, {'with' if late else 'without'} late panes")


def check_panes(reports: list[PaneReport], sink: MemorySink) -> None:
    """Hold panes to their identity: each once, numbered from 0, only the first on time."""
    numbers: dict[tuple[str, int], list[int]] = {}
    for pane in reports:
        numbers.setdefault((pane.query, pane.window_start_ms), []).append(pane.pane)
        assert pane.timing in ("late", "final") or pane.pane == 0
    assert all(found == list(range(len(found))) for found in numbers.values())
    rows = Counter(
        (row["query"], (row["window_start"] - EPOCH) // timedelta(milliseconds=1), row["pane"])
        for row in sink.rows()
    )
    told = {(p.query, p.window_start_ms, p.pane): p.rows for p in reports if p.rows}
    assert rows == told


def check_keyed_panes(reports: list[PaneReport], sink: MemorySink, case: Case) -> None:
    """Hold panes to their emission: nothing is taken back that was not shown, and all is told."""
    shown: dict[tuple[Any, ...], int] = {}
    for row in sink.rows():
        window = (row["query"], row["window_start"], *(row[key] for key in case.by))
        if row["timing"] == "retracted":
            assert window in shown
            assert shown.pop(window) < row["pane"]
            assert all(row[name] is None for name in case.aggregates)
        else:
            before = shown.get(window, -1)
            assert before <= row["pane"]
            assert row["timing"] == "late" or before in (-1, row["pane"])
            shown[window] = row["pane"]
    told = Counter((pane.query, pane.pane, pane.timing) for pane in reports)
    assert told == Counter((row["query"], row["pane"], row["timing"]) for row in sink.rows())
    taken_back = any(pane.timing == "retracted" for pane in reports)
    event(f"{case.windows.text.split()[0]} windows taken back: {taken_back}")


# A case comes from one seed as a whole: there is nothing to shrink.
examples = settings(
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    deadline=None,
)


@settings(examples, max_examples=7)
@given(case=cases())
def test_aggregates_equal_one_batch(spark: SparkSession, case: Case) -> None:
    check(spark, case)


@settings(examples, max_examples=3)
@given(case=cases(apply=True))
def test_functions_of_a_window_equal_one_batch(spark: SparkSession, case: Case) -> None:
    check(spark, case)


@settings(examples, max_examples=4)
@given(case=joins("results"))
def test_joined_results_equal_one_batch(spark: SparkSession, case: Case) -> None:
    check(spark, case)


@settings(examples, max_examples=2)
@given(case=joins("rows"))
def test_joined_rows_equal_one_batch(spark: SparkSession, case: Case) -> None:
    check(spark, case)


@settings(examples, max_examples=5)
@given(case=keyed())
def test_sessions_and_counted_windows_equal_one_batch(spark: SparkSession, case: Case) -> None:
    check(spark, case)


@settings(examples, max_examples=4)
@given(case=chains())
def test_chained_windows_equal_one_batch(spark: SparkSession, case: Case) -> None:
    check(spark, case)


@pytest.mark.slow
@settings(examples, max_examples=30)
@given(case=st.one_of(joins("results"), joins("rows"), chains(), chains()))
def test_many_more_joins_and_chains_equal_one_batch(spark: SparkSession, case: Case) -> None:
    check(spark, case)


@pytest.mark.slow
@settings(examples, max_examples=10)
@given(case=keyed())
def test_many_more_sessions_and_counted_windows_equal_one_batch(
    spark: SparkSession, case: Case
) -> None:
    check(spark, case)


@pytest.mark.slow
@settings(examples, max_examples=40)
@given(case=cases())
def test_many_more_aggregates_equal_one_batch(spark: SparkSession, case: Case) -> None:
    check(spark, case)


@pytest.mark.slow
@settings(examples, max_examples=10)
@given(case=cases(apply=True))
def test_many_more_functions_of_a_window_equal_one_batch(spark: SparkSession, case: Case) -> None:
    check(spark, case)
