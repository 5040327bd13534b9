"""Python functions of every kind, for transforms: Spark's workers import them from here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Row
from pyspark.sql.functions import udf, udtf
from pyspark.sql.pandas import functions as typed
from pyspark.sql.types import (
    ArrayType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructType,
)


def _length(text: str | None) -> int | None:
    return None if text is None else len(text)


def _words(text: str | None) -> list[str]:
    return [] if text is None else [text, text.upper()]


def _half(values: pd.Series) -> pd.Series:
    return values / 2


def _half_each(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
    for values in batches:
        yield values / 2


def _mean(values: pd.Series) -> float:
    return float(values.mean())


def _next(values: pa.Array) -> pa.Array:
    return pc.add(values, 1)


class _Parts:
    """Say a text twice."""

    def eval(self, text: str) -> Iterator[tuple[str]]:
        for part in ("one", "two"):
            yield (f"{text}-{part}",)


# The stubs of these know fewer ways to say what a function is.
arrow_udf: Any = typed.arrow_udf
pandas_udf: Any = typed.pandas_udf

py_length: Any = udf(_length, IntegerType(), useArrow=False)
arrow_length: Any = udf(_length, IntegerType(), useArrow=True)
py_words: Any = udf(_words, ArrayType(StringType()), useArrow=False)
pandas_half: Any = pandas_udf(_half, DoubleType())
pandas_half_each: Any = pandas_udf(_half_each, DoubleType())
pandas_mean: Any = pandas_udf(_mean, DoubleType())
arrow_next: Any = arrow_udf(_next, LongType())
parts: Any = udtf(_Parts, returnType=StructType().add("part", StringType()))


def positive(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for batch in batches:
        yield batch[batch["n"] > 0]


def twice(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch
        yield batch


def in_pandas(df: DataFrame) -> DataFrame:
    """Pass simple columns through mapInPandas."""
    simple = df.select(*(name for name in df.columns if name in ("ts", "k", "n", "_sw_query")))
    return simple.mapInPandas(positive, simple.schema)


def in_arrow(df: DataFrame, *names: str) -> DataFrame:
    """Pass some columns, or all, through mapInArrow."""
    chosen = df.select(*names) if names else df
    return chosen.mapInArrow(twice, chosen.schema)


def by_rdd(df: DataFrame) -> DataFrame:
    """Make a frame of the rows' RDD."""
    return df.sparkSession.createDataFrame(df.rdd, df.schema)


def by_mapped_rdd(df: DataFrame) -> DataFrame:
    """Make a frame of rows that a Python function has seen."""
    return df.sparkSession.createDataFrame(df.rdd.map(_itself), df.schema)


def by_cached_rdd(df: DataFrame) -> DataFrame:
    return df.sparkSession.createDataFrame(df.rdd.cache(), df.schema)


def _itself(row: Row) -> Row:
    return row


def first_of(group: pd.DataFrame) -> pd.DataFrame:
    return group.head(1)


def first_of_both(one: pd.DataFrame, two: pd.DataFrame) -> pd.DataFrame:
    return one.head(len(two))


def sql(df: DataFrame, text: str, **others: Any) -> DataFrame:
    """Run SQL over the frame and others, which the text names in braces."""
    return df.sparkSession.sql(text, df=df, **others)


def by_view(df: DataFrame, text: str) -> DataFrame:
    """Run SQL over a temporary view of the frame, called events."""
    df.createOrReplaceTempView("events")
    return df.sparkSession.sql(text)
