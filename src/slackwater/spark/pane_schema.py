"""The columns that an output's panes have, known before there are any."""

from __future__ import annotations

import pyarrow as pa

from slackwater.app.bounds import bound_names
from slackwater.app.outputs import Output
from slackwater.app.windows import KeyedWindows
from slackwater.spark.sinks.base import PANE_FIELDS
from slackwater.spark.sinks.pane_tables import with_window_keys

_OF_BOUNDS = {"sampled": pa.int64(), "population": pa.int64(), "met": pa.bool_()}


def pane_schema(output: Output, result: pa.Schema) -> pa.Schema:
    """Put the columns that every pane has before those of a result, and bounds in their place."""
    fields = [*PANE_FIELDS, *result]
    if output.error is not None:
        fields = [field for field in fields if field.name not in output.bounded]
        fields += [
            pa.field(name, _OF_BOUNDS.get(name, pa.float64()))
            for name in bound_names(output.bounded)
        ]
    schema = pa.schema(fields)
    keyed = isinstance(output.windows, KeyedWindows)
    return with_window_keys(schema, output.by) if keyed else schema
