"""Spark scans over named files: one scan serves the files of many queries.

A literal map from a file's address to the queries that want it tells which record is whose. A union
of one scan per query is dearer from a few queries on, for each scan is built and planned; a
broadcast join does as well with few files and is dearer with many.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from slackwater.app.names import quoted, sql_text
from slackwater.spark.sources.base import ARRIVAL, MALFORMED, OFFSET, PARTITION, QUERY
from slackwater.spark.sources.inline import LINE, JsonRecords

# Smaller JSON files are read whole, which numbers their lines; larger ones are read in parts.
LARGE_FILE_BYTES = 16_777_216

_BASE = "_sw_base"
_OWNER = f"struct<{QUERY}: int, {PARTITION}: int, {_BASE}: bigint, {ARRIVAL}: bigint>"
_UNQUOTED = "/_-!.~'()*:@&=+$,;"  # what java.net.URI leaves as it is in a path
_ASCII_RUN = re.compile(r"[\x00-\x7f]+")
_GLOB_SIGN = re.compile(r"([\\*?\[\]{}])")


class WantedFile(NamedTuple):
    """Name a file that a query reads, by its full path."""

    query: int
    partition: int
    offset: int
    path: str
    size: int
    arrival_ms: int


def scan_parquet(
    spark: SparkSession, schema: StructType, wanted: Sequence[WantedFile]
) -> DataFrame:
    """Read Parquet files as `schema`, then SYSTEM_COLUMNS."""
    if not wanted:
        return _nothing(spark, schema)
    columns = [quoted(field.name) for field in schema.fields]
    return (
        spark.read.schema(schema)
        .option("recursiveFileLookup", "true")
        .parquet(*_spark_paths(wanted))
        .selectExpr(*columns, "_metadata.row_index AS _sw_row", _owners_sql(wanted))
        .selectExpr(
            *columns,
            QUERY,
            PARTITION,
            f"{_BASE} + _sw_row AS {OFFSET}",
            ARRIVAL,
            f"CAST(NULL AS STRING) AS {MALFORMED}",
        )
    )


def scan_json(spark: SparkSession, records: JsonRecords, wanted: Sequence[WantedFile]) -> DataFrame:
    """Read files of JSON lines as their schema, then SYSTEM_COLUMNS."""
    small = [file for file in wanted if file.size <= LARGE_FILE_BYTES]
    large = [file for file in wanted if file.size > LARGE_FILE_BYTES]
    if small and large:
        return records.parse(_whole_files(spark, small).union(_parted_files(spark, large)))
    if small:
        return records.parse(_whole_files(spark, small))
    if large:
        return records.parse(_parted_files(spark, large))
    return _nothing(spark, records.schema)


def _whole_files(spark: SparkSession, wanted: Sequence[WantedFile]) -> DataFrame:
    return (
        spark.read.option("recursiveFileLookup", "true")
        .text(_spark_paths(wanted), wholetext=True)
        .selectExpr("make_valid_utf8(value) AS _sw_text", _owners_sql(wanted))
        .selectExpr(
            QUERY,
            PARTITION,
            _BASE,
            ARRIVAL,
            f"posexplode(split(_sw_text, '\\r\\n|\\r|\\n')) AS (_sw_row, {LINE})",
        )
        .selectExpr(QUERY, PARTITION, f"{_BASE} + _sw_row AS {OFFSET}", ARRIVAL, LINE)
    )


def _parted_files(spark: SparkSession, wanted: Sequence[WantedFile]) -> DataFrame:
    return (
        spark.read.option("recursiveFileLookup", "true")
        .text(_spark_paths(wanted))
        .selectExpr(f"make_valid_utf8(value) AS {LINE}", _owners_sql(wanted))
        .selectExpr(
            QUERY,
            PARTITION,
            f"{_BASE} + pmod(xxhash64({LINE}), 4294967296L) AS {OFFSET}",
            ARRIVAL,
            LINE,
        )
    )


def _nothing(spark: SparkSession, schema: StructType) -> DataFrame:
    system = StructType(list(schema.fields)).add(QUERY, "integer").add(PARTITION, "integer")
    return spark.createDataFrame(
        [], system.add(OFFSET, "long").add(ARRIVAL, "long").add(MALFORMED, "string")
    )


def _spark_paths(wanted: Sequence[WantedFile]) -> list[str]:
    """Address each file once, with the signs that Spark would expand escaped."""
    paths = dict.fromkeys(file.path for file in wanted)
    return ["file://" + _GLOB_SIGN.sub(r"\\\1", path) for path in paths]


def _owners_sql(wanted: Sequence[WantedFile]) -> str:
    """Write a generator of the columns QUERY, PARTITION, _BASE and ARRIVAL of each record."""
    owners: dict[str, list[dict[str, int]]] = {}
    for file in wanted:
        owners.setdefault(_uri(file.path), []).append(
            {
                QUERY: file.query,
                PARTITION: file.partition,
                _BASE: file.offset << 32,
                ARRIVAL: file.arrival_ms,
            }
        )
    known = f"from_json({sql_text(json.dumps(owners))}, 'map<string, array<{_OWNER}>>')"
    # A record that nobody claims would otherwise be dropped without a word.
    unknown = "raise_error(concat('no query asked for ', _metadata.file_path))"
    return f"inline(coalesce({known}[_metadata.file_path], {unknown}))"


def _uri(path: str) -> str:
    """Write a path as Spark's `_metadata.file_path` does: only ASCII characters are quoted."""
    return "file:" + _ASCII_RUN.sub(lambda run: quote(run.group(), safe=_UNQUOTED), path)
