"""Other threads may deploy, look and resume while one runs; sources are asked by that one alone."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.semantics.test_failures import counting, expected, records_of, script_of

import slackwater as sw
from slackwater.errors import DescriptionError
from slackwater.runtime.runtime import Runtime
from slackwater.spark.sources.inline import checked_schema
from slackwater.testing import Script, assert_same_panes
from slackwater.testing.script import ScriptReader

pytestmark = pytest.mark.spark

asked_by: set[str] = set()


class Watched(Script):
    """A script whose reader notes which threads ask what may change a source's own state."""

    def open(self, spark: SparkSession) -> ScriptReader:
        class Reader(ScriptReader):
            def available_one(self, now_ms: float) -> int:
                asked_by.add(threading.current_thread().name)
                return super().available_one(now_ms)

            def finished(self, *arguments: Any) -> bool:
                asked_by.add(threading.current_thread().name)
                return super().finished(*arguments)

        return Reader(self, checked_schema(self.schema, self.event_time))


def test_queries_are_deployed_and_looked_at_from_other_threads_while_they_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    asked_by.clear()
    sink, refused = sw.memory(), list[str]()
    seen: set[str] = set()
    app = counting(sink)
    records = {f"q{n}": records_of(n) for n in range(6)}

    def deploy(name: str) -> None:
        runtime.deploy(app, name, events=script_of(records[name], Watched))

    def beside() -> None:
        for name in ("q2", "q3", "q4", "q5"):
            deploy(name)
            seen.update(report.name for report in runtime.queries())
        try:
            deploy("q0")
        except DescriptionError as error:
            refused.append(str(error))
        done.set()

    done, helper = threading.Event(), threading.Thread(target=beside, name="beside")

    def from_a_sink(panes: pa.Table) -> None:  # in a slot's thread
        seen.update(report.name for report in runtime.queries())
        runtime.resume("q0")

    with Runtime(spark, journal=tmp_path, slots=2) as runtime:
        deploy("q0")
        deploy("q1")
        told = counting(sw.callback(from_a_sink))
        runtime.deploy(told, "told", events=script_of(records_of(9), Watched))
        endless = script_of(records_of(8), Watched)
        endless.ended_ms = None  # there is something to run until all is done
        runtime.deploy(counting(sw.memory()), "endless", events=endless)
        asked_by.clear()  # while nothing runs, who comes asks
        helper.start()
        runtime.run(until=lambda: done.is_set() and _all_ended(runtime))
        helper.join()
        assert all(report.quarantined is None for report in runtime.queries())
    assert asked_by <= {threading.current_thread().name}
    assert seen >= {"q0", "q1", "q2", "q3", "q4", "q5", "told"}
    assert len(refused) == 1
    assert "deploy(name='q0'): a query of that name is deployed" in refused[0]
    assert_same_panes(sink.table(), expected(records))


def _all_ended(runtime: Runtime) -> bool:
    return all(report.panes == 3 for report in runtime.queries() if report.name != "endless")
