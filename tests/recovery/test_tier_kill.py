"""`kill -9` while window state is staged, destaged, compacted, purged: nothing lost, no litter."""

from __future__ import annotations

import importlib.util
import json
import random
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import DataFrame, SparkSession

from slackwater.spark.latebound import fixed_specification
from slackwater.spark.sinks.parquet import read_panes
from slackwater.spark.sources.base import Range
from slackwater.testing import assert_same_panes, batch_panes

CHILD = Path(__file__).with_name("tier_child.py")
POINTS = [
    (point, moment)
    for point in ("write", "move", "remove", "fetch")
    for moment in ("before", "during", "after")
]


def load_child() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tier_child", CHILD)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


child = load_child()


def run(directory: Path, point: str, number: int, moment: str, script: Path = CHILD) -> bool:
    """Run until the process kills itself; True if it finished first."""
    process = subprocess.run(
        [sys.executable, str(script), str(directory), point, str(number), moment],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if process.returncode == -signal.SIGKILL:
        return False
    assert process.returncode == 0, process.stderr[-3_000:]
    assert "finished" in process.stdout
    return True


def all_rows(spark: SparkSession, seed: int) -> DataFrame:
    reader = child.generated(seed).open(spark)
    entry = reader.entry(0, Range(0, 0, child.EVENTS, child.EVENTS))
    entries = fixed_specification(spark, [[json.dumps([entry])]]).selectExpr(
        f"explode(from_json(s0, 'array<{reader.entry_type}>')) AS r"
    )
    rows: DataFrame = reader.expand(entries).select(*reader.schema.names)
    return rows


def kill_and_finish(spark: SparkSession, directory: Path, chance: random.Random, kills: int) -> int:
    """Kill a run at most so often, let it finish, and compare; count the kills before its end."""
    killed = 0
    while killed < kills:
        point, moment = chance.choice(POINTS)
        if run(directory, point, chance.randrange(1, 4), moment):
            break
        killed += 1
    else:
        assert run(directory, "none", 0, "before")
    for number, (app, output) in enumerate(child.described(directory)):
        panes = read_panes(directory / app.name)
        assert max(panes["pane"].to_pylist()) > 0  # late events have amended windows
        wanted = batch_panes(
            output,
            {"events": all_rows(spark, number)},
            event_time="event_time",
            query=app.name,
            number=number,
        )
        assert_same_panes(panes, wanted)
    return killed


@pytest.mark.slow
def test_every_fault_while_state_moves_leaves_what_was_committed(tmp_path: Path) -> None:
    """Without Spark, so that there are many: each start checks all rows and all files."""
    chance, script = random.Random(4), CHILD.with_name("moves_child.py")
    for point, moment in POINTS:
        # Several inputs, or they would be finished before all points have been tried.
        directory = tmp_path / point / moment
        kills = 0
        while not run(directory, point, chance.randrange(1, 9), moment, script):
            kills += 1
            if kills == 2:
                assert run(directory, "none", 0, moment, script)
        assert kills


@pytest.mark.slow
@pytest.mark.spark
def test_killed_again_and_again_while_state_moves(spark: SparkSession, tmp_path: Path) -> None:
    chance, killed = random.Random(3), 0
    for number in count():
        killed += kill_and_finish(spark, tmp_path / str(number), chance, kills=5 - killed)
        if killed >= 5:
            return
        assert number < 3, "the inputs were finished before they were killed often enough"
