"""Blocks that Spark holds in its executors' memory, ahead of a function that reads them.

A persisted frame over files that never change can be evicted, or lost with an executor, at any
time: Spark then reads the files again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

logger = logging.getLogger("slackwater")


def checked_parquet(
    spark: SparkSession, files: Sequence[str], columns: StructType | None = None
) -> DataFrame:
    """Read Parquet files; a page whose bytes are not those that were written is an error.

    `columns` say what files alone do not: which text is collated, which numbers are intervals,
    which structs are variants.
    """
    reader = spark.read.option("parquet.page.verify-checksum.enabled", "true")
    return (reader if columns is None else reader.schema(columns)).parquet(*files)


@dataclass(frozen=True, eq=False)
class StagedFrame:
    """Hold a persisted frame over some files, and how much memory their rows take."""

    files: frozenset[str]
    frame: DataFrame
    bytes: int


class StagedFrames:
    """Persist files, and find what is persisted. Safe for many threads."""

    def __init__(self, spark: SparkSession) -> None:
        """Start empty."""
        self._spark = spark
        self._lock = threading.Lock()
        self._by_file: dict[str, StagedFrame] = {}

    def stage(self, files: Sequence[str], size: int, columns: StructType) -> None:
        """Read files, as `columns`, into executors' memory; return once they are there.

        What held some of them before is given up: no row may be in two frames.
        """
        self.drop(files)
        frame = checked_parquet(self._spark, files, columns).persist(StorageLevel.MEMORY_ONLY)
        frame.count()
        staged = StagedFrame(frozenset(files), frame, size)
        with self._lock:
            self._by_file.update(dict.fromkeys(files, staged))

    def drop(self, files: Collection[str]) -> None:
        """Give up whatever holds one of these files; the files stay."""
        with self._lock:
            found = {id(s): s for name in files if (s := self._by_file.get(name)) is not None}
            for staged in found.values():
                for name in staged.files:
                    self._by_file.pop(name, None)
        for staged in found.values():
            try:
                staged.frame.unpersist()
            except Exception as error:  # a cache that stays is nobody's failure
                logger.debug("a staged frame was not given up: %s", error)

    def bytes_of(self, files: Collection[str]) -> int:
        """Count the bytes of what is persisted of these files."""
        return sum(staged.bytes for staged in self.within(files))

    def within(self, files: Collection[str]) -> list[StagedFrame]:
        """Find what is persisted of these files, and of no others."""
        if not self._by_file:
            return []
        wanted = set(files)
        found = {id(s): s for name in wanted if (s := self._by_file.get(name)) is not None}
        return [staged for staged in found.values() if staged.files <= wanted]
