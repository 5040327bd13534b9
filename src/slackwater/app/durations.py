"""Durations as users write them: "3 seconds", "200 ms", "1 hour 30 minutes", or a timedelta."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal

from slackwater.errors import DescriptionError

Duration = str | timedelta

_MS_PER_UNIT = {
    "ms": 1,
    "millisecond": 1,
    "s": 1_000,
    "sec": 1_000,
    "second": 1_000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
_PART = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*")


def to_ms(value: Duration, field: str, *, allow_zero: bool = False) -> int:
    """Turn a duration into whole milliseconds, or say which field is wrong and how to write it.

    >>> to_ms("3 seconds", "size")
    3000
    >>> to_ms("1 minute 30 s", "size")
    90000
    >>> to_ms(timedelta(hours=1), "size")
    3600000
    """
    if isinstance(value, timedelta):
        total_ms = Decimal(value // timedelta(microseconds=1)) / 1_000
    elif isinstance(value, str):
        total_ms = _parse(value, field)
    else:
        raise DescriptionError(
            f"{field}={value!r} is not a duration: write it with its unit, such as '3 seconds'"
        )
    if total_ms != int(total_ms):
        raise DescriptionError(f"{field}={value!r} is finer than a millisecond: round it")
    if total_ms < 0:
        raise DescriptionError(f"{field}={value!r} is negative: give a positive duration")
    if total_ms == 0 and not allow_zero:
        raise DescriptionError(f"{field}={value!r} is zero: give a positive duration")
    return int(total_ms)


def _parse(text: str, field: str) -> Decimal:
    total_ms, position = Decimal(0), 0
    while position < len(text):
        part = _PART.match(text, position)
        unit = part.group(2).lower() if part else ""
        unit = unit if unit in _MS_PER_UNIT else unit.removesuffix("s")
        if part is None or unit not in _MS_PER_UNIT:
            raise DescriptionError(
                f"{field}={text!r} is not a duration: write a number and a unit "
                "(ms, seconds, minutes, hours, days), such as '3 seconds'"
            )
        total_ms += Decimal(part.group(1)) * _MS_PER_UNIT[unit]
        position = part.end()
    if not text.strip():
        raise DescriptionError(f"{field} is empty: write a duration such as '3 seconds'")
    return total_ms


def show_ms(ms: int) -> str:
    """Write milliseconds the way people read them.

    >>> show_ms(3000), show_ms(90000), show_ms(250)
    ('3 s', '90 s', '250 ms')
    """
    return f"{ms // 1_000} s" if ms % 1_000 == 0 else f"{ms} ms"
