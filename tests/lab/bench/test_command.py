import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from slackwater.errors import SlackwaterError
from slackwater_lab.bench import command
from slackwater_lab.bench.calibration import Calibration, Sample, TemplateCost
from slackwater_lab.bench.command import Progress, run_bench, write_json
from slackwater_lab.bench.figures import Measured, figures
from slackwater_lab.bench.options import BenchOptions
from slackwater_lab.bench.table import results_table
from slackwater_lab.bench.worker import Task
from slackwater_lab.workloads.due import Span

LATENCY_MS = {None: 40.0, "0 seconds": 4_700.0, "3 seconds": 3_900.0}


def measured(task: Task, progress: Progress) -> dict[str, Any]:
    progress("measuring", 0.5)
    seen = Measured(
        span=Span(0, 1_000),
        due={("q", 1_000): 1_010.0},
        out={("q", 1_000): 1_000 + LATENCY_MS[task.trigger]},
        events=10,
        steps=1,
        served=1,
        trigger=task.trigger,
    )
    return figures(task.options, task.policy, seen)


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "run_task", measured)


@pytest.mark.usefixtures("workers")
def test_each_policy_has_one_result_in_the_order_asked(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    results = run_bench(BenchOptions(policies=("stock", "deadline"), json=str(path)))
    assert [result["policy"] for result in results] == ["stock", "deadline"]
    assert results[0]["trigger"] == "3 seconds"
    assert json.loads(path.read_text()) == results


@pytest.mark.usefixtures("workers")
def test_repeats_are_written_policy_by_policy_with_a_summary(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    options = BenchOptions(policies=("stock", "deadline"), repeat=3, json=str(path))
    results = run_bench(options)
    expected = [(policy, seed) for policy in ("stock", "deadline") for seed in (7, 8, 9)]
    assert [(result["policy"], result["seed"]) for result in results] == expected
    written = json.loads(path.read_text())
    assert written["results"] == results
    assert [it["policy"] for it in written["summary"]] == ["stock", "deadline"]
    assert written["summary"][1]["mean_ms"] == {"mean": 40.0, "low": 40.0, "high": 40.0, "runs": 3}
    assert written["calibration"] is None


@pytest.mark.usefixtures("workers")
def test_with_a_load_all_policies_run_at_the_rate_that_follows_from_one_calibration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calibrated: list[Task] = []
    costs = Calibration(2, 3_000, (TemplateCost(0, 60.0, 0.0001, (Sample(1_000, 60.1),)),))

    def find_costs(task: Task, progress: Progress) -> Calibration:
        calibrated.append(task)
        progress("measuring steps", 1.0)
        return costs

    monkeypatch.setattr(command, "run_calibration", find_costs)
    told: list[float] = []
    path = tmp_path / "out.json"
    options = BenchOptions(policies=("deadline", "fcfs"), queries=20, load=0.9, json=str(path))
    results = run_bench(options, lambda text, share: told.append(share))
    # 20 steps of 60 ms in 3 s take 0.2 of two slots; 0.7 are left for events of 100 ns.
    assert [result["rate"] for result in results] == [700_000.0, 700_000.0]
    assert len(calibrated) == 1
    assert told == sorted(told)
    written = json.loads(path.read_text())
    assert written["results"] == results
    assert written["summary"] is None
    assert Calibration.from_dict(written["calibration"]) == costs


@pytest.mark.usefixtures("workers")
def test_progress_never_goes_back_and_ends_at_one() -> None:
    told: list[tuple[str, float]] = []
    run_bench(
        BenchOptions(policies=("deadline", "stock")), lambda text, share: told.append((text, share))
    )
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert told[-1] == ("done", 1.0)
    assert told[0][0] == "deadline: measuring"


def test_the_table_shows_every_policy(capsys: pytest.CaptureFixture[str]) -> None:
    results = [
        measured(Task(BenchOptions(), "deadline"), lambda text, share: None),
        measured(Task(BenchOptions(), "stock", "3 seconds"), lambda text, share: None),
    ]
    Console(width=240).print(results_table(results))
    shown = capsys.readouterr().out
    assert "deadline" in shown
    assert "stock (trigger 3 seconds)" in shown
    assert "3.90 s" in shown
    assert "97.50" in shown


def test_results_are_written_as_a_list(tmp_path: Path) -> None:
    write_json(tmp_path / "none.json", [])
    assert json.loads((tmp_path / "none.json").read_text()) == []


def test_an_error_that_says_what_to_do_comes_without_a_log(tmp_path: Path) -> None:
    options = BenchOptions(workload="nyt", data=str(tmp_path), directory=str(tmp_path))
    with pytest.raises(SlackwaterError, match=r"^deadline: data='.*' holds no Parquet file"):
        command.run_task(Task(options, "deadline"), lambda text, share: None)


def test_a_worker_that_fails_is_reported_with_the_end_of_its_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Task, "to_json", lambda task: "no JSON at all")
    task = Task(BenchOptions(directory=str(tmp_path)), "deadline")
    with pytest.raises(SlackwaterError, match=r"deadline failed \(exit code 1\)(?s:.*)JSONDecode"):
        command.run_task(task, lambda text, share: None)
    assert list(tmp_path.iterdir()) == []
