"""`slackwater simulate`, from its options to its table and its JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Invoke


def test_the_command_compares_policies_and_writes_them_down(invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    options = ["--queries", "8", "--distinct", "2", "--seconds", "9", "--seeds", "1"]
    result = invoke("simulate", "fleet", *options, "--json", str(file))
    assert result.exit_code == 0
    assert "no schedule can have a mean below 40 ms, noise apart" in result.stdout
    found = {one["policy"]: one["propagation_mean_ms"] for one in json.loads(file.read_text())}
    assert found["klink"] < found["default"]


def test_the_command_says_when_fixed_costs_alone_are_too_much(invoke: Invoke) -> None:
    result = invoke("simulate", "fleet", "--queries", "400", "--load", "0.9")
    assert result.exit_code == 1
    assert "fixed costs" in result.stderr


def test_nodes_that_are_no_numbers_are_named(invoke: Invoke) -> None:
    result = invoke("simulate", "published", "--nodes", "1,many")
    assert result.exit_code == 1
    assert "nodes='1,many'" in result.stderr


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"calibration": "x"}',
        '{"calibration": {"templates": []}}',
        '{"calibration": {"templates": [{"fixed_ms": 1' + "0" * 400 + ', "per_event_ms": 1}]}}',
    ],
)
def test_costs_that_no_benchmark_measured_are_refused_in_one_line(
    invoke: Invoke, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "costs.json"
    file.write_text(text)
    result = invoke("simulate", "fleet", "--costs", file)
    assert result.exit_code == 1
    assert "slackwater bench" in result.stderr
    assert "Traceback" not in result.output
