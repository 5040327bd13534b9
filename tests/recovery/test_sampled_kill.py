"""`kill -9` between a pane and its commit: the replay takes the same sample, to the last digit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CHILD = Path(__file__).with_name("sampled_child.py")


def run_child(directory: Path, since_ms: int, kill_at: int) -> tuple[list[dict[str, Any]], bool]:
    """Run one incarnation; return the panes it printed, and whether it finished."""
    process = subprocess.run(
        [sys.executable, str(CHILD), str(directory), str(since_ms), str(kill_at)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    lines = process.stdout.splitlines()
    panes = [json.loads(line.removeprefix("pane ")) for line in lines if line.startswith("pane ")]
    finished = "finished" in lines
    assert finished or kill_at, process.stderr[-2_000:]
    return panes, finished


@pytest.mark.slow
@pytest.mark.spark
def test_a_replay_emits_the_very_same_estimates(tmp_path: Path) -> None:
    printed: list[dict[str, Any]] = []
    again = 0
    for since_ms, kill_at in ((0, 9), (10_000, 4), (15_000, 0)):
        panes, finished = run_child(tmp_path, since_ms, kill_at)
        assert finished == (kill_at == 0)
        before = {row["window_start"]: row for row in printed}
        for row in panes:
            if row["window_start"] in before:
                again += row["timing"] == "early"
                assert row == before[row["window_start"]]
        printed += panes
    assert again >= 2  # one for each kill
    assert any(row["sampled"] < row["population"] for row in printed)
