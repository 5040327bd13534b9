"""The rows of a generator, as Spark SQL expressions over entries that say which records to make."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from slackwater.app.names import quoted
from slackwater.errors import DescriptionError
from slackwater.progress.arrivals import UPPER_UNIFORM_SQL, arrival_us_sql
from slackwater.progress.distributions import DelayDistribution
from slackwater.progress.tables import AliasTable, zipf_shares
from slackwater.spark.column_types import check_readable
from slackwater.spark.failures import explain
from slackwater.spark.sources.base import ARRIVAL, MALFORMED, OFFSET, PARTITION, QUERY

ENTRY_TYPE = (
    "struct<query:int,partition:int,first:bigint,until:bigint,"
    "salt:bigint,start_us:bigint,gap_us:double,parameters:array<double>>"
)
RECORD_FIELDS = ("query", "partition", "n", "h", "u", "key", "arrival_us")
SAMPLE_STEP = 16
LOWER_HALF = 2**32 - 1
UNIT = 2.0**-32


@dataclass(frozen=True)
class RowShape:
    """Hold what is alike in all rows that one scan makes; the rest comes with each entry."""

    delay: DelayDistribution
    irregular: bool
    columns: tuple[tuple[str, str], ...]
    event_time: str
    keys: int
    skew: float
    helpers: tuple[tuple[str, str], ...] = ()
    parameters: tuple[str, ...] = ()  # their values come with each entry

    def expand(self, entries: DataFrame, step: int = 1, further: Sequence[str] = ()) -> DataFrame:
        """Make the records of all entries, or those whose offset is a multiple of `step`."""
        first = "r.first" if step == 1 else f"((r.first + {step - 1}) & ~{step - 1})"
        offsets = f"sequence({first}, r.until - 1, {step}L)"
        # Entries are never null, but JSON cannot promise it: coalesce saves a test for each event.
        numbers = entries.selectExpr(
            "coalesce(r.query, 0) AS query",
            "coalesce(r.partition, 0) AS partition",
            "coalesce(r.salt, 0L) AS salt",
            "coalesce(r.start_us, 0L) AS start_us",
            "coalesce(r.gap_us, 0D) AS gap_us",
            *(
                f"coalesce(get(r.parameters, {place}), 0D) AS {quoted(name)}"
                for place, name in enumerate(self.parameters)
            ),
            f"explode(if({first} < r.until, {offsets}, array())) AS n",
            *further,
        )
        h = "xxhash64(salt ^ n)"
        records = numbers.selectExpr(
            "query",
            "partition",
            "n",
            f"{h} AS h",
            f"{UPPER_UNIFORM_SQL.format(h=h)} AS u",
            f"{_key_sql(h, self.keys, self.skew)} AS key",
            f"{arrival_us_sql(self.irregular)} AS arrival_us",
            *map(quoted, self.parameters),
            *further,
        )
        for layer in layers(self.helpers):
            written = (f"{expression} AS {quoted(name)}" for name, expression in layer)
            records = records.selectExpr("*", *written)
        event_us = f"arrival_us - cast({self.delay.sql('u')} * 1000D AS bigint)"
        return records.selectExpr(
            *(f"{expression} AS {quoted(name)}" for name, expression in self.columns),
            f"timestamp_micros({event_us}) AS {quoted(self.event_time)}",
            f"query AS {QUERY}",
            f"partition AS {PARTITION}",
            f"n AS {OFFSET}",
            f"(arrival_us + 999) div 1000 AS {ARRIVAL}",
            f"cast(null AS string) AS {MALFORMED}",
            *further,
        )


@lru_cache(maxsize=64)
def shape_schema(spark: SparkSession, shape: RowShape) -> StructType:
    """Find out the types of a generator's columns, or say which one does not work."""
    entries = spark.range(0).selectExpr(f"cast(null AS {ENTRY_TYPE}) AS r")
    try:
        fields = shape.expand(entries).schema.fields
    except (AnalysisException, ParseException) as error:
        written = (*shape.helpers, *shape.columns)
        columns = ", ".join(f"{name}={expression!r}" for name, expression in written)
        raise DescriptionError(
            f"columns({columns}) cannot be computed: write Spark SQL over n, h and key; "
            f"Spark says: {explain(error)}"
        ) from error
    check_readable(fields[: len(shape.columns) + 1], "columns")
    return StructType(fields[: len(shape.columns) + 1])


def layers(helpers: Sequence[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    """Put together what can be computed side by side: each projection takes time to plan.

    >>> layers([("a", "n + 1"), ("b", "n + 2"), ("c", "a * b")])
    [[('a', 'n + 1'), ('b', 'n + 2')], [('c', 'a * b')]]
    """
    found: list[list[tuple[str, str]]] = []
    for name, expression in helpers:
        words = {*re.findall(r"\w+|`(?:[^`]|``)*`", expression.lower())}
        before = [earlier.lower() for earlier, _ in found[-1]] if found else []
        if not found or any(each in words or quoted(each) in words for each in before):
            found.append([])
        found[-1].append((name, expression))
    return found


def _key_sql(h: str, keys: int, skew: float) -> str:
    """Draw a key from the lower half of a hash: all alike, or by Zipf's law, key 0 most often."""
    if skew == 0:
        return f"shiftright(({h} & {LOWER_HALF}) * {keys}, 32)"
    u = f"(({h} & {LOWER_HALF}) * {UNIT}D)"
    return f"cast({AliasTable.of(zipf_shares(keys, skew)).sql(u)} AS bigint)"
