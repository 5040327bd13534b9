"""Spark's own Kafka connector, which only comparisons need."""

from __future__ import annotations

import os
from typing import Final

import pyspark

from slackwater.errors import MissingRequirementError
from slackwater.spark.maven import jars

CONNECTOR: Final = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
VARIABLE: Final = "SLACKWATER_KAFKA_CONNECTOR"


def connector_jars() -> str:
    """Return the jars, with commas between: those the variable names, or else fetched ones."""
    named = os.environ.get(VARIABLE)
    if named:
        return named
    try:
        return ",".join(map(str, jars(CONNECTOR)))
    except MissingRequirementError as error:
        raise MissingRequirementError(
            f"{error}; or name the jars of another version, with commas between, in {VARIABLE}"
        ) from error
