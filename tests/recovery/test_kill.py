"""`kill -9` at random moments, then finish: nothing lost, nothing counted twice."""

from __future__ import annotations

import importlib.util
import json
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.recovery.incarnations import Incarnations

from slackwater.progress.grid import WindowGrid, spread_stride
from slackwater.spark.keyed_rows import PLACES
from slackwater.spark.latebound import fixed_specification
from slackwater.spark.sinks.pane_tables import last_panes
from slackwater.spark.sinks.parquet import read_panes
from slackwater.spark.sources.base import Range
from slackwater.testing import assert_same_panes, batch_panes

CHILD = Path(__file__).with_name("child.py")


def load_child() -> ModuleType:
    spec = importlib.util.spec_from_file_location("child", CHILD)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


child = load_child()


def write_lines(directory: Path) -> list[dict[str, Any]]:
    """Write JSON files with disorder within and between them."""
    chance = random.Random(5)
    directory.mkdir()
    rows = []
    for number in range(12):
        file = []
        for _ in range(40):
            second = max(0, number * 10 + chance.randrange(-8, 10))
            row = {
                "ts": f"2024-01-01T00:{second // 60:02d}:{second % 60:02d}Z",
                "user": chance.choice("abc"),
                "amount": float(chance.randrange(100)),
            }
            file.append(row)
        rows += file
        (directory / f"{number:03d}.json").write_text("\n".join(map(json.dumps, file)))
    return rows


def all_rows(spark: SparkSession, seed: int) -> DataFrame:
    """Read a query's whole input in one batch."""
    reader = child.generated(seed).open(spark)
    entry = reader.entry(0, Range(0, 0, child.EVENTS, child.EVENTS))
    entries = fixed_specification(spark, [[json.dumps([entry])]]).selectExpr(
        f"explode(from_json(s0, 'array<{reader.entry_type}>')) AS r"
    )
    rows: DataFrame = reader.expand(entries)
    return rows


def milliseconds(moment: datetime) -> int:
    """Count since the epoch, without the rounding errors of `timestamp()`."""
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def table_of(frame: DataFrame, *keys: str) -> dict[Any, Any]:
    return {tuple(row[key] for key in keys): tuple(row) for row in frame.collect()}


def check_identities(directory: Path) -> None:
    """No group of a pane twice, and panes numbered without a gap."""
    sinks = {"exact": ["ad_type"], "strict": [], "users": ["user"], "rates": ["ad_type"]}
    for sink, keys in sinks.items():
        rows = read_panes(directory / sink).to_pylist()
        seen = Counter(
            (row["query"], row["window_start"], row["pane"], *(row[key] for key in keys))
            for row in rows
        )
        assert not [key for key, times in seen.items() if times > 1]
        panes: dict[Any, set[int]] = {}
        for row in rows:
            panes.setdefault((row["query"], row["window_start"]), set()).add(row["pane"])
        assert all(numbers == set(range(len(numbers))) for numbers in panes.values())


def check_exact(spark: SparkSession, directory: Path) -> None:
    table = last_panes(read_panes(directory / "exact"))
    assert max(table["pane"].to_pylist()) > 0  # late events have amended windows
    for query in range(child.QUERIES):
        offset = query * spread_stride(3_000) % 3_000
        frame = all_rows(spark, query).where("event_type = 'view'")
        batch = (
            frame.withColumn(
                "w",
                F.expr(f"unix_millis(event_time) - pmod(unix_millis(event_time) - {offset}, 3000)"),
            )
            .groupBy("w", "ad_type")
            .agg(F.count("*"), F.sum("user_id"), F.max("ad_id"))
        )
        expected = {tuple(row)[:2]: tuple(row)[2:] for row in batch.collect()}
        found = {
            (milliseconds(row["window_start"]), row["ad_type"]): (
                row["n"],
                row["users"],
                row["top"],
            )
            for row in table.to_pylist()
            if row["query"] == f"exact-{query}"
        }
        assert found == expected


def check_strict(spark: SparkSession, directory: Path) -> None:
    """Every event is in its windows, or in the dead letters, once."""
    grid = WindowGrid(1_200, 500)
    times = [row[0] for row in all_rows(spark, 99).selectExpr("unix_millis(event_time)").collect()]
    letters = pq.read_table(directory / "state" / "dead-letters").to_pylist()
    assert letters
    assert {(row["query"], row["reason"]) for row in letters} == {("strict", "too late")}
    assert len({row["offset"] for row in letters}) == len(letters)
    late = Counter(milliseconds(row["event_time"]) for row in letters)
    used = Counter(times)
    used.subtract(late)
    assert min(used.values()) >= 0
    found = {
        milliseconds(row["window_start"]): row["n"]
        for row in last_panes(read_panes(directory / "strict")).to_pylist()
    }
    expected: Counter[int] = Counter()
    for time_ms, count in used.items():
        slice_ms = grid.slice_start(time_ms)
        assert slice_ms is not None
        for window_ms in grid.windows_of(slice_ms):
            expected[window_ms] += count
    # An event that is late for one of its windows may be in time for the next.
    assert set(found) == {window for window, count in expected.items() if count}
    assert all(found[window] <= expected[window] for window in found)
    short = sum(expected[window] - found[window] for window in found)
    assert short <= sum(found.values()) // 10


def check_rates(spark: SparkSession, directory: Path) -> None:
    """Compare a chain over a join, amended by late events, with one batch of ordinary joins."""
    _, output = child.rates(directory)
    schema = child.generated(0).open(spark).schema
    inputs = {
        name: all_rows(spark, seed).select(*schema.names)
        for name, seed in (("views", 50), ("clicks", 51))
    }
    panes = read_panes(directory / "rates")
    assert max(panes["pane"].to_pylist()) > 0
    wanted = batch_panes(output, inputs, event_time="event_time", query="rates")
    assert_same_panes(panes, wanted)


def check_clicks(spark: SparkSession, directory: Path) -> None:
    """Compare sessions and counted windows, some amended, with Spark's own in one batch."""
    schema = child.generated(0).open(spark).schema
    rows = all_rows(spark, 60).select(*schema.names, *PLACES)
    for output in child.clicks(directory)[1]:
        panes = read_panes(directory / output.name)
        assert "late" in panes["timing"].to_pylist()  # late events have merged or moved some
        seen = Counter(
            (row["window_start"], row["pane"], row["ad_id"], row["window_end"], row["users"])
            for row in panes.to_pylist()
        )
        assert max(seen.values()) == 1
        wanted = batch_panes(
            output, {"events": rows}, event_time="event_time", query=f"clicks/{output.name}"
        )
        assert_same_panes(panes, wanted)


def check_users(rows: list[dict[str, Any]], directory: Path) -> None:
    expected: Counter[tuple[int, str]] = Counter()
    for row in rows:
        minute, second = int(row["ts"][14:16]), int(row["ts"][17:19])
        expected[(minute * 60 + second) // 10 * 10, row["user"]] += row["amount"]
    table = last_panes(read_panes(directory / "users")).to_pylist()
    found = {
        (row["window_start"].minute * 60 + row["window_start"].second, row["user"]): row["total"]
        for row in table
    }
    assert found == dict(expected)


def kill_and_finish(spark: SparkSession, directory: Path, kills: int, seed: int) -> None:
    rows = write_lines(directory / "lines")
    chance = random.Random(seed)
    process = Incarnations(CHILD, str(directory))
    killed = 0
    while killed < kills:
        # Few enough lines that the input lasts for all incarnations; any moment within a step.
        alive = process.kill_after(chance.randrange(1, 5), chance.random() * 0.25)
        assert alive, "the input was finished before it was killed often enough"
        killed += 1
    process.finish()
    check_identities(directory)
    check_exact(spark, directory)
    check_strict(spark, directory)
    check_users(rows, directory)
    check_rates(spark, directory)
    check_clicks(spark, directory)


@pytest.mark.spark
def test_killed_twice_nothing_is_lost_or_counted_twice(spark: SparkSession, tmp_path: Path) -> None:
    kill_and_finish(spark, tmp_path, kills=2, seed=1)


@pytest.mark.slow
@pytest.mark.spark
def test_killed_twenty_times_nothing_is_lost_or_counted_twice(
    spark: SparkSession, tmp_path: Path
) -> None:
    kill_and_finish(spark, tmp_path, kills=20, seed=2)
