"""Windows that come and go: sessions, counted ones, and functions with nothing left to say."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import slackwater as sw
from slackwater.app.stream import App
from slackwater.runtime.placing import Limits
from slackwater.spark.sinks.base import Sink
from slackwater.spark.sinks.pane_tables import last_panes
from slackwater.spark.sinks.parquet import read_panes
from slackwater.testing import ManualClock, Script, run_app, scripted

pytestmark = pytest.mark.spark


def visits() -> Script:
    return scripted("ts timestamp, user string, paid double", event_time="ts")


def seconds(table: pa.Table) -> list[tuple[int, int]]:
    starts, ends = table["window_start"].to_pylist(), table["window_end"].to_pylist()
    return [
        (start.minute * 60 + start.second, end.minute * 60 + end.second)
        for start, end in zip(starts, ends, strict=True)
    ]


def at(second: int) -> str:
    return f"2024-01-01 10:{second // 60:02d}:{second % 60:02d}"


def test_a_late_visit_joins_two_sessions_and_takes_the_second_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The gap is 30 s:  ann [0..20]----50   [70]----100   then 45 comes late: [0..20..45..70]."""
    app, out = sw.App("shop"), tmp_path / "out"
    app.source("visits").window(sw.sessions("30 s"), by="user").aggregate(
        visits=sw.count(), paid=sw.sum("paid"), people=sw.approx_distinct("user")
    ).derive(each=lambda rows: pa.compute.divide(rows["paid"], rows["visits"])).to(
        sw.parquet(out), lateness="1 minute"
    )
    script = visits()
    for second in (0, 20, 70):
        script.add(ts=at(second), user="ann", paid=1.0)
        script.add(ts=at(second), user="bob", paid=2.0)
    script.add(ts=at(101), user="eve", paid=3.0)
    script.add(ts=at(45), user="ann", paid=5.0, arrives=at(102))
    script.add(ts=at(1), user="dan", paid=0.0, arrives=at(103))  # more than a minute late
    (report,) = run_app(spark, app, visits=script)
    assert (report.window, report.panes, report.too_late_rows) == ("sessions 30 s", 7, 1)
    assert (report.open_windows, report.state_rows, report.rebuilt_because) == (0, 0, ())

    panes = read_panes(out)
    ann = panes.filter(pa.compute.equal(panes["user"], "ann")).sort_by("pane")
    assert ann["timing"].to_pylist() == ["on_time", "on_time", "retracted", "late"]
    assert seconds(ann)[-1] == (0, 100)
    assert ann["paid"].to_pylist() == [2.0, 1.0, None, 8.0]
    assert ann["each"].to_pylist()[-1] == 2.0
    now = last_panes(panes).sort_by([("user", "ascending"), ("window_start", "ascending")])
    assert now["user"].to_pylist() == ["ann", "bob", "bob", "eve"]
    assert seconds(now) == [(0, 100), (0, 50), (70, 100), (101, 131)]


def test_every_so_many_events_in_the_order_of_their_time(spark: SparkSession) -> None:
    app, out = sw.App("shop"), sw.memory()
    app.source("visits").window(sw.counted(2, pause="1 minute"), by="user").aggregate(
        n=sw.count(), paid=sw.sum("paid")
    ).to(out, lateness="20 s")
    script = visits()
    for second in (0, 10, 20, 30):
        script.add(ts=at(second), user="ann", paid=float(second))
    script.add(ts=at(31), user="bob", paid=1.0)
    script.add(ts=at(15), user="ann", paid=100.0, arrives=at(32))
    script.add(ts=at(200), user="eve", paid=0.0)
    run_app(spark, app, visits=script)

    ann = [row for row in out.rows() if row["user"] == "ann"]
    assert [(row["timing"], row["paid"]) for row in ann[:1]] == [("on_time", 10.0)]
    now = out.last_panes().sort_by([("user", "ascending"), ("window_start", "ascending")])
    assert seconds(now) == [(0, 10), (15, 20), (30, 30), (31, 31), (200, 200)]
    assert now["paid"].to_pylist() == [10.0, 120.0, 30.0, 1.0, 0.0]


def quiet_minutes(rows: DataFrame) -> DataFrame:
    """Tell of windows with fewer than two rows: with more, there is nothing to tell."""
    return rows.groupBy("user").count().where("count < 2")


@pytest.mark.parametrize("limits", [Limits(), Limits(window_rows=0)])
def test_a_pane_without_rows_takes_those_before_it_back(
    spark: SparkSession, tmp_path: Path, limits: Limits
) -> None:
    app = sw.App("shop")
    windowed = app.source("visits").window(sw.tumbling("1 minute"))
    quiet = windowed.apply(quiet_minutes)
    quiet.to(sw.parquet(tmp_path / "quiet"), name="quiet", lateness="1 hour")
    quiet.window(sw.tumbling("2 minutes")).aggregate(n=sw.sum("count")).to(
        sw.parquet(tmp_path / "chained"), name="chained", lateness="1 hour"
    )
    script = visits().add(ts=at(1), user="ann", paid=1.0).add(ts=at(130), user="bob", paid=1.0)
    script.add(ts=at(2), user="ann", paid=1.0, arrives=at(131))
    reports = run_app(spark, app, runtime={"limits": limits}, visits=script)
    assert [report.quarantined for report in reports] == [None, None]
    for name in ("quiet", "chained"):
        panes = read_panes(tmp_path / name)
        starts = panes["window_start"]
        first = panes.filter(pa.compute.equal(starts, pa.compute.min(starts)))
        assert first.sort_by("pane")["timing"].to_pylist() == ["on_time", "retracted"]
        assert seconds(last_panes(panes)) == [(120, 180 if name == "quiet" else 240)]


def deployed(spark: SparkSession, sink: Sink, clock: ManualClock, script: Script) -> sw.Runtime:
    app = App("shop")
    app.source("visits").window(sw.sessions("30 s"), by="user").aggregate(n=sw.count()).to(sink)
    runtime = sw.Runtime(spark, clock=clock, durable=False)
    runtime.deploy(app, "shop", visits=script)
    return runtime


def test_without_events_the_loop_neither_spins_nor_sleeps_for_ever(spark: SparkSession) -> None:
    """A session ends, nothing comes for minutes, and then another begins."""
    clock, out = ManualClock(at(0)), sw.memory()
    script = visits().add(ts=at(0), user="ann", paid=1.0).add(ts=at(59), user="bob", paid=1.0)
    with deployed(spark, out, clock, script) as runtime:
        steps: list[int] = []
        runtime.observe(Steps(steps))
        runtime.run(seconds=300)
        assert out.table()["user"].to_pylist() == ["ann"]
        assert len(steps) < 20
        script.add(ts=at(310), user="eve", paid=1.0).end()
        runtime.run()
    assert sorted(out.table()["user"].to_pylist()) == ["ann", "bob", "eve"]


class Steps:
    """Count committed steps."""

    def __init__(self, numbers: list[int]) -> None:
        self._numbers = numbers

    def step_committed(self, report: object) -> None:
        self._numbers.append(1)
