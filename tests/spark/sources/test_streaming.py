from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from slackwater.app.watermarks import from_source
from slackwater.errors import DescriptionError, SourceError
from slackwater.spark.sources.base import ARRIVAL, QUERY, SYSTEM_COLUMNS, Range
from slackwater.spark.sources.streaming import LandingReader, StreamLanding, read_stream

AVAILABLE_NOW = {"availableNow": True}


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "in").mkdir()
    return tmp_path / "in", tmp_path / "landing"


def put(path: Path, values: Sequence[int]) -> None:
    hidden = path.with_name("." + path.name)
    hidden.write_text("".join(f'{{"ts":"2024-05-01T10:00:00Z","v":{v}}}\n' for v in values))
    hidden.rename(path)


def stream(spark: SparkSession, path: Path) -> DataFrame:
    reader = spark.readStream.schema("ts timestamp, v bigint").option("maxFilesPerTrigger", 1)
    return reader.json(str(path))


def describe(path: Path, landing: Path, **changes: Any) -> StreamLanding:
    return read_stream(
        lambda spark: stream(spark, path), landing=landing, event_time="ts", **changes
    )


@contextmanager
def running(spark: SparkSession, landing: StreamLanding) -> Iterator[tuple[Any, StreamingQuery]]:
    before = {query.id for query in spark.streams.active}
    reader = cast(LandingReader, landing.open(spark))
    try:
        started = [query for query in spark.streams.active if query.id not in before]
        yield reader, started[0] if started else reader._query
    finally:
        reader.close()


def values(spark: SparkSession, reader: LandingReader, pieces: Sequence[Range]) -> list[int]:
    rows = reader.scan(spark, [(0, piece) for piece in pieces]).select("v").collect()
    return sorted(row.v for row in rows)


def drain(reader: LandingReader, position: int, now_ms: float) -> list[Range]:
    pieces: list[Range] = []
    while (piece := reader.plan({0: position}, now_ms, 1)[0]).events:
        pieces.append(piece)
        position = piece.until
    return pieces


@pytest.mark.spark
def test_a_stream_stopped_and_started_again_gives_every_record_once(
    spark: SparkSession, places: tuple[Path, Path]
) -> None:
    source, _ = places
    put(source / "a.json", [1, 2])
    put(source / "b.json", [3])
    with running(spark, describe(*places)) as (reader, query):
        query.processAllAvailable()
        (first,) = reader.plan({0: 0}, 0, 1)
        read = values(spark, reader, [first])
        state = reader.state()
        rest_of_first_life = drain(reader, first.until, 0)
        columns = reader.scan(spark, [(4, first)]).columns
    assert columns == ["ts", "v", *SYSTEM_COLUMNS]
    assert not spark.streams.active

    put(source / "c.json", [4, 5])
    with running(spark, describe(*places)) as (reader, query):
        reader.restore({0: first.until}, state, rest_of_first_life)
        query.processAllAvailable()
        put(source / "d.json", [6])
        query.processAllAvailable()
        pieces = drain(reader, first.until, 10_000)
        read += values(spark, reader, pieces)
        assert reader.available_one(10_000) == 6
    assert sorted(read) == [1, 2, 3, 4, 5, 6]


@pytest.mark.spark
def test_a_batch_that_spark_repeats_lands_once(
    spark: SparkSession, places: tuple[Path, Path]
) -> None:
    source, landing = places
    put(source / "a.json", [1])
    put(source / "b.json", [2])
    description = describe(*places, trigger=AVAILABLE_NOW)
    with running(spark, description) as (_, query):
        query.awaitTermination()
    batches = sorted(path.name for path in (landing / "data").iterdir())
    assert batches == ["batch-0000000000", "batch-0000000001"]
    files = sorted((landing / "data").rglob("*.parquet"))

    # As after a crash between landing a batch and Spark's noting it, and a crash while writing.
    for uncommitted in (1, 0):
        for name in (f"{uncommitted}", f".{uncommitted}.crc"):
            (landing / "_checkpoint" / "commits" / name).unlink()
    with running(spark, description) as (reader, query):
        query.awaitTermination()
        assert values(spark, reader, drain(reader, 0, 0)) == [1, 2]
    assert sorted((landing / "data").rglob("*.parquet")) == files

    shutil.move(landing / "data" / "batch-0000000001", landing / "_batch-1-tmp")
    for name in ("1", ".1.crc"):
        (landing / "_checkpoint" / "commits" / name).unlink()
    with running(spark, description) as (reader, query):
        query.awaitTermination()
        assert values(spark, reader, drain(reader, 0, 0)) == [1, 2]
    assert not list(landing.glob("_batch*"))


@pytest.mark.spark
def test_a_stream_that_ends_is_finished_once_read_and_goes_on_when_opened_again(
    spark: SparkSession, places: tuple[Path, Path]
) -> None:
    source, _ = places
    put(source / "a.json", [1])
    description = describe(*places, trigger=AVAILABLE_NOW)
    with running(spark, description) as (reader, query):
        query.awaitTermination()
        (piece,) = reader.plan({0: 0}, 0, 100)
        assert not reader.finished({0: 0}, 0)
        assert reader.finished({0: piece.until}, 0)
        assert piece.watermark_ms is None
        state = reader.state()
    put(source / "b.json", [2])
    with running(spark, description) as (reader, query):
        query.awaitTermination()
        reader.restore({0: piece.until}, state, [])
        assert values(spark, reader, drain(reader, piece.until, 0)) == [2]


@pytest.mark.spark
def test_records_arrive_when_their_batch_lands(
    spark: SparkSession, places: tuple[Path, Path]
) -> None:
    source, landing = places
    put(source / "a.json", [1])
    with running(spark, describe(*places)) as (reader, query):
        query.processAllAvailable()
        (piece,) = reader.plan({0: 0}, 0, 100)
        (row,) = reader.scan(spark, [(4, piece)]).collect()
    (file,) = (landing / "data").rglob("*.parquet")
    assert (row[QUERY], row[ARRIVAL]) == (4, file.stat().st_mtime_ns // 1_000_000)


@pytest.mark.spark
def test_a_failing_stream_is_reported_with_its_message(
    spark: SparkSession, places: tuple[Path, Path]
) -> None:
    source, landing = places
    put(source / "a.json", [1])
    failing = stream(spark, source).where("raise_error('the meter is broken') IS NULL")
    with running(spark, read_stream(failing, landing=landing, event_time="ts")) as (reader, query):
        with pytest.raises(StreamingQueryException):
            query.processAllAvailable()
        with pytest.raises(SourceError, match="the meter is broken"):
            reader.available_one(0)
        with pytest.raises(SourceError, match="the meter is broken"):
            reader.plan({0: 0}, 0, 100)


@pytest.mark.spark
def test_a_stream_stopped_from_outside_is_reported(
    spark: SparkSession, places: tuple[Path, Path]
) -> None:
    with running(spark, describe(*places)) as (reader, query):
        query.stop()
        with pytest.raises(SourceError, match="stopped from outside"):
            reader.plan({0: 0}, 0, 100)


@pytest.mark.spark
def test_a_stream_that_stopped_goes_on_when_it_is_resumed(
    spark: SparkSession, places: tuple[Path, Path]
) -> None:
    source, _ = places
    put(source / "a.json", [1])
    with running(spark, describe(*places)) as (reader, query):
        query.processAllAvailable()
        query.stop()
        put(source / "b.json", [2])
        reader.resume()
        reader._query.processAllAvailable()
        assert values(spark, reader, drain(reader, 0, 0)) == [1, 2]
        going = reader._query
        reader.resume()
        assert reader._query is going


@pytest.mark.spark
def test_descriptions_that_cannot_work_are_refused(
    spark: SparkSession, places: tuple[Path, Path]
) -> None:
    source, landing = places
    with pytest.raises(DescriptionError, match="batch DataFrame"):
        read_stream(spark.range(1), landing=landing, event_time="id")
    with pytest.raises(DescriptionError, match="declare it as timestamp"):
        read_stream(stream(spark, source), landing=landing, event_time="v").open(spark)
    with pytest.raises(DescriptionError, match="trigger="):
        describe(*places, trigger={"continuous": "1 second"})
    with pytest.raises(DescriptionError, match="no watermarks"):
        describe(*places, watermark=from_source())
    with pytest.raises(DescriptionError, match="mount it"):
        read_stream(stream(spark, source), landing="hdfs://x/y", event_time="ts")
    with pytest.raises(DescriptionError, match="neither a streaming DataFrame"):
        read_stream(cast(Any, "kafka"), landing=landing, event_time="ts")
    assert not spark.streams.active
