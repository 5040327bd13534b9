from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.cli.conftest import Invoke

from slackwater.runtime.journal import Journal

EXAMPLE = Path(__file__).parents[2] / "examples" / "ads.py"

GOOD = """
import slackwater as sw

def deploy(rt, spark):
    numbers = spark.range(100).selectExpr("id AS key", "id % 2 AS parity")
    app = sw.App("numbers")
    (
        app.source("events")
        .transform(lambda df: df.join(numbers.hint("broadcast"), "key"))
        .window(sw.tumbling("1 second"), by="parity")
        .aggregate(n=sw.count())
        .to(sw.parquet(OUT))
    )
    rt.deploy(app, "numbers", events=sw.generator(rate=100, limit=300, start_ms=0))
"""


def write(directory: Path, text: str) -> Path:
    file = directory / "app.py"
    file.write_text(text)
    return file


def one_line(stderr: str) -> str:
    lines = stderr.splitlines()
    assert len(lines) == 1, stderr
    assert lines[0].startswith("error: ")
    return lines[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("deploy = 3", "defines no deploy function: add def deploy(rt, spark)"),
        ("def deploy(rt): ...", "defines deploy(rt), which cannot take"),
        ("x = 1\ny = nothing", "app.py, line 2: NameError: name 'nothing' is not defined"),
        ("def deploy(", "app.py, line 1: SyntaxError"),
        ("import slackwater as sw\nsw.App('')", "App(name=''): give a name"),
    ],
)
def test_a_file_that_cannot_run_is_explained_in_one_line_before_spark_starts(
    invoke: Invoke, tmp_path: Path, text: str, said: str
) -> None:
    result = invoke("run", write(tmp_path, text))
    assert result.exit_code == 1
    assert said in one_line(result.stderr)
    assert "starting Spark" not in result.stdout


def test_a_missing_file_is_named(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("run", tmp_path / "none.py")
    assert result.exit_code == 1
    assert "none.py does not exist" in one_line(result.stderr)


def test_an_unknown_policy_is_answered_with_the_known_ones(invoke: Invoke) -> None:
    result = invoke("run", EXAMPLE, "--policy", "fastest")
    assert result.exit_code == 1
    assert "use one of klink, klink_no_memory, deadline" in one_line(result.stderr)


def test_debug_shows_where_an_error_came_from(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("--debug", "run", write(tmp_path, "1 / 0"))
    assert result.exit_code == 1
    assert result.exception is not None
    assert isinstance(result.exception.__cause__, ZeroDivisionError)


@pytest.mark.spark
def test_an_app_runs_to_the_end_of_its_input(
    spark: SparkSession, invoke: Invoke, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    file = write(tmp_path, GOOD.replace("OUT", repr(str(out))))
    result = invoke("run", file, "--journal", tmp_path / "state", "--slots", 1)
    assert result.exit_code == 0, result.stderr
    assert f"its journal is in {tmp_path / 'state'}" in result.stdout
    assert sum(pq.read_table(out)["n"].to_pylist()) == 300
    assert spark.range(1).count() == 1  # the session that was running is still there


@pytest.mark.spark
def test_a_second_run_goes_on_from_the_journal(
    spark: SparkSession, invoke: Invoke, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    file = write(tmp_path, GOOD.replace("OUT", repr(str(out))))
    for _ in range(2):
        result = invoke("run", file, "--journal", tmp_path / "state")
        assert "300 records" in result.stdout
    assert sum(pq.read_table(out)["n"].to_pylist()) == 300


@pytest.mark.spark
def test_a_journal_in_use_is_refused_in_one_line(
    spark: SparkSession, invoke: Invoke, tmp_path: Path
) -> None:
    with Journal.open(tmp_path / "state" / "journal"):
        result = invoke("run", EXAMPLE, "--journal", tmp_path / "state")
    assert result.exit_code == 1
    assert "in use by process" in one_line(result.stderr)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def deploy(rt, spark): pass", "deploys no query"),
        ("def deploy(rt, spark):\n    1 / 0", "app.py, line 2: ZeroDivisionError"),
    ],
)
def test_a_deploy_that_fails_is_explained_in_one_line(
    spark: SparkSession, invoke: Invoke, tmp_path: Path, text: str, said: str
) -> None:
    result = invoke("run", write(tmp_path, text))
    assert result.exit_code == 1
    assert said in one_line(result.stderr)


@pytest.mark.spark
def test_a_run_whose_queries_all_failed_exits_with_an_error(
    spark: SparkSession, invoke: Invoke, tmp_path: Path
) -> None:
    failing = GOOD.replace("id % 2 AS parity", "id div raise_error('too odd') AS parity")
    result = invoke("run", write(tmp_path, failing.replace("OUT", repr(str(tmp_path / "out")))))
    assert result.exit_code == 1
    assert "quarantined: numbers" in result.stdout


@pytest.mark.spark
def test_the_example_runs_for_the_seconds_given(
    spark: SparkSession, invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke("run", EXAMPLE, "--journal", "state", "--seconds", 3)
    assert result.exit_code == 0, result.stderr
    assert "running 8 queries" in result.stdout
    status = invoke("status", "state")
    assert "shop-3/purchases" in status.stdout
