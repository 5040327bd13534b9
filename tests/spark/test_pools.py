from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
from pyspark.sql import SparkSession

from slackwater.spark.pools import LATE_POOL, MODE, POOL_FILE, StepPools


def test_late_re_executions_weigh_less_than_all_else() -> None:
    pools = ElementTree.parse(POOL_FILE).getroot().findall("pool")
    weights = {pool.get("name"): int(pool.findtext("weight") or 0) for pool in pools}
    assert 0 < weights[LATE_POOL] < weights["default"]


@pytest.mark.spark
def test_jobs_give_way_only_where_spark_shares_fairly_and_only_meanwhile(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = spark.sparkContext
    assert context.getConf().get(MODE, "FIFO") == "FIFO"
    with StepPools(spark).late():
        assert context.getLocalProperty("spark.scheduler.pool") is None
    fair = context.getConf().set(MODE, "FAIR")
    monkeypatch.setattr(context, "getConf", lambda: fair)
    pools = StepPools(spark)
    with pools.late():
        assert context.getLocalProperty("spark.scheduler.pool") == LATE_POOL
        assert spark.range(5).count() == 5
    assert context.getLocalProperty("spark.scheduler.pool") is None
