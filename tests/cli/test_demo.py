from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from rich.console import Console
from tests.cli.conftest import Invoke

from slackwater.cli.board import StepNotes, render
from slackwater.runtime.reports import PaneReport, QueryReport, StepReport, StepTimes

NOW_MS = 1_704_067_205_000.0


def query(name: str, *, deadline_ms: int, quarantined: str | None = None) -> QueryReport:
    return QueryReport(
        name=name,
        window="tumbling 3 s",
        watermark_ms=1_704_067_203_500,
        deadline_ms=deadline_ms,
        queued=0,
        open_windows=1,
        state_rows=100,
        records=5_000,
        rejected=0,
        too_late_rows=0,
        panes=1,
        rows_out=100,
        quarantined=quarantined,
    )


def step(number: int, *, query: str, committed_ms: float, latency_ms: float) -> StepReport:
    end_ms = int(committed_ms - latency_ms)
    pane = PaneReport(query, end_ms - 3_000, end_ms, 0, "on_time", 100, end_ms + 5, committed_ms)
    return StepReport(
        step=number,
        queries=(query,),
        template=0,
        events=1_000,
        prepared=True,
        panes=(pane,),
        times=StepTimes(),
        started_ms=committed_ms - 20,
        committed_ms=committed_ms,
    )


def shown(queries: list[QueryReport], notes: StepNotes, height: int = 30) -> str:
    console = Console(width=100, height=height)
    with console.capture() as captured:
        console.print(render(queries, notes, now_ms=NOW_MS, height=height, head="5 of 30 s"))
    return captured.get()


def test_the_table_says_when_each_window_ends_and_how_late_the_last_one_was() -> None:
    notes = StepNotes()
    notes.step_committed(step(0, query="a", committed_ms=NOW_MS - 900, latency_ms=84))
    page = shown(
        [
            query("a", deadline_ms=int(NOW_MS) + 1_200),
            query("b", deadline_ms=int(NOW_MS) - 10),
            query("c", deadline_ms=int(NOW_MS), quarantined="ValueError: no"),
        ],
        notes,
    )
    rows = {line.split()[0]: line for line in page.splitlines() if line.strip()}
    assert "1.2 s" in rows["a"]
    assert "84 ms" in rows["a"]
    assert "00:00:03.500" in rows["a"]
    assert "closing" in rows["b"]
    assert "stopped" in rows["c"]


def test_the_table_fits_the_terminal() -> None:
    queries = [query(f"q{number}", deadline_ms=int(NOW_MS) + 1_000) for number in range(50)]
    page = shown(queries, StepNotes(), height=20)
    assert len(page.rstrip().splitlines()) < 20
    assert "more queries" in page


def test_the_figures_are_about_the_last_ten_seconds() -> None:
    notes = StepNotes()
    notes.step_committed(step(0, query="a", committed_ms=NOW_MS - 20_000, latency_ms=9_000))
    for number in range(1, 4):
        committed_ms = NOW_MS - 1_000 * number
        notes.step_committed(step(number, query="a", committed_ms=committed_ms, latency_ms=50))
    assert "4 steps" in notes.work()
    assert "latency 50 ms mean, 50 ms p99" in notes.timeliness()
    assert len(notes.panes) == 4


def test_before_the_first_result_no_latency_is_shown() -> None:
    assert StepNotes().timeliness() == "no result yet"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--policy", "fastest"), "policy='fastest' is unknown"),
        (("--delay", "never"), "delay='never' is unknown"),
        (("--out", "full"), "is not empty"),
    ],
)
def test_a_demo_that_cannot_run_is_refused_before_spark_starts(
    invoke: Invoke,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    result = invoke("demo", *arguments)
    assert result.exit_code == 1
    assert said in result.stderr
    assert result.stdout == ""


@pytest.mark.spark
def test_the_demo_leaves_results_journal_and_chart_where_asked(
    spark: SparkSession, invoke: Invoke, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    result = invoke("demo", "--queries", 2, "--rate", 100, "--seconds", 4, "--out", out)
    assert result.exit_code == 0, result.output
    assert pq.read_table(out / "views").num_rows > 0
    assert "2 queries" in result.stdout
    assert "ysb-1" in invoke("status", out).stdout
    assert spark.range(1).count() == 1  # the session that was running is still there


@pytest.mark.spark
def test_the_demo_removes_what_it_was_not_asked_to_keep(
    spark: SparkSession, invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = invoke("demo", "--queries", 1, "--rate", 100, "--seconds", 1)
    assert result.exit_code == 0, result.output
    left = [path.name for path in tmp_path.rglob("*") if path.is_file()]
    assert left in ([], ["latency.png"])
