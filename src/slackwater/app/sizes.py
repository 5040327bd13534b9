"""Amounts of memory as users write them: "512 MB", "1 GB", or a number of bytes."""

from __future__ import annotations

import re

from slackwater.errors import DescriptionError

_BYTES_PER_UNIT = {"b": 1, "kb": 1024, "mb": 1024**2, "gb": 1024**3, "tb": 1024**4}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*")


def to_bytes(value: str | int, field: str) -> int:
    """Turn an amount of memory into bytes, or say which field is wrong and how to write it.

    >>> to_bytes("1.5 GB", "memory"), to_bytes(4096, "memory")
    (1610612736, 4096)
    """
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    unit = _BYTES_PER_UNIT.get(match[2].lower()) if match else None
    if match is None or unit is None or float(match[1]) <= 0:
        raise DescriptionError(
            f"{field}={value!r} is no amount of memory: write it as '512 MB', '1 GB', or in bytes"
        )
    return int(float(match[1]) * unit)
