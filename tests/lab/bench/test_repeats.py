from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from slackwater_lab.bench.figures import FURTHER_FIELDS, RESULT_FIELDS
from slackwater_lab.bench.repeats import RATIOS, SUMMARISED, interval, summary
from slackwater_lab.bench.table import summary_table


def result(policy: str, seed: int, mean_ms: float | None) -> dict[str, Any]:
    numbers: dict[str, Any] = dict.fromkeys(RESULT_FIELDS, 10)
    names = {"policy": policy, "seed": seed, "workload": "ysb", "delay": "none"}
    return {**numbers, **names, "mean_ms": mean_ms, "load": None, "overhead_share": None}


RESULTS = [
    result("a", 7, 100.0),
    result("a", 8, 200.0),
    result("a", 9, 300.0),
    result("b", 7, 50.0),
    result("b", 8, 120.0),
    result("b", 9, 120.0),
]


def test_one_run_has_no_interval() -> None:
    assert (interval([4.0]).low, interval([4.0]).high, interval([4.0]).mean) == (None, None, 4.0)


def test_equal_runs_have_an_interval_of_no_width() -> None:
    assert (interval([4.0, 4.0]).low, interval([4.0, 4.0]).high) == (4.0, 4.0)


def test_each_policy_is_summed_up_over_its_seeds() -> None:
    first, second = summary(RESULTS)
    assert (first["policy"], first["seeds"]) == ("a", [7, 8, 9])
    # The standard error of 100, 200, 300 is 57.7; Student's t for three runs is 4.303.
    assert first["mean_ms"] == {"mean": 200.0, "low": -48.4138, "high": 448.4138, "runs": 3}
    assert second["mean_ms"]["mean"] == pytest.approx(96.6667)
    assert first["overhead_share"] is None


def test_ratios_compare_runs_of_one_seed() -> None:
    first, second = summary(RESULTS)
    assert first["ratios"]["mean_ms"]["mean"] == 1.0
    assert second["ratios"]["mean_ms"]["mean"] == 0.5  # 0.5, 0.6 and 0.4; not 96.7 / 200
    assert second["ratios"]["mean_ms"]["runs"] == 3


def test_a_figure_that_one_run_lacks_is_not_summed_up() -> None:
    [first] = summary([result("a", 7, None), result("a", 8, 20.0)])
    assert first["mean_ms"] is None
    assert first["ratios"]["mean_ms"] is None
    assert first["p99_ms"]["mean"] == 10.0


def test_only_figures_that_results_have_are_summed_up() -> None:
    assert set(SUMMARISED) <= {*RESULT_FIELDS, *FURTHER_FIELDS}
    assert set(RATIOS) <= set(SUMMARISED)


def test_the_table_shows_means_and_intervals(capsys: pytest.CaptureFixture[str]) -> None:
    Console(width=240).print(summary_table(RESULTS))
    shown = capsys.readouterr().out
    assert "200 ms (0.0 ms - 448 ms)" in shown
    assert "0.50 (0.25 - 0.75)" in shown
    assert "seeds 7 to 9" in shown
    assert "means over 3 runs" in shown
