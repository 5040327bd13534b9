"""Which types columns may have: what is not known to come back from state as it was, is refused."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import types as T

from slackwater.app.checks import doubled_name
from slackwater.app.types import in_words
from slackwater.errors import DescriptionError

_READABLE = (
    T.NullType,
    T.StringType,
    T.BinaryType,
    T.BooleanType,
    T.NumericType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
    T.DayTimeIntervalType,
    T.YearMonthIntervalType,
    T.VariantType,
)
# Arrow, in which state is kept and results are collected, has no months without days.
_KEEPABLE = tuple(kind for kind in _READABLE if kind is not T.YearMonthIntervalType)


def check_readable(fields: Iterable[T.StructField], place: str) -> None:
    """Refuse columns of a source that no step could read."""
    for field in fields:
        if (found := _other_than(_READABLE, field.dataType)) is not None:
            wanted = "string" if isinstance(found, T.CharType | T.VarcharType) else "a plain type"
            raise DescriptionError(
                f"{place} has {field.name!r} as {in_words(field.dataType.simpleString())}, and "
                f"{found.simpleString()} cannot be read: declare it as {wanted}"
            )


def check_keepable(fields: Iterable[T.StructField], what: str) -> None:
    """Refuse rows that would not come back from a window's state, or reach a sink, as they are."""
    fields = list(fields)
    if (doubled := doubled_name(field.name for field in fields)) is not None:
        raise DescriptionError(
            f"{what} a column {doubled!r} twice (Spark ignores case); rename or drop one of them"
        )
    for field in fields:
        if (found := _other_than(_KEEPABLE, field.dataType)) is not None:
            raise DescriptionError(
                f"{what} a column {field.name!r} of {in_words(field.dataType.simpleString())}, and "
                f"{found.simpleString()} cannot be kept; cast it, such as CAST(... AS STRING), or "
                "drop it"
            )


def _other_than(allowed: tuple[type[T.DataType], ...], kind: T.DataType) -> T.DataType | None:
    """Find a type within a type that is not among those allowed."""
    match kind:
        case T.StructType(fields=fields):
            inner = [field.dataType for field in fields]
        case T.ArrayType(elementType=element):
            inner = [element]
        case T.MapType(keyType=key, valueType=value):
            inner = [key, value]
        case _:
            return None if isinstance(kind, allowed) else kind
    return next((found for each in inner if (found := _other_than(allowed, each))), None)
