"""Watermark strategies checked on deployment, against what they are to be read from."""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import NullType, TimestampNTZType, TimestampType

from slackwater.app.watermarks import Punctuated, WatermarkStrategy
from slackwater.errors import DescriptionError
from slackwater.spark.flows import first_line
from slackwater.spark.sources.base import SourceReader


def check_watermark(spark: SparkSession, reader: SourceReader, place: str) -> None:
    """Refuse what is no watermark strategy, and announcements that are no moments."""
    strategy = reader.watermark
    if not isinstance(strategy, WatermarkStrategy):
        raise DescriptionError(
            f"{place}: watermark={strategy!r} is no strategy: give bounded('5 seconds'), "
            "from_source(), punctuated('expression') or k_slack()"
        )
    if not isinstance(strategy, Punctuated):
        return
    said = f"{place}: watermark=punctuated({strategy.expression!r})"
    rows = spark.createDataFrame([], reader.schema)
    try:
        kind = rows.selectExpr(f"({strategy.expression}) AS mark").schema[0].dataType
    except AnalysisException as error:
        raise DescriptionError(
            f"{said} is no expression over the columns ({', '.join(rows.columns)}): "
            f"{first_line(error)}"
        ) from error
    if not isinstance(kind, TimestampType | TimestampNTZType | NullType):
        raise DescriptionError(
            f"{said} gives {kind.simpleString()}, not a timestamp: cast it, or use "
            "try_to_timestamp(...)"
        )
