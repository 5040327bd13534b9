"""Early panes are estimates with bounds that hold; exact ones follow; a replay samples alike."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from tests.semantics.generated import everything_of

import slackwater as sw
from slackwater.app.outputs import Output
from slackwater.errors import DescriptionError, QuarantinedError, SinkError
from slackwater.scheduling.snapshot import Decision, FleetSnapshot
from slackwater.spark.sinks.base import Sink, SinkWriter
from slackwater.spark.sinks.memory import MemorySink
from slackwater.spark.sources.base import SourceDescription
from slackwater.spark.sources.generator import Generator
from slackwater.testing import ManualClock, batch_panes
from slackwater.testing.kafka_broker import KafkaBroker

START_MS = 1_700_000_000_000 // 3_000 * 3_000
RATE = 1_500
SECONDS = 36
COLUMNS = {
    "kind": "key % 3",
    "value": "1D + (shiftrightunsigned(xxhash64(h), 11) * 1.1102230246251565E-16D) * 2D",
}


def source(seconds: float = SECONDS) -> Generator:
    return sw.generator(
        rate=RATE, delay="exp", gap="gamma", start_ms=START_MS, seconds=seconds, columns=COLUMNS
    )


def described(sink: Sink, **wishes: Any) -> tuple[sw.App, Output]:
    app = sw.App("bounded")
    output = (
        app.source("events")
        .transform(lambda df: df.where("kind <> 2"))
        .window(sw.tumbling("3 s"), by="kind")
        .aggregate(
            n=sw.count(),
            total=sw.sum("value"),
            average=sw.mean("value"),
            spread=sw.stddev("value"),
            median=sw.approx_quantile("value", 0.5, k=4_000),
            most=sw.max("value"),
        )
        .to(sink, error=sw.within(0.1, groups=0.2), **wishes)
    )
    return app, output


def run(
    spark: SparkSession, app: sw.App, journal: Path, *, start_ms: float = START_MS
) -> list[Any]:
    with sw.Runtime(spark, journal=journal, clock=ManualClock(start_ms), slots=1) as runtime:
        runtime.deploy(app, "test", events=source())
        runtime.run()
        return runtime.queries()


def everything(spark: SparkSession) -> DataFrame:
    return everything_of(spark, source(), RATE * SECONDS)


def by_window(rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], dict[str, Any]]:
    return {(row["window_start"], row["kind"]): row for row in rows}


class OneFileAStep:
    """Choose as round_robin does, as many records at a time as a file has."""

    name = "one_file_a_step"

    def decide(self, fleet: FleetSnapshot) -> Decision:
        steps = sw.round_robin().decide(fleet).steps
        return Decision(tuple(replace(step, max_events=3_000) for step in steps))


class FailingOnce(MemorySink):
    """Refuse every pane from some number of writes on, until told otherwise."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after = after

    def take(self, panes: pa.Table) -> None:
        self.after -= 1
        if self.after < 0:
            raise SinkError("out of order")
        super().take(panes)

    def open(self) -> SinkWriter:
        return super().open()


@pytest.mark.spark
def test_early_panes_hold_what_exact_panes_confirm(spark: SparkSession, tmp_path: Path) -> None:
    sink = sw.memory()
    app, output = described(sink, lateness="1 minute")
    reports = run(spark, app, tmp_path)
    assert [report.quarantined for report in reports] == [None, None]
    rows = sink.rows()
    early = by_window([row for row in rows if row["timing"] == "early"])
    exact = by_window(sorted((r for r in rows if r["pane"] > 0), key=lambda row: row["pane"]))
    batch = batch_panes(output, {"events": everything(spark)}, event_time="event_time")
    truth = by_window(batch.toArrow().to_pylist())
    assert exact.keys() == truth.keys()
    names = ("n", "total", "average", "spread", "median", "most")
    for key, row in truth.items():
        for name in names:
            assert exact[key][name] == pytest.approx(row[name], rel=1e-9)
            assert exact[key][f"{name}_low"] == exact[key][name] == exact[key][f"{name}_high"]
        assert (exact[key]["met"], exact[key]["confidence"]) == (True, 1.0)
    assert len(early) >= 14  # two groups of all windows but the first ones, learned from
    held = within = 0
    for key, row in early.items():
        assert row["sampled"] < 0.8 * row["population"]
        assert row["accuracy"] == pytest.approx(row["sampled"] / row["population"], rel=0.01)
        assert row["most"] == row["most_low"] <= truth[key]["most"]
        assert row["most_high"] is None
        for name in names[:-1]:
            held += row[f"{name}_low"] <= truth[key][name] <= row[f"{name}_high"]
            within += abs(row[name] / truth[key][name] - 1) <= 0.1
    results = len(early) * (len(names) - 1)
    assert held / results >= 0.93
    assert within / results >= 0.95
    assert sum(row["met"] for row in early.values()) >= 0.8 * len(early)


@pytest.mark.spark
def test_a_replayed_step_takes_the_same_sample(spark: SparkSession, tmp_path: Path) -> None:
    whole, torn = sw.memory(), FailingOnce(after=7)
    run(spark, described(whole)[0], tmp_path / "whole")
    app = described(torn)[0]
    with pytest.raises(QuarantinedError):
        run(spark, app, tmp_path / "torn")
    torn.after = 1_000
    clock = ManualClock(START_MS + 1_000 * SECONDS)
    with sw.Runtime(spark, journal=tmp_path / "torn", clock=clock, slots=1) as runtime:
        runtime.deploy(app, "test", events=source())
        runtime.resume("test")
        runtime.run()
    wanted = by_window(whole.rows())
    found = by_window(torn.rows())
    assert found.keys() == wanted.keys()
    replayed = sorted(wanted)[14:16]  # the eighth window, whose plan outlived the runtime
    assert {wanted[key]["timing"] for key in replayed} == {"early"}
    assert [found[key] for key in replayed] == [wanted[key] for key in replayed]


def lines_of(number: int) -> list[str]:
    return [
        json.dumps(
            {
                "ts": f"2024-01-01T00:00:{number * 3 + i % 3:02d}.{i % 1000:03d}Z",
                "v": 1.0 + i % 5,
            }
        )
        for i in range(3_000)
    ]


LINES: dict[str, Any] = {
    "format": "json",
    "schema": "ts timestamp, v double",
    "event_time": "ts",
    "watermark": sw.bounded("0 s"),
    "follow": False,
}


def check_lines(spark: SparkSession, lines: SourceDescription, journal: Path) -> None:
    app, sink = sw.App("lines"), sw.memory()
    app.source("lines").window(sw.tumbling("3 s")).aggregate(v=sw.mean("v"), n=sw.count()).to(
        sink, error=sw.within(0.05)
    )
    with sw.Runtime(spark, journal=journal, policy=OneFileAStep()) as runtime:
        runtime.deploy(app, "test", lines=lines)
        runtime.run()
        (report,) = runtime.queries()
    assert report.quarantined is None
    rows = sorted(sink.rows(), key=lambda row: row["window_start"])
    assert len(rows) == 8
    assert min(row["sampled"] for row in rows) < 1_500
    for row in rows:
        assert row["n"] == row["population"] == 3_000  # every record is counted
        assert row["v_low"] <= 3.0 <= row["v_high"]


@pytest.mark.spark
def test_lines_are_sampled_like_any_other_source(spark: SparkSession, tmp_path: Path) -> None:
    directory = tmp_path / "lines"
    directory.mkdir()
    for number in range(8):
        (directory / f"{number:02d}.json").write_text("\n".join(lines_of(number)))
    check_lines(spark, sw.files(directory, **LINES), tmp_path / "state")


@pytest.mark.spark
@pytest.mark.parametrize(
    "inline_bytes",
    [pytest.param(10_000_000, id="inline"), pytest.param(0, id="scan", marks=pytest.mark.slow)],
)
def test_topics_are_sampled_like_any_other_source(
    spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path, inline_bytes: int
) -> None:
    topic = f"sampled-{inline_bytes}"
    kafka_broker.create_topic(topic, 1)
    producer = Producer({"bootstrap.servers": kafka_broker.servers, "log_level": 0})
    for number in range(8):
        for line in lines_of(number):
            producer.produce(topic, line)
    assert producer.flush(30) == 0
    records = sw.kafka(kafka_broker.servers, topic, inline_bytes=inline_bytes, **LINES)
    check_lines(spark, records, tmp_path)


def refused(build: Any) -> str:
    with pytest.raises(DescriptionError) as caught:
        build()
    return str(caught.value)


def test_what_no_sample_can_bound_is_refused_with_a_remedy() -> None:
    windows = sw.App("a").source("s").window(sw.tumbling("3 s"), by="k")
    error = sw.within(0.05)

    def aggregated(**aggregates: Any) -> Any:
        return windows.aggregate(**aggregates)

    assert "output of its own" in refused(
        lambda: aggregated(d=sw.approx_distinct("x")).to(None, error=error)
    )
    assert "approx_quantile" in refused(lambda: aggregated(m=sw.max("x")).to(None, error=error))
    quantiles = sw.approx_quantile("x", [0.1, 0.9])
    assert "each rank" in refused(lambda: aggregated(q=quantiles).to(None, error=error))
    assert "n_low" in refused(
        lambda: aggregated(n=sw.count(), n_low=sw.sum("x")).to(None, error=error)
    )
    joined = aggregated(n=sw.count()).join(aggregated(m=sw.count()), on="k")
    assert "over a join" in refused(lambda: joined.to(None, error=error))
    chained = aggregated(n=sw.count()).window(sw.tumbling("9 s")).aggregate(n=sw.sum("n"))
    assert "windows over results" in refused(lambda: chained.to(None, error=error))
    applied = sw.App("a").source("s").window(sw.tumbling("3 s")).apply(lambda df: df)
    assert "apply" in refused(lambda: applied.to(None, error=error))
    derived = aggregated(n=sw.count()).derive(x=lambda table: table["n"])
    assert "derive" in refused(lambda: derived.to(None, error=error))
    spread = sw.App("a").source("s").window(sw.tumbling("3 s", offset="spread"))
    late = spread.aggregate(n=sw.count())
    assert "spread" in refused(lambda: late.to(None, error=error, lateness="1 s"))
    assert "within(0.05" in refused(lambda: aggregated(n=sw.count()).to(None, error=0.05))


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("within", {"relative": 0.0}),
        ("within", {"relative": True}),
        ("confidence", {"relative": 0.05, "confidence": 1.0}),
        ("groups", {"relative": 0.05, "groups": 0.0}),
        ("audit", {"relative": 0.05, "audit": 2.0}),
        ("method", {"relative": 0.05, "method": "guess"}),
    ],
)
def test_wishes_that_cannot_be_are_refused(field: str, settings: dict[str, Any]) -> None:
    assert field in refused(lambda: sw.within(**settings))
