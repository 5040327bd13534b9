"""Whatever the disk does at whichever operation: nothing lost, nothing twice, and it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.faults.arrow_steps import without_spark
from tests.faults.faulty_disk import FaultyDisk, Kind, Operation
from tests.faults.sweep import area, chosen_points, sweep
from tests.faults.workload import expected, found, in_a_hurry, live, require_same, using

QUICK = 50


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put plain Python in the place of Spark."""
    in_a_hurry(monkeypatch)
    return without_spark(monkeypatch)


def plain_run(spark: Any, directory: Path) -> list[Operation]:
    """Run without a fault; return what was done to the disk."""
    with using(FaultyDisk(directory)) as disk:
        live(spark, directory)
    require_same(found(directory), expected())
    return disk.done


def test_the_workload_reaches_every_kind_of_file(no_spark: Any, tmp_path: Path) -> None:
    done = {(operation.name, area(operation.path)) for operation in plain_run(no_spark, tmp_path)}
    for place in (
        "state/journal/segment-N.log",
        "state/journal/snapshot-N.snap.tmp",
        "state/blocks/block",
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
    some = points[:: len(points) // QUICK]
    failures = sweep(no_spark, tmp_path, some, expected())
    assert not failures, "\n".join(failures)


@pytest.mark.slow
@pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.name.lower())
def test_a_fault_at_every_kind_of_operation_loses_nothing(
    kind: Kind, no_spark: Any, tmp_path: Path
) -> None:
    points = chosen_points(plain_run(no_spark, tmp_path / "plain"), 6 if kind.tears else 2)
    mine = [point for point in points if point.fault.kind is kind]
    assert len(mine) >= 50
    failures = sweep(no_spark, tmp_path, mine, expected())
    assert not failures, "\n".join(failures)
