"""Groups are sampled each at its own rate, where a record's group is known before transforms."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.semantics.generated import everything_of

import slackwater as sw
from slackwater.app.nodes import FrameFunction
from slackwater.cli.journal_report import read_journal
from slackwater.testing import ManualClock, batch_panes

START_MS = 1_700_000_000_000 // 3_000 * 3_000
RATE, SECONDS = 2_000, 36
COLUMNS = {
    "kind": "if(key % 20 = 0, 'rare', 'plenty')",
    "value": "1D + (shiftrightunsigned(xxhash64(h), 11) * 1.1102230246251565E-16D) * 2D",
}
SOURCE = sw.generator(
    rate=RATE,
    delay="exp",
    gap="gamma",
    start_ms=START_MS,
    seconds=SECONDS,
    columns=COLUMNS,
    keys=1_000,
)


def filtered(df: DataFrame) -> DataFrame:
    return df.where("value < 2.9")


def renamed(df: DataFrame) -> DataFrame:
    return filtered(df).selectExpr("* EXCEPT (kind)", "upper(kind) AS kind")


def run(
    spark: SparkSession, journal: Path, transform: FrameFunction
) -> tuple[dict[Any, dict[str, Any]], dict[Any, dict[str, Any]], Any]:
    """Return early rows and true ones, by window and group, and what the journal says."""
    app, sink = sw.App("bounded"), sw.memory()
    output = (
        app.source("events")
        .transform(transform)
        .window(sw.tumbling("3 s"), by="kind")
        .aggregate(n=sw.count(), average=sw.mean("value"))
        .to(sink, error=sw.within(0.05, groups=0.02))
    )
    clock = ManualClock(START_MS)
    with sw.Runtime(spark, journal=journal, clock=clock, slots=1) as runtime:
        runtime.deploy(app, "test", events=SOURCE)
        runtime.run()
        (report,) = runtime.queries()
    assert report.quarantined is None
    events = {"events": everything_of(spark, SOURCE, RATE * SECONDS)}
    batch = batch_panes(output, events, event_time="event_time").toArrow().to_pylist()
    truth = {(row["window_start"], row["kind"]): row for row in batch}
    early = [row for row in sink.rows() if row["timing"] == "early"]
    (status,) = read_journal(journal).queries
    return {(row["window_start"], row["kind"]): row for row in early}, truth, status.bounds


@pytest.mark.spark
def test_small_groups_are_sampled_more_densely_than_large_ones(
    spark: SparkSession, tmp_path: Path
) -> None:
    by_rates, truth, status = run(spark, tmp_path / "rates", filtered)
    at_one_rate, _, one = run(spark, tmp_path / "one", renamed)
    assert (status.own_rates, one.own_rates) == (2, 0)
    assert len(by_rates) >= 14
    held = 0
    for key, row in by_rates.items():
        for name in ("n", "average"):
            held += row[f"{name}_low"] <= truth[key][name] <= row[f"{name}_high"]
    assert held / len(by_rates) / 2 >= 0.9
    for rows in (by_rates, at_one_rate):
        rare = [row["met"] for (_, kind), row in rows.items() if kind.lower() == "rare"]
        assert sum(rare) >= 0.7 * len(rare)
    shares = [median(row["accuracy"] for row in rows.values()) for rows in (by_rates, at_one_rate)]
    assert shares[0] < 0.5 * shares[1]
