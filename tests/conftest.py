"""Fixtures for the whole suite: one Spark session for all tests that need Spark."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

# The same examples on every run, on slow machines too; `--hypothesis-profile=explore` tries others.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", max_examples=2_000, deadline=None)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Start the one local session that all Spark tests share."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers need what the tests import
    session = (
        SparkSession.builder.master("local[2]")
        .appName("slackwater-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.locality.wait", "0")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
