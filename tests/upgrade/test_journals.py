"""A journal of each format that was ever written can be opened, and its queries go on."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.upgrade.fleet import apps, broken, run

from slackwater.runtime.ledger import Ledger
from slackwater.spark.sinks.pane_tables import last_panes
from slackwater.spark.sinks.parquet import read_panes

JOURNALS = sorted((Path(__file__).parent / "journals").glob("*.tar.gz"))


@pytest.fixture(scope="module")
def expected(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[dict[str, Any]]]:
    """Run the fleet from its beginning to its end, without a stop."""
    return results(spark, tmp_path_factory.mktemp("whole"))


every_journal = pytest.mark.parametrize(
    "journal", JOURNALS, ids=lambda path: path.name.removesuffix(".tar.gz")
)


@every_journal
def test_a_journal_of_an_earlier_format_is_read(tmp_path: Path, journal: Path) -> None:
    with tarfile.open(journal) as kept:
        kept.extractall(tmp_path, filter="data")
    ledger = Ledger(tmp_path / "state")
    try:
        queries = ledger.content.queries
        assert set(queries) == set(apps(tmp_path, broken))
        assert queries["failing"].pending is not None
        assert "ValueError: not now" in (queries["failing"].quarantined or "")
        assert ledger.block_paths()
    finally:
        ledger.close()


@pytest.mark.spark
@pytest.mark.slow
@every_journal
def test_a_journal_of_an_earlier_format_goes_on_to_the_same_results(
    spark: SparkSession,
    tmp_path: Path,
    journal: Path,
    expected: dict[str, list[dict[str, Any]]],
) -> None:
    with tarfile.open(journal) as kept:
        kept.extractall(tmp_path, filter="data")
    assert results(spark, tmp_path) == expected


def results(spark: SparkSession, directory: Path) -> dict[str, list[dict[str, Any]]]:
    """Run what is left of the fleet, and return each query's last results."""
    called: list[pa.Table] = []
    run(spark, directory, failing=called.append)
    found = {
        name: shown(read_panes(directory / "out" / name))
        for name in apps(directory / "out", broken)
        if name != "failing"
    }
    return found | {"failing": shown(pa.concat_tables(called))}


def shown(panes: pa.Table) -> list[dict[str, Any]]:
    rows = last_panes(panes).drop_columns(["pane", "timing"]).to_pylist()
    return sorted(rows, key=str)
