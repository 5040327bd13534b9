"""Scripts: what tests write down arrives when they say, whatever the session's time zone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

import slackwater as sw
from slackwater.errors import DescriptionError
from slackwater.testing import ManualClock, Script, run_app, scripted

SCHEMA = "ts timestamp, user string, seen timestamp"
TEN_MS = 1_704_103_200_000  # 2024-01-01 10:00 UTC


def script(**settings: Any) -> Script:
    return scripted(SCHEMA, event_time="ts", **settings)


def test_a_line_without_an_arrival_comes_with_the_record_after_it() -> None:
    events = script().add_line("{broken").add_line("{too").add(ts="2024-01-01 10:00:01", user="a")
    assert events.lanes[0].arrivals_ms == [TEN_MS + 1_000] * 3
    assert events.first_arrival_ms == TEN_MS + 1_000


def test_a_line_without_an_arrival_comes_with_the_record_before_it() -> None:
    events = script().add(ts="2024-01-01 10:00:01", user="a").add_line("{broken")
    assert events.lanes[0].arrivals_ms == [TEN_MS + 1_000] * 2


def test_a_partition_without_any_arrival_begins_with_the_others() -> None:
    events = script(partitions=2).add_line("{broken", partition=1)
    events.add(ts="2024-01-01 10:00:01", user="a")
    assert events.end().lanes[1].arrivals_ms == [TEN_MS + 1_000]
    assert events.lanes[1].records == ["{broken"]


def test_a_record_without_event_time_does_not_arrive_in_1970() -> None:
    events = script().add(user="a").add(ts="2024-01-01 10:00:01", user="b")
    assert events.first_arrival_ms == TEN_MS + 1_000


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        (lambda: script().add_line("{broken").end(), "arrives="),
        (lambda: scripted(SCHEMA, event_time="time").add(ts="2024-01-01").end(), "event_time="),
        (lambda: script().add(ts="yesterday"), r"add\(ts='yesterday'\).*arrives="),
        (lambda: script().add(ts=None, arrives="soon"), "'soon' is no moment.*ISO"),
        (lambda: script().add(ts="2024-01-01", partition=7), "^partition=7.*partitions="),
        (lambda: script().add(ts="2024-01-01", user=object()), "JSON"),
        (lambda: script().announce(0, arrives=0), r"from_source\(\)"),
        (lambda: ManualClock("noon"), "'noon' is no moment"),
    ],
)
def test_mistakes_in_a_script_are_named(mistake: Callable[[], object], says: str) -> None:
    with pytest.raises(DescriptionError, match=says):
        mistake()


@pytest.mark.spark
def test_scripts_mean_the_same_in_every_time_zone_of_the_session(spark: SparkSession) -> None:
    found = []
    for zone in ("UTC", "America/New_York", "Asia/Kolkata"):
        spark.conf.set("spark.sql.session.timeZone", zone)
        try:
            events = script().add(ts="2024-01-01 10:00:01", user="a", seen="2024-01-01 09:59:59.5")
            events.add(ts="2024-01-01 10:00:11+00:00", user="b", seen="2024-01-01T10:00:00")
            app, out = sw.App("t"), sw.memory()
            windows = app.source("events").window(sw.tumbling("10 s"), by="user")
            windows.aggregate(n=sw.count(), seen=sw.max("unix_millis(seen)")).to(out)
            (report,) = run_app(spark, app, events=events)
            found.append(
                (report.rejected, [(r["window_start"], r["n"], r["seen"]) for r in out.rows()])
            )
        finally:
            spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert found[0][0] == 0
    assert [row[2] for row in found[0][1]] == [TEN_MS - 500, TEN_MS]
    assert found[1] == found[2] == found[0]


@pytest.mark.spark
def test_a_column_that_the_schema_does_not_have_is_refused(spark: SparkSession) -> None:
    app = sw.App("t")
    app.source("events").window(sw.tumbling("10 s")).aggregate(n=sw.count()).to(sw.memory())
    with pytest.raises(DescriptionError, match=r"add\(usr=.*ts, user, seen"):
        run_app(spark, app, events=script().add(ts="2024-01-01", usr="a"))
    with pytest.raises(DescriptionError, match=r"events=scripted"):
        run_app(spark, app)
    with pytest.raises(DescriptionError, match=r"give a script"):
        run_app(spark, app, events=sw.generator(rate=1))  # type: ignore[arg-type]
