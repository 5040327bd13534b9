"""A Spark session with the settings that small, frequent steps want."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from slackwater.errors import DescriptionError
from slackwater.spark.pools import FILE, MODE, POOL_FILE

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.adaptive.enabled": "false",  # it keeps its first result, and costs 45 ms a step
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    # Many templates may need more compiled classes than the 100 that Spark keeps by default.
    "spark.sql.codegen.cache.maxEntries": "10000",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.ui.retainedExecutions": "5",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.locality.wait": "0",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.showConsoleProgress": "false",
}
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"


def session(master: str = "local[*]", **settings: str) -> SparkSession:
    """Start (or find) a Spark session that suits Slackwater.

    Further settings go in with underscores for dots: `session(spark_driver_memory="2g")`.
    """
    if master.strip()[:1].isdigit():
        raise DescriptionError(
            f"session(master={master!r}) starts Spark, and that is no address of one; for session "
            f"windows use sessions({master!r})"
        )
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName("slackwater")
    given = {name.replace("_", "."): value for name, value in settings.items()}
    settled = {**SETTINGS, **_pools(given), **given, **_quiet_logging(given)}
    for key, value in settled.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _pools(settings: Mapping[str, str]) -> dict[str, str]:
    """Say what late re-executions get of the cores, where Spark shares them fairly."""
    fair = settings.get(MODE, "").upper() == "FAIR"
    return {FILE: POOL_FILE.as_uri()} if fair else {}


def _quiet_logging(settings: Mapping[str, str]) -> dict[str, str]:
    """Keep warnings of Spark's start off the console, unless the user configures its logging."""
    options = settings.get(_JAVA_OPTIONS, "")
    configured = Path(os.environ.get("SPARK_CONF_DIR", "")) / "log4j2.properties"
    started = SparkSession.getActiveSession() is not None  # too late, and Spark would say so
    if started or "log4j" in options or ("SPARK_CONF_DIR" in os.environ and configured.exists()):
        return {}
    file = Path(__file__).with_name("log4j2.properties").as_uri()
    return {_JAVA_OPTIONS: f"{options} -Dlog4j2.configurationFile={file}".strip()}
