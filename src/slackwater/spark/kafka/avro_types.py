"""The columns of an Avro schema."""

from __future__ import annotations

import json
from typing import Any, Final

import fastavro
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from slackwater.errors import DescriptionError

_PRIMITIVE: Final[dict[str, DataType]] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "bytes": BinaryType(),
    "fixed": BinaryType(),
    "enum": StringType(),
}
_LOGICAL: Final[dict[str, DataType]] = {
    "timestamp-millis": TimestampType(),
    "timestamp-micros": TimestampType(),
    "date": DateType(),
    "uuid": StringType(),
}


def spark_schema(avro: str | None, epoch_field: str | None = None) -> StructType:
    """Return the columns that records of an Avro schema have.

    `epoch_field` is a plain number to be taken for a timestamp.

    >>> record = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}]}
    >>> spark_schema(json.dumps(record)).simpleString()
    'struct<n:bigint>'
    """
    try:
        schema = fastavro.parse_schema(json.loads(avro or ""), {})
    except Exception as error:
        raise DescriptionError(
            f"schema is no Avro schema ({str(error) or type(error).__name__}): give the JSON that "
            "the records were written with"
        ) from error
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise DescriptionError("schema must be an Avro record: its fields become the columns")
    found = _struct(schema, {})
    return StructType(
        [StructField(f.name, TimestampType()) if f.name == epoch_field else f for f in found.fields]
    )


def _struct(schema: dict[str, Any], named: dict[str, DataType]) -> StructType:
    fields = [StructField(f["name"], _type(f["type"], named)) for f in schema["fields"]]
    return StructType(fields)


def _type(kind: Any, named: dict[str, DataType]) -> DataType:
    if isinstance(kind, list):
        kinds = [each for each in kind if each != "null"]
        if len(kinds) != 1:
            raise DescriptionError(
                f"schema has the union {kind!r}: only one type, or one and null, fit a column"
            )
        return _type(kinds[0], named)
    if isinstance(kind, str):
        found = _PRIMITIVE.get(kind) or named.get(kind)
        if found is None:
            raise DescriptionError(f"schema has the type {kind!r}, which no column can hold")
        return found
    name, logical = kind["type"], kind.get("logicalType")
    if logical == "decimal":
        return DecimalType(kind["precision"], kind.get("scale", 0))
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if name == "array":
        return ArrayType(_type(kind["items"], named))
    if name == "map":
        return MapType(StringType(), _type(kind["values"], named))
    found = _struct(kind, named) if name == "record" else _type(name, named)
    if "name" in kind:
        named[kind["name"]] = found
    return found
