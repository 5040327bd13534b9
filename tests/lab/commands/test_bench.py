from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Invoke

from slackwater_lab.bench.command import Progress
from slackwater_lab.bench.figures import RESULT_FIELDS
from slackwater_lab.bench.flink.installation import HOME_VARIABLE
from slackwater_lab.bench.options import BenchOptions
from slackwater_lab.commands import bench as command


def result_of(policy: str, seed: int) -> dict[str, Any]:
    numbers: dict[str, Any] = dict.fromkeys(RESULT_FIELDS, 1)
    names = {"policy": policy, "seed": seed, "workload": "ysb", "delay": "none"}
    return {**numbers, **names, "latencies_ms": [5.0]}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[BenchOptions]:
    """Stand in for the benchmark itself; return what it was asked to do."""
    calls: list[BenchOptions] = []

    def run(options: BenchOptions, progress: Progress) -> list[dict[str, Any]]:
        calls.append(options)
        for place, policy in enumerate(options.policies):
            progress(f"{policy}: measuring", place / len(options.policies))
        progress("done", 1.0)
        results = [
            result_of(policy, options.seed + turn)
            for policy in options.policies
            for turn in range(options.repeat)
        ]
        if options.json is not None:
            Path(options.json).write_text(json.dumps(results))
        return results

    monkeypatch.setattr(command, "run_bench", run)
    return calls


def test_options_reach_the_benchmark(
    invoke: Invoke, asked: list[BenchOptions], tmp_path: Path
) -> None:
    out = tmp_path / "out.json"
    arguments = (
        "--policy deadline,default,stock --queries 8 --rate 500 --seconds 20 --warmup 12 "
        "--delay uniform --seed 3 --distinct 2 --phase aligned --slots 1 --no-durable --sink memory"
        " --start random --profile"
    )
    result = invoke("bench", "ysb", *arguments.split(), "--json", out)
    assert result.exit_code == 0, result.output
    assert asked == [
        BenchOptions(
            policies=("deadline", "default", "stock"),
            queries=8,
            rate=500,
            seconds=20,
            warmup=12,
            delay="uniform",
            seed=3,
            distinct=2,
            phase="aligned",
            start="random",
            profile=True,
            slots=1,
            durable=False,
            sink="memory",
            json=str(out),
        )
    ]
    assert [it["policy"] for it in json.loads(out.read_text())] == ["deadline", "default", "stock"]


def test_a_load_takes_the_place_of_a_rate(
    invoke: Invoke, asked: list[BenchOptions], tmp_path: Path
) -> None:
    result = invoke("bench", "nyt", "--policies", "fcfs,default", "--load", 0.9, "--data", tmp_path)
    assert result.exit_code == 0, result.output
    data = str(tmp_path)
    assert asked == [
        BenchOptions(workload="nyt", policies=("fcfs", "default"), load=0.9, data=data)
    ]


def test_repeats_are_summed_up_below_the_single_results(
    invoke: Invoke, asked: list[BenchOptions], tmp_path: Path
) -> None:
    chart = tmp_path / "latency.png"
    page = invoke("bench", "ysb", "--repeat", 3, "--chart", chart).stdout
    assert asked[0].repeat == 3
    assert page.count("│ klink") == 4
    assert "means over 3 runs" in page
    assert chart.exists()


def test_without_options_the_benchmark_has_its_own_defaults(
    invoke: Invoke, asked: list[BenchOptions]
) -> None:
    assert invoke("bench", "ysb").exit_code == 0
    assert asked == [BenchOptions()]


def test_every_policy_has_a_row_and_a_line_of_progress(
    invoke: Invoke, asked: list[BenchOptions]
) -> None:
    page = invoke("bench", "ysb", "--policy", "deadline, fcfs").stdout
    for policy in ("deadline", "fcfs"):
        assert f"{policy}: measuring" in page
        assert f"│ {policy}" in page


def test_a_chart_is_drawn_from_every_single_latency(
    invoke: Invoke, asked: list[BenchOptions], tmp_path: Path
) -> None:
    result = invoke("bench", "ysb", "--chart", tmp_path / "latency.png")
    assert result.exit_code == 0, result.output
    assert asked[0].profile
    assert (tmp_path / "latency.png").read_bytes().startswith(b"\x89PNG")


def test_where_flink_is_not_installed_it_is_skipped_with_one_line(
    invoke: Invoke, asked: list[BenchOptions], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    result = invoke("bench", "ysb", "--policies", "deadline,flink,flink_durable")
    assert result.exit_code == 0, result.output
    assert [line for line in result.stdout.splitlines() if "make flink" in line] == [
        "flink, flink_durable skipped: not installed here (`make flink` installs it)"
    ]
    assert [options.policies for options in asked] == [("deadline",)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("ysb --policy fastest", "default, stock, flink, flink_durable"),
        ("ysb --policy ,", "name at least one"),
        ("nexmark", "workload='nexmark'"),
        ("ysb --warmup 1", "warmup=1.0"),
        ("ysb --rate 100 --load 0.9", "rate and load exclude each other"),
        ("ysb --data .", "data='.'"),
        ("nyt --data nowhere", "nowhere cannot be read"),
        ("ysb --repeat 0", "repeat=0"),
        ("ysb --delay never", "uniform"),
        ("ysb --json /nowhere/out.json", "its directory does not exist"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_one_line(
    invoke: Invoke, asked: list[BenchOptions], arguments: str, said: str
) -> None:
    result = invoke("bench", *arguments.split())
    assert result.exit_code == 1
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert asked == []
