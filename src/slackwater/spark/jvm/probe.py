"""Try, on the very session, whether a planned frame can be run again with other input.

Preparing plans rests on things that Spark does and does not promise: that the row of a parallelised
collection is serialised anew for each job, that asynchronous jobs return what others do, and that
tasks compute the same without the plans they carry. If a release did otherwise, steps would return
the results of earlier ones without a word. So a small plan is bound, run and compared, several
times, before any step relies on it.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Sequence
from typing import Final

from pyspark.sql import SparkSession

from slackwater.spark.batches import PlannedBatches
from slackwater.spark.latebound import LARGE_CHARACTERS, SpecificationCells

logger = logging.getLogger("slackwater")

Entry = tuple[int, int]

_MANY: Final = LARGE_CHARACTERS // 8  # entries that are bound through a file
# What the plan is bound to, one after the other: other, more, nothing, very much, little again.
ROUNDS: Final[Sequence[Sequence[Entry]]] = (
    [(1, 10), (1, 5), (2, 7)],
    [(1, 3), (3, 4), (3, 4), (4, 1)],
    [],
    [(value % 5, value) for value in range(_MANY)],
    [(2, 1)],
)

_found: dict[str, str | None] = {}  # by Spark application: why plans must be rebuilt, if they must
_lock = threading.Lock()


def why_not_prepared(spark: SparkSession) -> str | None:
    """Say why plans cannot be run again on this session; None: they can. Tried once, then known."""
    application = spark.sparkContext.applicationId
    with _lock:
        if application not in _found:
            _found[application] = reason = _tried(spark)
            if reason is not None:
                logger.warning(
                    "plans cannot be prepared on Spark %s, so every step is planned anew, which "
                    "takes several times as long: %s",
                    spark.version,
                    reason,
                )
        return _found[application]


def _tried(spark: SparkSession) -> str | None:
    try:
        cells = SpecificationCells(spark, ["array<struct<k: int, v: bigint>>"])
        # An aggregation, so that tasks are made lighter here as well.
        sums = cells.frame.selectExpr("inline(s0)").groupBy("k").sum("v").coalesce(1)
        batches = PlannedBatches(sums)
        for number, entries in enumerate(ROUNDS):
            cells.bind([json.dumps([{"k": k, "v": v} for k, v in entries])])
            rows = batches.fetch().to_pylist()
            found = {row["k"]: row["sum(v)"] for row in rows}
            if len(rows) != len(found) or found != _summed(entries):
                return f"a planned frame gave the results of other input when run anew ({number})"
    except Exception as error:  # whatever Spark's insides have become: steps can be rebuilt
        return f"a planned frame could not be run again: {type(error).__name__}: {error}"
    return None


def _summed(entries: Sequence[Entry]) -> dict[int, int]:
    sums: dict[int, int] = {}
    for key, value in entries:
        sums[key] = sums.get(key, 0) + value
    return sums
