"""Whatever the disk does at whichever operation: nothing lost, nothing twice, and it goes on."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.faults.arrow_steps import without_spark
from tests.faults.faulty_disk import Fault, FaultyDisk, Kind, Operation
from tests.faults.sweep import Point, area, chosen_points, sweep
from tests.faults.workload import (
    QUERIES,
    WITH_SPARK,
    expected,
    found,
    in_a_hurry,
    live,
    require_same,
    using,
)

QUICK = 30
EACH_KIND = 64
TWICE = 25
SPARK_POINTS = 20


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put plain Python in the place of Spark."""
    in_a_hurry(monkeypatch)
    return without_spark(monkeypatch)


def plain_run(spark: Any, directory: Path, queries: Sequence[str] = QUERIES) -> list[Operation]:
    """Run without a fault; return what was done to the disk."""
    with using(FaultyDisk(directory)) as disk:
        live(spark, directory, queries=queries)
    require_same(found(directory), expected(queries))
    return disk.done


def spread(points: list[Point], number: int) -> list[Point]:
    """Take so many of the points, from all parts of the list."""
    assert len(points) >= number
    return [points[place * len(points) // number] for place in range(number)]


def test_the_workload_reaches_every_kind_of_file(no_spark: Any, tmp_path: Path) -> None:
    done = {(operation.name, area(operation.path)) for operation in plain_run(no_spark, tmp_path)}
    for place in (
        "state/journal/segment-N.log",
        "state/journal/snapshot-N.snap.tmp",
        "storage/N/block",
        "state/dead-letters/_tmp-dead-N.parquet",
        "out/totals/_tmp-part-N-N.parquet",
    ):
        assert ("write", place) in done, place
    assert {name for name, _ in done} >= {
        *("open", "write", "sync", "sync_data", "truncate", "read", "replace", "remove"),
        *("make_directory", "remove_directory"),
    }


def test_a_fault_at_any_operation_loses_nothing(no_spark: Any, tmp_path: Path) -> None:
    points = chosen_points(plain_run(no_spark, tmp_path / "plain"), 1)
    failures = sweep(no_spark, tmp_path, spread(points, QUICK), expected())
    assert not failures, "\n".join(failures)


@pytest.mark.slow
@pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.name.lower())
def test_a_fault_at_every_kind_of_operation_loses_nothing(
    kind: Kind, no_spark: Any, tmp_path: Path
) -> None:
    points = chosen_points(plain_run(no_spark, tmp_path / "plain"), 20 if kind.tears else 2)
    mine = [point for point in points if point.fault.kind is kind]
    failures = sweep(no_spark, tmp_path, spread(mine, EACH_KIND), expected())
    assert not failures, "\n".join(failures)


@pytest.mark.slow
@pytest.mark.parametrize("then", [Kind.LOST, Kind.KILLED], ids=lambda kind: kind.name.lower())
def test_a_second_fault_after_a_kill_loses_nothing(
    then: Kind, no_spark: Any, tmp_path: Path
) -> None:
    """Let a power failure take what the killed process had not synced; or kill the next one too."""
    chance = random.Random(then.name)
    operations = plain_run(no_spark, tmp_path / "plain")
    points = [
        replace(point, then=Fault(chance.randrange(1, len(operations) // 2), then))
        for point in chosen_points(operations, 1)
        if point.fault.kind is Kind.KILLED
    ]
    failures = sweep(no_spark, tmp_path, spread(points, TWICE), expected())
    assert not failures, "\n".join(failures)


@pytest.mark.spark
@pytest.mark.slow
def test_a_fault_loses_nothing_with_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_a_hurry(monkeypatch)
    points = chosen_points(plain_run(spark, tmp_path / "plain", WITH_SPARK), 1)
    some = spread(points, SPARK_POINTS)
    failures = sweep(spark, tmp_path, some, expected(WITH_SPARK), queries=WITH_SPARK)
    assert not failures, "\n".join(failures)
