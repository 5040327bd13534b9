"""The columns that an output's panes have, known before there are any."""

from __future__ import annotations

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from slackwater.app.bounds import bound_names
from slackwater.app.outputs import Output
from slackwater.app.windows import KeyedWindows
from slackwater.errors import DescriptionError
from slackwater.spark.sinks.base import PANE_FIELDS
from slackwater.spark.sinks.pane_tables import with_window_keys

_OF_BOUNDS = {"sampled": pa.int64(), "population": pa.int64(), "met": pa.bool_()}


def pane_schema(output: Output, result: StructType) -> pa.Schema:
    """Put the columns that every pane has before those of a result, and bounds in their place."""
    try:
        values = to_arrow_schema(result, timezone="UTC", prefers_large_types=False)
    except PySparkException as error:
        raise DescriptionError(
            f"{output.place}: the result {result.simpleString()} has a type that cannot leave "
            f"Spark ({error}): cast that column"
        ) from error
    fields = [*PANE_FIELDS, *values]
    if output.error is not None:
        fields = [field for field in fields if field.name not in output.bounded]
        fields += [
            pa.field(name, _OF_BOUNDS.get(name, pa.float64()))
            for name in bound_names(output.bounded)
        ]
    schema = pa.schema(fields)
    keyed = isinstance(output.windows, KeyedWindows)
    return with_window_keys(schema, output.by) if keyed else schema
