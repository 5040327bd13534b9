from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Invoke
from tests.lab.report.results import result


def test_several_files_become_one_page_and_its_plots(invoke: Invoke, tmp_path: Path) -> None:
    for queries in (2, 8):
        results = [result(policy, queries=queries) for policy in ("deadline", "fcfs")]
        (tmp_path / f"{queries}.json").write_text(json.dumps(results))
    done = invoke(
        "report", tmp_path / "2.json", tmp_path / "8.json", "-o", tmp_path / "r.html", "--png",
        tmp_path / "png",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert f"report: {tmp_path / 'r.html'}" in done.stdout
    page = (tmp_path / "r.html").read_text()
    assert "ysb: 2 queries" in page
    assert "ysb: 8 queries" in page
    assert (tmp_path / "png" / "latency-by-queries.png").exists()
    assert f"plots: {len(list((tmp_path / 'png').iterdir()))} in " in done.stdout


def test_a_file_that_holds_no_results_is_refused_in_one_line(
    invoke: Invoke, tmp_path: Path
) -> None:
    (tmp_path / "out.json").write_text("policy,mean\n")
    done = invoke("report", tmp_path / "out.json", "-o", tmp_path / "r.html")
    assert done.exit_code == 1
    assert len(done.stderr.splitlines()) == 1
    assert "out.json holds no JSON" in done.stderr
    assert not (tmp_path / "r.html").exists()


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"results":' + "[" * 5_000 + "]" * 5_000 + "}",
        json.dumps([result("fcfs") | {"queries": 10**400}]),
    ],
)
def test_a_file_that_nobody_could_show_is_refused_in_one_line(
    invoke: Invoke, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "bomb.json"
    file.write_text(text)
    done = invoke("report", file, "-o", tmp_path / "r.html")
    assert done.exit_code == 1
    assert "Traceback" not in done.output
    assert "bomb.json" in done.output
    assert not (tmp_path / "r.html").exists()
