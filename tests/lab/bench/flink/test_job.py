import json
from pathlib import Path

import numpy as np
import pytest

from slackwater.errors import DescriptionError
from slackwater.progress.distributions import NAMED_DELAYS, DelayDistribution
from slackwater.progress.tables import Floats
from slackwater_lab.bench import options as bench_options
from slackwater_lab.bench.flink.job import CHECKPOINT_MS, FlinkJob, delay_spec
from slackwater_lab.bench.options import BenchOptions
from slackwater_lab.workloads.due import Span


def test_every_delay_that_can_be_asked_for_can_be_told_to_the_job() -> None:
    for delay in NAMED_DELAYS.values():
        assert json.loads(json.dumps(delay_spec(delay)))["kind"] in ("line", "alias", "quantiles")


def test_a_delay_that_the_job_cannot_draw_is_refused() -> None:
    class Odd(DelayDistribution):
        mean_ms = 1.0

        def quantile(self, p: float) -> float:
            return p

        def draw(self, u: Floats) -> Floats:
            return u

        def sql(self, u: str) -> str:
            return u

    with pytest.raises(TypeError, match="cannot draw from"):
        delay_spec(Odd())


def test_each_query_has_events_and_windows_of_its_own(tmp_path: Path) -> None:
    spec = FlinkJob(BenchOptions(queries=3, distinct=2, rate=500), 50).spec(tmp_path)
    assert [query["offset_ms"] for query in spec["queries"]] == [0, 1_859, 718]
    assert [query["variant"] for query in spec["queries"]] == [0, 1, 0]
    assert len({query["salt"] for query in spec["queries"]}) == 3
    assert all(-(2**63) <= query["salt"] < 2**63 for query in spec["queries"])
    assert (spec["gap_us"], spec["window_ms"], spec["checkpoint_ms"]) == (2_000.0, 3_000, None)


def test_checkpoints_are_written_only_when_asked_for(tmp_path: Path) -> None:
    spec = FlinkJob(BenchOptions(queries=1), 200, checkpoints=True).spec(tmp_path)
    assert spec["checkpoint_ms"] == CHECKPOINT_MS
    assert spec["settings"]["execution.checkpointing.dir"] == (tmp_path / "checkpoints").as_uri()


def test_flink_listens_on_this_machine_only(tmp_path: Path) -> None:
    settings = FlinkJob(BenchOptions(queries=1), 50).spec(tmp_path)["settings"]
    hosts = [value for name, value in settings.items() if name.endswith(("host", "address"))]
    assert len(hosts) == 4
    assert set(hosts) == {"127.0.0.1"}


def test_windows_are_due_when_their_closing_event_arrives() -> None:
    start_ms = 1_700_000_000_000
    job = FlinkJob(BenchOptions(queries=2, rate=1_000, delay="uniform"), 50)
    span = Span(start_ms + 10_000, start_ms + 22_000)
    due = job.due(start_ms, span)
    assert len(due) == pytest.approx(8, abs=1)
    behind = np.array([due_ms - end_ms for (_, end_ms), due_ms in due.items()])
    assert (behind >= 500).all()  # the lag of delays up to 500 ms
    assert (behind < 600).all()
    assert all(due_ms in span for due_ms in due.values())


def test_other_workloads_say_that_flink_has_no_job_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bench_options, "WORKLOADS", ("ysb", "other"))
    for policy in ("flink", "flink_durable"):
        with pytest.raises(DescriptionError, match="written for the workload ysb alone"):
            BenchOptions(workload="other", policies=("deadline", policy))
