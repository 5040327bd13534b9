"""Bring generated events to Structured Streaming as cheaply as can be.

An in-memory stream in the driver's JVM takes a *tick*, one row that says which records have arrived
since the last. The query itself turns ticks into records, by the expressions that Slackwater's own
steps use: the same events, with neither files nor brokers between.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from pyspark.sql import DataFrame, SparkSession

from slackwater.spark.sources.generator import Generator
from slackwater.spark.sources.generator_reader import GeneratorReader

LEAST_PERIOD_S = 0.05
MOST_TICKS_PER_S = 100.0  # over all queries: feeding must not take the time of what is fed


class TickStream:
    """Feed one query's events. Its offsets count ticks; `untils` says what each brought."""

    def __init__(self, spark: SparkSession, source: Generator, query: int) -> None:
        """Make the stream; nothing arrives before `begin`."""
        jvm: Any = spark._jvm
        streaming = jvm.org.apache.spark.sql.execution.streaming.runtime
        self._memory = streaming.MemoryStream.apply(
            spark._jsparkSession, 1, jvm.org.apache.spark.sql.Encoders.STRING()
        )
        self._option = jvm.scala.Option
        self._spark = spark
        self._source = source
        self._query = query
        self._reader = source.open(spark)
        self.untils: list[int] = []

    @property
    def lag_ms(self) -> int:
        """Return how far the source's watermarks trail."""
        return self._source.watermark_lag_ms

    def frame(self) -> DataFrame:
        """Return the streaming DataFrame of the records."""
        ticks = DataFrame(self._memory.toDF(), self._spark)
        entries = ticks.selectExpr(f"from_json(value, 'r {self._reader.entry_type}').r AS r")
        return self._reader.expand(entries)

    def begin(self, start_ms: int) -> GeneratorReader:
        """Let the records arrive from this moment on; return the reader that knows about them."""
        self._source = replace(self._source, start_ms=start_ms)
        self._reader = self._source.open(self._spark)
        return self._reader

    def feed(self, now_ms: float) -> None:
        """Add a tick with all that has arrived by now; none if there is nothing."""
        first = self.untils[-1] if self.untils else 0
        piece = self._reader.plan({0: first}, now_ms, 2**62)[0]
        if piece.events:
            tick = json.dumps({"r": self._reader.entry(self._query, piece)})
            self._memory.addData(self._option.apply(tick))
            self.untils.append(piece.until)

    def records_until(self, offset: str | None) -> int:
        """Count the records up to a tick's offset, as progress reports write it."""
        tick = None if offset is None else json.loads(offset)
        return 0 if tick is None else self.untils[tick]


class Feeder:
    """Feed all streams from one thread, in turn, as long as it is entered."""

    def __init__(self, streams: Sequence[TickStream]) -> None:
        """Take the streams, which have begun."""
        self._streams = streams
        self._period_s = max(LEAST_PERIOD_S, len(streams) / MOST_TICKS_PER_S)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bench-feeder", daemon=True)
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        """Begin to feed."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop feeding."""
        self._stop.set()
        self._thread.join()

    def check(self) -> None:
        """Raise what went wrong in the feeding thread, if anything did."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                began = time.monotonic()
                for stream in self._streams:
                    stream.feed(time.time() * 1_000)
                self._stop.wait(max(0.0, began + self._period_s - time.monotonic()))
        except Exception as error:
            self._error = error
