"""The JVM is killed under a running process: a clear end, and a restart alone goes on."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from tests.recovery.incarnations import Incarnations
from tests.recovery.jvm_child import QUERIES, RATE

from slackwater.cli.journal_report import read_journal
from slackwater.spark.sinks.parquet import read_panes

CHILD = Path(__file__).with_name("jvm_child.py")
SECONDS = 20

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_killed_jvm_ends_the_process_with_an_error_and_a_restart_alone_goes_on(
    tmp_path: Path,
) -> None:
    child = Incarnations(CHILD, str(tmp_path), str(SECONDS))
    process = child.start()
    out, err = _kill_jvm(process, after_steps=2)
    assert process.returncode == 1, err
    assert "finished" not in out
    assert "SparkLostError: Spark is gone: its driver's JVM does not answer" in err
    assert "start the process again, and all go on from the journal" in err
    report = read_journal(tmp_path / "state")
    assert len(report.queries) == QUERIES
    assert [query.quarantined for query in report.queries] == [None] * QUERIES

    child.finish()
    counted = read_panes(tmp_path / "out").to_pylist()
    totals = {f"q{query}": 0 for query in range(QUERIES)}
    seen = set()
    for row in counted:
        totals[row["query"]] += row["n"]
        identity = (row["query"], row["window_start"], row["pane"], row["key"])
        assert identity not in seen
        seen.add(identity)
    assert totals == {f"q{query}": RATE * SECONDS for query in range(QUERIES)}


def _kill_jvm(process: subprocess.Popen[str], after_steps: int) -> tuple[str, str]:
    assert process.stdout is not None
    jvm, steps = 0, 0
    for line in process.stdout:
        if line.startswith("jvm"):
            jvm = int(line.split()[1])
        steps += line.startswith("step")
        if steps >= after_steps:
            break
    assert jvm, process.communicate()[1]
    os.kill(jvm, signal.SIGKILL)
    return process.communicate(timeout=120)
