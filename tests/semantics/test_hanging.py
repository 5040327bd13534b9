"""A function or a sink that never returns stops its own query, not the others, nor the process."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.semantics.test_failures import RECORDS, counting, expected, only, records_of, script_of

import slackwater as sw
from slackwater.errors import QuarantinedError
from slackwater.runtime import overdue
from slackwater.runtime.runtime import Runtime
from slackwater.spark.jobs import StepJobs
from slackwater.testing import assert_same_panes

pytestmark = pytest.mark.spark


@pytest.mark.slow
def test_a_function_that_hangs_is_cancelled_and_its_worker_freed(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hangs = tmp_path / "hangs"
    hangs.touch()
    flag = str(hangs)

    def slow(k: str) -> str:
        import os

        while k == "poison" and os.path.exists(flag):
            time.sleep(0.2)
        return k

    sink = sw.memory()
    checked = F.udf(slow, "string", useArrow=False)
    app = counting(sink, lambda df: df.withColumn("k", checked("k")))
    records = {f"q{n}": records_of(n, poison=n == 1) for n in range(3)}
    with Runtime(spark, journal=tmp_path / "journal", step_limit="10 seconds") as runtime:
        for name, rows in records.items():
            runtime.deploy(app, name, events=script_of(rows))
        with pytest.raises(QuarantinedError, match=r"1 of 3 .*q1: .*longer than step_limit='10 s'"):
            runtime.run()
        healthy = {name for name in records if name != "q1"}
        found = {report.name: report.records for report in runtime.queries()}
        assert found == {"q0": RECORDS, "q1": found["q1"], "q2": RECORDS}
        # No task is left behind that would hold a core.
        tracker = spark.sparkContext.statusTracker()
        assert not tracker.getActiveJobsIds()
        hangs.unlink()
        runtime.resume("q1")
        runtime.run()
    assert "a Spark job" in caplog.text
    assert_same_panes(only(sink.table(), healthy), expected({n: records[n] for n in healthy}))
    assert_same_panes(sink.table(), expected(records))


def test_sinks_that_hang_in_every_slot_leave_the_others_running_and_the_end_in_reach(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overdue.OverdueSteps.__init__, "__defaults__", (500.0,))
    go, taken, sound = threading.Event(), list[pa.Table](), sw.memory()

    def hang(panes: pa.Table) -> None:
        go.wait(300)
        taken.append(panes)

    stuck, well = counting(sw.callback(hang)), counting(sound)
    with Runtime(spark, journal=tmp_path, slots=2, step_limit="5 seconds") as runtime:
        for n in range(2):
            runtime.deploy(stuck, f"stuck-{n}", events=script_of(records_of(n)))
        runtime.deploy(well, "well", events=script_of(records_of(5)))
        with pytest.raises(QuarantinedError) as raised:
            runtime.run()
        assert "2 of 3 queries are quarantined" in str(raised.value)
        assert "test_hanging.py, line" in str(raised.value)
        stopped = {report.name for report in runtime.queries() if report.quarantined}
        assert stopped == {"stuck-0", "stuck-1"}
    assert_same_panes(sound.table(), expected({"well": records_of(5)}))
    go.set()


def test_spark_that_was_stopped_is_told_from_one_that_runs(spark: SparkSession) -> None:
    jobs = StepJobs(spark)
    assert jobs.gone() is None
    context = spark.sparkContext._jsc
    try:
        spark.sparkContext._jsc = None  # as `stop` leaves it
        assert jobs.gone() == "its context was stopped"
    finally:
        spark.sparkContext._jsc = context

    silent = StepJobs(spark, patience_s=0.2)
    silent._ask = threading.Event().wait  # type: ignore[assignment]
    assert silent.gone() == "its driver's JVM has not answered for 0 s"
