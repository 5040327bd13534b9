"""Fixtures for the whole suite: one Spark session for all tests that need Spark."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from slackwater.errors import MissingRequirementError
from slackwater.spark.maven import jars
from slackwater.testing.kafka_broker import KAFKA, LOGGING, KafkaBroker

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


@pytest.fixture(scope="session")
def kafka_jars() -> None:
    """Have the broker's jars; skip where they cannot be fetched, but never in CI."""
    try:
        jars(KAFKA, LOGGING)
    except MissingRequirementError as error:
        if os.environ.get("CI", "").lower() in ("", "0", "false"):
            pytest.skip(str(error))
        raise


@pytest.fixture(scope="session")
def kafka_broker(kafka_jars: None) -> Iterator[KafkaBroker]:
    """Start the one broker that all tests share; those that stop it must start their own."""
    with KafkaBroker() as broker:
        yield broker
