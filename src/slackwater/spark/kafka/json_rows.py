"""Rows of an Arrow table as JSON texts, column by column."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_ESCAPED: Final = r'["\\\x00-\x1f]'
_NOT_NUMBERS: Final = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}


def json_objects(table: pa.Table) -> pa.Array:
    """Write each row as a JSON object, with the fields in the order of the columns.

    Moments are ISO 8601 (with a Z where they are in UTC), decimals texts, bytes Base64. What is no
    number (NaN, Infinity) is a text, as Spark writes it.

    >>> json_objects(pa.table({"name": ["a"], "n": [1], "x": [None]})).to_pylist()
    ['{"name":"a","n":1,"x":null}']
    """
    if not table.num_columns or not table.num_rows:
        return pa.array(["{}"] * table.num_rows, pa.string())
    parts: list[Any] = []
    for place, name in enumerate(table.column_names):
        label = json.dumps(name, ensure_ascii=False)
        parts += [("{" if place == 0 else ",") + label + ":", json_values(table[name])]
    joined = pc.binary_join_element_wise(*parts, "}", "")
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined


def json_values(column: pa.ChunkedArray | pa.Array) -> pa.Array | pa.ChunkedArray:
    """Write each value as JSON."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return json_values(column.cast(kind.value_type))
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        text = column.cast(pa.string())
    elif pa.types.is_floating(kind):
        text = _number_texts(column)
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        text = _quoted(column.cast(pa.string()))
    elif pa.types.is_timestamp(kind):
        zone = "Z" if kind.tz else ""
        text = _moment_texts(column.cast(pa.timestamp("us")), zone)
    else:
        text = _mapped(column, lambda value: json.dumps(_plain(value), ensure_ascii=False))
    return pc.fill_null(text, "null")


def _moment_texts(moments: Any, zone: str) -> Any:
    """Write moments in microseconds; few seconds stand for many moments, and are written once."""
    seconds = pc.floor_temporal(moments, unit="second")
    micros = pc.subtract(moments.cast(pa.int64()), seconds.cast(pa.int64()))
    padded = pc.utf8_slice_codeunits(pc.add(micros, 1_000_000).cast(pa.string()), 1)
    known = pc.unique(seconds)
    texts = pc.strftime(known.cast(pa.timestamp("s")), format='"%Y-%m-%dT%H:%M:%S.')
    return pc.binary_join_element_wise(
        texts.take(pc.index_in(seconds, known)), padded, f'{zone}"', ""
    )


def _number_texts(column: Any) -> Any:
    text = column.cast(pa.string())
    if pc.all(pc.is_finite(column)).as_py() is False:
        for name, written in _NOT_NUMBERS.items():
            text = pc.if_else(pc.fill_null(pc.equal(text, name), False), written, text)
    return text


def _quoted(texts: Any) -> Any:
    plain = pc.binary_join_element_wise('"', texts, '"', "")
    special = pc.fill_null(pc.match_substring_regex(texts, _ESCAPED), False)
    if not pc.any(special).as_py():
        return plain
    escaped = _mapped(texts.filter(special), lambda text: json.dumps(text, ensure_ascii=False))
    result = np.array(plain.to_pylist(), dtype=object)
    result[special.to_numpy(zero_copy_only=False)] = escaped.to_pylist()
    return pa.array(result.tolist(), pa.string())


def _mapped(column: Any, write: Callable[[Any], str]) -> pa.Array:
    values: Sequence[Any] = column.to_pylist(maps_as_pydicts="strict")
    return pa.array([None if v is None else write(v) for v in values], pa.string())


def _plain(value: Any) -> Any:
    """Turn a value into what JSON has."""
    match value:
        case float() if value != value or value in (float("inf"), float("-inf")):
            return json.loads(_NOT_NUMBERS[str(value)])
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Decimal():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {str(_plain(key)): _plain(each) for key, each in value.items()}
        case list():
            return [_plain(each) for each in value]
    return value
