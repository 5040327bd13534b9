"""What compositions must come to: plain Spark batches over all events of each tenant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.fuzz.compositions import Composition, Plan, function_of, plan_of, quoted
from tests.fuzz.events import START, TENANTS, batch_of, events_of
from tests.fuzz.outcomes import Outcome, Rows, essence


def planned(spark: SparkSession, composition: Composition) -> Plan:
    """Choose what to compute; nothing but a count where a batch would not even begin."""
    try:
        events = batch_of(spark, composition.columns, composition.events, 0)
        return plan_of(composition, function_of(spark, composition)(events).schema)
    except Exception:
        return Plan()


def in_batch(spark: SparkSession, composition: Composition, plan: Plan) -> Outcome:
    """Compute the windows of each tenant from all of its events at once."""
    with interpreted(spark):
        try:
            tenants = (_applied if composition.applied else _transformed)(spark, composition)
            together = _windowed(composition, plan, list(tenants))
        except Exception as error:
            return Outcome(refused=essence(error))
        try:
            return _collected(together.toArrow())
        except Exception as error:
            return _each_by_itself(composition, plan, tenants, error)


@contextmanager
def interpreted(spark: SparkSession) -> Iterator[None]:
    """Do without generated code: compiling it takes far longer than these few rows."""
    settings = {
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    before = {name: str(spark.conf.get(name)) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.set(name, old)


def _transformed(spark: SparkSession, composition: Composition) -> list[DataFrame]:
    transform = function_of(spark, composition)
    return [
        transform(batch_of(spark, composition.columns, composition.events, tenant)).withColumn(
            "_tenant", F.lit(tenant)
        )
        for tenant in range(TENANTS)
    ]


def _applied(spark: SparkSession, composition: Composition) -> list[DataFrame]:
    """Run the function over each window's rows alone."""
    function = function_of(spark, composition)
    tenants = []
    for tenant in range(TENANTS):
        times = [each.values["ts"] for each in events_of((), composition.events, tenant)]
        windows = []
        for start in sorted({_floor(time) for time in times}):
            rows = batch_of(spark, composition.columns, composition.events, tenant, start, 4)
            windows.append(function(rows).withColumn("_start", F.lit(start)))
        tenants.append(reduce(DataFrame.union, windows).withColumn("_tenant", F.lit(tenant)))
    return tenants


def _floor(time: datetime) -> datetime:
    return START + (time - START) // timedelta(seconds=4) * timedelta(seconds=4)


def _windowed(composition: Composition, plan: Plan, tenants: Sequence[DataFrame]) -> DataFrame:
    rows = reduce(DataFrame.union, tenants)
    if composition.applied:
        return rows.withColumnRenamed("_start", "start")
    window = F.window("ts", "4 seconds", f"{composition.slide_s} seconds").alias("_window")
    grouped = rows.groupBy("_tenant", window, *map(quoted, plan.by)).agg(*plan.sparks())
    return grouped.withColumn("start", F.col("_window.start")).drop("_window")


def _collected(table: pa.Table, failed: frozenset[int] = frozenset()) -> Outcome:
    found: dict[int, Rows] = {tenant: [] for tenant in range(TENANTS)}
    for row in table.to_pylist():
        found[row.pop("_tenant")].append(row)
    types = {field.name: field.type for field in table.schema}
    return Outcome(rows=found, types=types, failed=failed)


def _each_by_itself(
    composition: Composition, plan: Plan, tenants: Sequence[DataFrame], error: Exception
) -> Outcome:
    """Find out for which tenants a batch fails."""
    tables, failed = [], set()
    for tenant, rows in enumerate(tenants):
        try:
            tables.append(_windowed(composition, plan, [rows]).toArrow())
        except Exception:
            failed.add(tenant)
    if not tables:
        return Outcome(refused=essence(error), failed=frozenset(failed))
    return _collected(pa.concat_tables(tables), frozenset(failed))
