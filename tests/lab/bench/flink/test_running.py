import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slackwater.errors import MissingRequirementError
from slackwater.progress.arrivals import hash64
from slackwater_lab.bench.figures import figures
from slackwater_lab.bench.flink.installation import HOME_VARIABLE, FlinkInstallation
from slackwater_lab.bench.flink.job import FlinkJob
from slackwater_lab.bench.flink.running import Watched, run_flink, running
from slackwater_lab.bench.options import BenchOptions
from slackwater_lab.bench.ours import DRAIN_MS

START_MS = 1_700_000_000_000
OPTIONS = BenchOptions(policies=("flink",), queries=1, rate=1_000, seconds=6, warmup=10)


def told(watched: Watched, now_ms: float) -> bool:
    return watched.over(now_ms, lambda text, share: None)


@pytest.fixture
def watched() -> Watched:
    it = Watched(FlinkJob(OPTIONS, 50))
    it.take({"start_ms": START_MS})
    for second in range(19):
        at_ms = START_MS + second * 1_000
        it.take({"events": second * 1_000, "late": second, "at_ms": at_ms})
    return it


def test_a_window_counts_from_its_closing_event_to_its_last_row(watched: Watched) -> None:
    ends = sorted(end_ms for _, end_ms in watched.due)
    for end_ms in ends:
        watched.take({"query": 0, "end_ms": end_ms, "out_ms": end_ms + 30, "rows": 100})
    watched.take({"query": 0, "end_ms": ends[0] - 3_000, "out_ms": 0, "rows": 100})
    result = figures(OPTIONS, "flink", watched.measured("watermarks every 50 ms"))
    assert result["windows_fired"] == result["windows_due"] == 2
    assert result["mean_ms"] == 30.0
    assert result["propagation_mean_ms"] == pytest.approx(30.0, abs=1.0)
    assert (result["events"], result["events_per_s"]) == (6_000, 1_000.0)
    assert result["late_rows"] == 6


def test_the_run_waits_for_windows_that_are_missing_until_the_drain_is_over(
    watched: Watched,
) -> None:
    assert watched.span is not None
    until_ms = watched.span.until_ms
    assert not told(watched, until_ms + 1)
    assert told(watched, until_ms + DRAIN_MS)
    for query, end_ms in watched.due:
        watched.out[query, end_ms] = end_ms + 1.0
    assert told(watched, until_ms + 1)


def test_the_run_is_not_over_before_all_events_of_its_span_are_counted() -> None:
    it = Watched(FlinkJob(OPTIONS, 50))
    assert not told(it, START_MS)
    it.take({"start_ms": START_MS})
    it.take({"events": 0, "late": 0, "at_ms": START_MS})
    assert not told(it, START_MS + 100_000)


def test_where_flink_is_not_installed_it_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    with pytest.raises(MissingRequirementError, match="make flink"):
        run_flink(OPTIONS, "flink", "watermarks every 50 ms", tmp_path)


def test_an_installation_is_complete_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    libraries = tmp_path / "lib" / "python3.11" / "site-packages" / "pyflink" / "lib"
    libraries.mkdir(parents=True)
    for name in ("flink-dist-2.3.0", "log4j-api-2", "log4j-core-2", "log4j-slf4j-impl-2"):
        (libraries / f"{name}.jar").touch()
    assert FlinkInstallation.at(tmp_path) is None
    (tmp_path / "classes").mkdir()
    (tmp_path / "classes" / "YsbJob.class").touch()
    found = FlinkInstallation.at(tmp_path)
    assert found is not None
    assert found.version == "2.3.0"
    monkeypatch.setenv("JAVA_HOME", "/java")
    command = found.command("YsbJob", "spec.json")
    assert command[0] == "/java/bin/java"
    assert command[-2:] == ["YsbJob", "spec.json"]
    classpath = command[command.index("-cp") + 1].split(os.pathsep)
    assert classpath[0] == str(tmp_path / "classes")
    assert len(classpath) == 5


class PatientJob(FlinkJob):
    """Wait for events longer than any is delayed, so that none is late."""

    def spec(self, directory: Path) -> dict[str, Any]:
        return super().spec(directory) | {"lag_ms": 1_500}


@pytest.mark.skipif(FlinkInstallation.find() is None, reason="needs Flink (make flink)")
@pytest.mark.parametrize(("delay", "durable"), [("zipf", False), ("gamma", True)])
def test_flink_counts_the_very_events_that_slackwater_generates(
    tmp_path: Path, delay: str, durable: bool
) -> None:
    options = BenchOptions(policies=("flink",), queries=3, distinct=3, rate=300, delay=delay)
    job = PatientJob(options, 50, checkpoints=durable)
    watched = Watched(job)
    started_ms: int | None = None
    with running(job, tmp_path) as process:
        assert process.stdout is not None
        for line in process.stdout:
            watched.take(told := json.loads(line))
            started_ms = told.get("start_ms", started_ms)
            if len(watched.windows) == 4:
                break
    assert started_ms is not None
    assert process.returncode == 0
    assert watched.late[-1] == 0
    expected = {query: expected_windows(job, query, started_ms) for query in range(options.queries)}
    for seen in watched.windows:
        figures_of = {name: seen[name] for name in ("rows", "views", "weighted")}
        assert figures_of == expected[seen["query"]][seen["end_ms"]]
        assert seen["views"] > 0


def expected_windows(job: FlinkJob, query: int, start_ms: int) -> dict[int, dict[str, int]]:
    """Count by other means: views by window end and campaign, of the first minute's events."""
    stream = job.streams(start_ms)[query]
    count = int(job.options.rate * 60)
    times = stream.event_ms(0, count)
    hashes = hash64(np.uint64(stream.arrivals.salt) ^ np.arange(count, dtype=np.uint64))
    scaled = (hashes & np.uint64(2**32 - 1)) * np.uint64(3)
    kinds = scaled >> np.uint64(32)
    ads = ((scaled & np.uint64(2**32 - 1)) * np.uint64(1_000)) >> np.uint64(32)
    more = hash64(hashes).astype(np.int64)
    users, pages = more & 1_048_575, (more >> 20) & 1_048_575
    passes = [users != query, pages != query, users != pages + query][query % 3]
    kept = (kinds == 0) & (passes if query else True)
    offset_ms = query * 1_859 % 3_000
    ends = (times - offset_ms) // 3_000 * 3_000 + offset_ms + 3_000
    counts: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for end_ms, ad in zip(ends[kept].tolist(), ads[kept].tolist(), strict=True):
        counts[end_ms][ad // 10] += 1
    return {
        end_ms: {
            "rows": len(views),
            "views": sum(views.values()),
            "weighted": sum((campaign + 1) * many for campaign, many in views.items()),
        }
        for end_ms, views in counts.items()
    }
