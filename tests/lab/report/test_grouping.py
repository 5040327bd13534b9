from typing import Any

from tests.lab.report.results import result

from slackwater_lab.report.figure_rows import Cell, figure_rows
from slackwater_lab.report.grouping import comparisons
from slackwater_lab.report.reading import ReportedRun


def runs(*results: dict[str, Any]) -> list[ReportedRun]:
    return [ReportedRun("out.json", values) for values in results]


def test_runs_are_compared_only_with_those_of_the_same_options() -> None:
    compared = comparisons(
        runs(result("deadline", queries=2), result("fcfs", queries=8), result("stock", queries=2))
    )
    assert [[column.policy for column in it.columns] for it in compared] == [
        ["deadline", "stock"],
        ["fcfs"],
    ]


def test_runs_that_differ_in_their_seed_alone_are_one_column_with_their_mean() -> None:
    [compared] = comparisons(
        runs(result("deadline", seed=1, mean_ms=100.0), result("deadline", seed=2, mean_ms=140.0))
    )
    [column] = compared.columns
    assert column.number("mean_ms") == 120.0
    assert column.extremes("mean_ms") == (100.0, 140.0)
    rows = dict(figure_rows(compared))
    assert rows["latency, mean"] == [Cell("120 ms", "1.00x", "100 ms to 140 ms")]
    assert rows["steps"] == [Cell("4", "1.00x")]  # the same in both
    assert rows["runs (seeds)"] == [Cell("2 (1, 2)")]


def test_a_mean_is_not_taken_over_a_part_of_the_runs() -> None:
    [compared] = comparisons(runs(result("stock", seed=1, mean_ms=None), result("stock", seed=2)))
    assert compared.columns[0].number("mean_ms") is None


def test_ratios_are_to_the_first_policy_and_missing_figures_stay_missing() -> None:
    [compared] = comparisons(
        runs(
            result("deadline", mean_ms=100.0, steps=0),
            result("stock", mean_ms=250.0, overhead_share=None),
        )
    )
    rows = dict(figure_rows(compared))
    assert rows["latency, mean"] == [Cell("100 ms", "1.00x"), Cell("250 ms", "2.50x")]
    assert rows["deciding, of the time"][1] == Cell("-")
    assert rows["steps"] == [Cell("0"), Cell("4")]  # there is no ratio to nothing
    assert "SWM coverage" not in rows


def test_figures_of_newer_files_are_shown_under_their_own_names() -> None:
    [compared] = comparisons(runs(result("deadline", shed_rows=1.5, wait_mean_ms=12.0)))
    rows = dict(figure_rows(compared))
    assert rows["shed_rows"][0].text == "1.5"
    assert rows["wait_mean_ms"][0].text == "12 ms"
    assert "seed" not in rows
    assert "queries" not in rows
