"""Spark's type names, as far as descriptions need them: what can be added, ordered, grouped."""

from __future__ import annotations

import re

from slackwater.app.names import quoted
from slackwater.errors import DescriptionError

_NUMBERS = frozenset({"tinyint", "smallint", "int", "bigint", "float", "double"})
_ORDERED = frozenset({"boolean", "date", "timestamp", "timestamp_ntz", "binary"})
_WORDS = {
    "string": "text",
    "char": "text",
    "varchar": "text",
    "binary": "bytes",
    "boolean": "true or false",
    "date": "dates",
    "timestamp": "timestamps",
    "timestamp_ntz": "timestamps",
    "time": "times of day",
    "interval": "intervals",
    "array": "arrays",
    "map": "maps",
    "struct": "structs",
    "void": "nothing but null",
}
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")
_TEXT = re.compile(r"string( collate utf8_binary)?|(var)?char\(\d+\)", re.IGNORECASE)
MAX_DECIMAL_DIGITS = 38
_SHOWN = 100  # characters of a type's name in a message


def decimal_digits(type_name: str) -> tuple[int, int] | None:
    """Read precision and scale out of a decimal's type name; None for any other type.

    >>> decimal_digits("decimal(10,2)"), decimal_digits("double")
    ((10, 2), None)
    """
    found = _DECIMAL.fullmatch(type_name)
    return (int(found[1]), int(found[2])) if found else None


def widened_decimal(type_name: str, precision: int, scale: int = 0) -> str | None:
    """Name the decimal with so many more digits, within what Spark allows; None for other types.

    >>> widened_decimal("decimal(10,2)", 10), widened_decimal("decimal(36,2)", 4, 4)
    ('decimal(20,2)', 'decimal(38,6)')
    """
    digits = decimal_digits(type_name)
    if digits is None:
        return None
    most = MAX_DECIMAL_DIGITS
    return f"decimal({min(digits[0] + precision, most)},{min(digits[1] + scale, most)})"


def is_number(type_name: str) -> bool:
    """Tell whether values of this type can be added."""
    return type_name in _NUMBERS or decimal_digits(type_name) is not None


def is_comparable(type_name: str) -> bool:
    """Tell whether the driver orders and groups values of this type exactly as Spark does."""
    return is_number(type_name) or type_name in _ORDERED or _TEXT.fullmatch(type_name) is not None


def in_words(type_name: str) -> str:
    """Say what a type holds, the way a message needs it.

    >>> in_words("string"), in_words("array<int>"), in_words("variant")
    ('text (string)', 'arrays (array<int>)', 'variant')
    """
    word = _WORDS.get(_kind(type_name))
    shown = type_name if len(type_name) <= _SHOWN else f"{type_name[:_SHOWN]}..."
    return f"{word} ({shown})" if word else shown


def number_instead(function: str, column: str, type_name: str) -> str:
    """Say how an aggregate of numbers can be had of a column that holds something else.

    >>> number_instead("sum", "order", "struct<price:double,item:string>")
    "take one of its fields, such as sum('order.price')"
    >>> number_instead("sum", "paid", "boolean")
    "cast it to a number first, such as sum('CAST(paid AS DOUBLE)')"
    """
    match _kind(type_name):
        case "struct":
            sql = f"{column}.{type_name.removeprefix('struct<').partition(':')[0]}"
            return f"take one of its fields, such as {function}({sql!r})"
        case "array":
            sql = f"aggregate({column}, 0D, (total, each) -> total + each)"
            return f"make one number of each array first, such as {function}({sql!r})"
        case "map":
            sql = f"{column}['name']"
            return f"take one of its values, such as {function}({sql!r})"
        case "variant":
            sql = f"variant_get({column}, '$.name', 'double')"
            return f"take a number out of it, such as {function}({sql!r})"
        case "date":
            return f"make a number of it first, such as {function}({f'unix_date({column})'!r})"
        case "timestamp":
            return f"make a number of it first, such as {function}({f'unix_micros({column})'!r})"
        case "string" | "char" | "varchar" | "boolean" | "void":
            return f"cast it to a number first, such as {function}('CAST({column} AS DOUBLE)')"
    return "compute a number from it first, with transform(...)"


def plain_instead(column: str, type_name: str) -> str:
    """Write, as SQL, a plain column with what such a column holds.

    >>> plain_instead("name", "string collate UTF8_LCASE"), plain_instead("tags", "array<string>")
    ('CAST(name AS STRING COLLATE UTF8_BINARY)', 'to_json(tags)')
    """
    match _kind(type_name):
        case "string":
            return f"CAST({column} AS STRING COLLATE UTF8_BINARY)"
        case "struct" | "array" | "map" | "variant":
            return f"to_json({column})"
    return f"CAST({column} AS STRING)"


def _kind(type_name: str) -> str:
    return re.split(r"[^a-z_]", type_name, maxsplit=1)[0]


def check_key(column: str, type_name: str, place: str) -> None:
    """Refuse a grouping column whose equality only Spark knows (nested types, collated text)."""
    if not is_comparable(type_name):
        remedy = plain_instead(quoted(column), type_name)
        match _kind(type_name):
            case "string":
                remedy += ", or lower(...) of that where case must not matter"
            case "struct" | "array" | "map" | "variant":
                remedy = f"one of its parts, or {remedy}"
        raise DescriptionError(
            f"{place}: by={column!r} is {in_words(type_name)}, which cannot be a key: only Spark "
            "can tell when two such values are equal; group by a plain column that a transform "
            f"makes of it, such as {remedy}"
        )
