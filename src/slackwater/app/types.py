"""Spark's type names, as far as descriptions need them: what can be added, ordered, grouped."""

from __future__ import annotations

import re

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
    word = _WORDS.get(re.split(r"[^a-z_]", type_name, maxsplit=1)[0])
    return f"{word} ({type_name})" if word else type_name


def check_key(column: str, type_name: str, place: str) -> None:
    """Refuse a grouping column whose equality only Spark knows (nested types, collated text)."""
    if not is_comparable(type_name):
        raise DescriptionError(
            f"{column!r} in {place} groups by {in_words(type_name)}; "
            "group by a plain column instead, such as one of its fields or its CAST to STRING"
        )
