"""Any `spark.readStream` as a source: its micro-batches land as Parquet files, which are followed.

Batch N is written to `landing/_batch-N-tmp`, made durable and renamed to `landing/data/batch-N`,
which is what makes it exist: Spark repeats a batch after a crash, and one that exists is left as it
is.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from slackwater import disk
from slackwater.app.durations import Duration, to_ms
from slackwater.app.watermarks import FromSource, WatermarkStrategy, bounded
from slackwater.disk import PRIVATE, SHARED, flush_path, make_directories
from slackwater.errors import DescriptionError, MissingRequirementError, SourceError
from slackwater.spark.failures import explain
from slackwater.spark.latebound import classic_jvm
from slackwater.spark.sources.base import SourceDescription, SourceReader
from slackwater.spark.sources.files import Files, require_mounted_path
from slackwater.spark.sources.files_reader import ParquetReader
from slackwater.spark.sources.inline import checked_schema

StreamFactory = Callable[[SparkSession], DataFrame]

_ENDING_TRIGGERS = {"availableNow", "once"}
_TRIGGERS = {"processingTime", *_ENDING_TRIGGERS}


@dataclass(frozen=True)
class StreamLanding(SourceDescription):
    """Describe a streaming DataFrame and where it lands; `read_stream(...)` writes it."""

    stream: DataFrame | StreamFactory
    landing: str
    event_time: str
    watermark: WatermarkStrategy
    max_ahead_ms: int
    poll_ms: int
    idle_after_ms: int
    trigger: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if isinstance(self.stream, DataFrame):
            self._require_streaming(self.stream)
        elif not callable(self.stream):
            raise DescriptionError(
                f"stream={self.stream!r} is neither a streaming DataFrame nor a function of the "
                "session that makes one: pass spark.readStream...load()"
            )
        require_mounted_path("landing", self.landing)
        if len(self.trigger) > 1 or not _TRIGGERS.issuperset(self.trigger):
            raise DescriptionError(
                f"trigger={dict(self.trigger)!r} is not one of {', '.join(sorted(_TRIGGERS))}: "
                "write it such as {'processingTime': '1 second'}"
            )
        if isinstance(self.watermark, FromSource):
            raise DescriptionError(
                "watermark=from_source(): a readStream passes no watermarks on; use bounded(...) "
                "or punctuated(...)"
            )

    def open(self, spark: SparkSession) -> SourceReader:
        """Start the stream, and make the reader that follows what it lands."""
        if classic_jvm(spark) is None:
            raise MissingRequirementError(
                "read_stream(...) needs a classic Spark session, not Connect"
            )
        stream = self.stream if isinstance(self.stream, DataFrame) else self.stream(spark)
        self._require_streaming(stream)
        data = Path(self.landing, "data")
        # Records are nobody else's business, unless the user has made the directory for others too.
        make_directories(data, access=SHARED if data.parent.exists() else PRIVATE)
        landed = Files(
            path=str(data),
            format="parquet",
            schema=checked_schema(stream.schema, self.event_time),
            event_time=self.event_time,
            watermark=self.watermark,
            max_ahead_ms=self.max_ahead_ms,
            poll_ms=self.poll_ms,
            idle_after_ms=self.idle_after_ms,
            pattern="*.parquet",
        )
        return LandingReader(landed, stream, Path(self.landing), self.trigger)

    @staticmethod
    def _require_streaming(stream: DataFrame) -> None:
        if not stream.isStreaming:
            raise DescriptionError(
                "stream is a batch DataFrame: make it with spark.readStream, or read it with "
                "files(..., follow=False)"
            )


def read_stream(
    stream: DataFrame | StreamFactory,
    *,
    landing: str | os.PathLike[str],
    event_time: str,
    watermark: WatermarkStrategy | None = None,
    trigger: Mapping[str, Any] | None = None,
    max_ahead: Duration = "1 minute",
    poll: Duration = "200 ms",
    idle_after: Duration = "5 seconds",
) -> StreamLanding:
    """Read any streaming DataFrame exactly once, by way of Parquet files in `landing`.

    `stream` is the DataFrame, or a function that makes it from the session. `landing` must be a
    path that all executors share, one for each deployment: it also holds the stream's checkpoint.
    A record arrives when its batch has landed. `trigger` is as for `DataStreamWriter.trigger`; with
    `{"availableNow": True}` the source is finished once all that was there has been read, and goes
    on from there when it is opened again. `watermark` is `bounded("1 second")` unless given.
    """
    directory = os.fspath(landing)
    return StreamLanding(
        stream=stream,
        landing=os.path.abspath(directory) if "://" not in directory else directory,
        event_time=event_time,
        watermark=watermark or bounded("1 second"),
        max_ahead_ms=to_ms(max_ahead, "max_ahead", allow_zero=True),
        poll_ms=to_ms(poll, "poll", allow_zero=True),
        idle_after_ms=to_ms(idle_after, "idle_after", allow_zero=True),
        trigger=dict(trigger or {}),
    )


class LandingReader(ParquetReader):
    """Run a stream, and read the batches that it has landed."""

    def __init__(
        self, landed: Files, stream: DataFrame, landing: Path, trigger: Mapping[str, Any]
    ) -> None:
        """Start the stream where its checkpoint left off."""
        super().__init__(landed, checked_schema(landed.schema, landed.event_time))
        self._landing = landing
        self._ends = not _ENDING_TRIGGERS.isdisjoint(trigger)
        self._ended = False
        self._closed = False
        self._failure: Exception | None = None
        self._batch_in_hand = threading.Lock()
        self._directory.before_look = self._check_stream
        self._stream = stream
        self._trigger = trigger
        self._query = self._started()

    def resume(self) -> None:
        """Start the stream again if it failed or was stopped; it goes on from its checkpoint."""
        if self._closed or self._ended or self._query.isActive:
            return
        if self._ends and self._query.exception() is None:
            return  # it has come to its end, which nobody has noticed yet
        self._failure = None
        self._query = self._started()

    def _started(self) -> StreamingQuery:
        writer = self._stream.writeStream.foreachBatch(self._land)
        if self._trigger:
            writer = writer.trigger(**self._trigger)
        checkpoint = f"file://{self._landing}/_checkpoint"
        try:
            return writer.option("checkpointLocation", checkpoint).start()
        except PySparkException as error:
            raise SourceError(
                f"the stream that lands in {self._landing} does not start: {explain(error)}; mend "
                "it (each deployment needs a landing of its own), then resume"
            ) from error

    def finished(self, positions: Mapping[int, int], now_ms: float) -> bool:
        """Tell whether the stream has ended and all that it landed has been read."""
        self._directory.look(now_ms)
        all_found = self._ended and self._directory.caught_up
        return all_found and positions.get(0, 0) >= self._directory.until

    def close(self) -> None:
        """Stop the stream; a batch in hand is finished or given up, never half landed."""
        self._closed = True
        self._query.stop()
        with self._batch_in_hand:
            pass

    def _check_stream(self) -> None:
        """Notice an end or a failure, always ahead of a listing."""
        if self._closed or self._ended or self._query.isActive:
            return
        error = self._query.exception()
        if error is not None:
            cause = self._failure or error
            raise SourceError(
                f"the stream that lands in {self._landing} failed: {explain(cause)}; mend it, "
                "then resume the query"
            )
        if not self._ends:
            raise SourceError(
                f"the stream that lands in {self._landing} was stopped from outside; resume the "
                "query to start it again"
            )
        self._ended = True

    def _land(self, batch: DataFrame, number: int) -> None:
        with self._batch_in_hand:
            try:
                land_batch(self._landing, batch, number)
            except Exception as error:
                self._failure = error  # Spark's own report hides it in a trace of both languages
                raise


def land_batch(landing: Path, batch: DataFrame, number: int) -> None:
    """Make a batch exist, whole and durable, unless it does already."""
    final = landing / "data" / f"batch-{number:010d}"
    if final.exists():
        return
    written = landing / f"_batch-{number}-tmp"
    batch.write.mode("overwrite").parquet(f"file://{written}")
    for path in (*written.iterdir(), written):
        flush_path(path)
    disk.current.replace(written, final)
    flush_path(final.parent)
