"""What one read of Kafka costs a step, by way and size: `python lab/experiments/kafka_reads.py`.

Every way reads the same records of two partitions of one topic (JSON, about 200 bytes), parses them
by the same rules and counts them by a key. `inline` runs a plan prepared before, with the records
sent along: those held in the driver, or fetched by it. `scan` plans anew each time, and reads with
a client that Python workers keep. `connector` is Spark's own, `spark-sql-kafka-0-10`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from slackwater.errors import MissingRequirementError
from slackwater.spark.kafka.hub import KafkaHub
from slackwater.spark.latebound import SpecificationCells
from slackwater.spark.session import session
from slackwater.spark.sources.base import ARRIVAL, OFFSET, PARTITION, QUERY, Range
from slackwater.spark.sources.inline import LINE, JsonRecords, checked_schema
from slackwater.spark.sources.kafka import kafka
from slackwater.spark.sources.kafka_reader import KafkaReader
from slackwater.testing.kafka_broker import KafkaBroker
from slackwater_lab.bench.connector import connector_jars
from slackwater_lab.bench.provenance import provenance

TOPIC: Final = "reads"
SIZES: Final = (2, 1_000, 5_000, 20_000, 100_000, 400_000)
RUNS: Final = 7
MOST_INLINE: Final = 100_000
PARTITIONS: Final = 2
SCHEMA: Final = "ts timestamp, user_id string, page_id string, ad_id string, kind string, n bigint"


@dataclass(frozen=True)
class Ways:
    """Know all ways to read, over one reader of the topic."""

    spark: SparkSession
    servers: str
    reader: KafkaReader
    records: JsonRecords

    def prepared(self) -> Callable[[list[Range]], int]:
        """Plan once; run with the records sent along."""
        cells = SpecificationCells(self.spark, [f"array<{self.reader.entry_type}>"])
        counts = _counted(self.reader.expand(cells.frame.selectExpr("explode(s0) AS r")))

        def run(pieces: list[Range]) -> int:
            entries = [self.reader.entry(0, piece) for piece in pieces]
            cells.bind([json.dumps(entries, separators=(",", ":"))])
            return _total(counts)

        return run

    def scan(self, pieces: list[Range]) -> int:
        """Let executors read, by a plan of its own."""
        return _total(_counted(self.reader.scan(self.spark, [(0, piece) for piece in pieces])))

    def connector(self, pieces: list[Range]) -> int:
        """Read with Spark's own connector."""
        firsts = {str(piece.partition): piece.first for piece in pieces}
        untils = {str(piece.partition): piece.until for piece in pieces}
        frame = (
            self.spark.read.format("kafka")
            .option("kafka.bootstrap.servers", self.servers)
            .option("subscribe", TOPIC)
            .option("startingOffsets", json.dumps({TOPIC: firsts}))
            .option("endingOffsets", json.dumps({TOPIC: untils}))
            .load()
            .selectExpr(
                *(f"0 AS {QUERY}", f"partition AS {PARTITION}", f"offset AS {OFFSET}"),
                *(f"unix_millis(timestamp) AS {ARRIVAL}", f"CAST(value AS STRING) AS {LINE}"),
            )
        )
        return _total(_counted(self.records.parse(frame)))


def main() -> None:
    """Measure, and print the table (and JSON, where a file is named)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="also write the results, with their provenance, to a file")
    options = parser.parse_args()
    packages = _fetched()
    spark = session("local[2]", spark_jars=packages, spark_driver_memory="2g")
    with KafkaBroker() as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        _fill(broker.servers, max(SIZES))
        with _reader(spark, broker.servers) as reader:
            ways = Ways(spark, broker.servers, reader, JsonRecords(checked_schema(SCHEMA, "ts")))
            prepared = ways.prepared()
            results = []
            runs = {"inline": prepared, "scan": ways.scan, "connector": ways.connector}
            if not packages:
                del runs["connector"]
            for size in SIZES:
                for name, run in runs.items():
                    if name != "inline" or size <= MOST_INLINE:
                        results.append(_measured(name, size, run))
                        print(results[-1], file=sys.stderr, flush=True)
    _print(results)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"results": results, "provenance": provenance()}, file, indent=2)
    spark.stop()


def _fetched() -> str:
    try:
        return connector_jars()
    except MissingRequirementError as error:
        print(f"without Spark's connector: {error}", file=sys.stderr)
        return ""


@contextmanager
def _reader(spark: SparkSession, servers: str) -> Iterator[KafkaReader]:
    reader = kafka(servers, TOPIC, schema=SCHEMA, event_time="ts").open(spark)
    try:
        reader.restore({}, None, [])
        reader.plan({}, 0.0, 1)
        hub: KafkaHub = reader._hub
        each = MOST_INLINE // PARTITIONS
        if not hub.wait_for(
            lambda: all(hub.held((TOPIC, p), 0, each) for p in range(PARTITIONS)), 60.0
        ):
            raise RuntimeError("the records did not come in")
        yield reader
    finally:
        reader.close()


def _measured(name: str, size: int, run: Callable[[list[Range]], int]) -> dict[str, Any]:
    each = size // PARTITIONS
    detail = {"topic": TOPIC, "now": int(time.time() * 1_000)}
    pieces = [Range(p, 0, each, each, detail=detail | {"partition": p}) for p in range(PARTITIONS)]
    taken = []
    for _ in range(RUNS + 3):
        began = time.perf_counter()
        found = run(pieces)
        taken.append((time.perf_counter() - began) * 1_000)
        if found != each * PARTITIONS:
            raise RuntimeError(f"{name} read {found} records, not {size}")
    ms = statistics.median(taken[3:])
    return {"way": name, "events": size, "ms": round(ms, 1), "events_per_s": round(size / ms * 1e3)}


def _counted(rows: DataFrame) -> DataFrame:
    return rows.groupBy("kind").count()


def _total(counts: DataFrame) -> int:
    return sum(counts.toArrow()["count"].to_pylist())


def _fill(servers: str, count: int) -> None:
    producer = Producer(
        {"bootstrap.servers": servers, "linger.ms": 20, "queue.buffering.max.messages": 2_000_000}
    )
    for number in range(count):
        record = {
            "ts": f"2026-01-01T00:{number // 6_000 % 60:02d}:{number // 100 % 60:02d}.000Z",
            "user_id": f"{number * 7_919 % 1_000_003:036d}",
            "page_id": f"{number % 997:036d}",
            "ad_id": f"{number % 1_009:012d}",
            "kind": ("view", "click", "buy")[number % 3],
            "n": number,
        }
        producer.produce(TOPIC, json.dumps(record), partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.poll(0)
    producer.flush(120)


def _print(results: list[dict[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("events", "way", "ms", "events/s"):
        table.add_column(column, justify="left" if column == "way" else "right")
    for each in results:
        table.add_row(
            f"{each['events']:,}", each["way"], f"{each['ms']:,.1f}", f"{each['events_per_s']:,}"
        )
    Console(width=100, highlight=False).print(table)


if __name__ == "__main__":
    main()
