"""Read JSON and TOML that users hand in: whatever a file holds, at worst it is a ValueError.

A file of a few kilobytes can be nested so deeply that reading it, or telling what is wrong with it,
overflows the stack; dotted keys of TOML nest without any bracket. Such files, and those too large
to be what they are said to be, are refused before anybody looks at their content.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

MOST_LEVELS = 60  # results of benchmarks and scenarios have about six
_MOST_JSON_BYTES = 1 << 30
_MOST_TOML_BYTES = 1 << 20  # a key of n parts takes n squared steps


def read_json(path: Path) -> Any:
    """Read a file of JSON; OSError where it cannot be read, ValueError where it is none."""
    return parsed_json(_text_of(path, _MOST_JSON_BYTES))


def read_toml(path: Path) -> dict[str, Any]:
    """Read a file of TOML; OSError where it cannot be read, ValueError where it is none."""
    content: dict[str, Any] = _guarded(tomllib.loads, _text_of(path, _MOST_TOML_BYTES))
    _shallow(content)
    return content


def parsed_json(text: str) -> Any:
    """Read JSON that is nested like something that was meant.

    >>> parsed_json("[" * 100_000)
    Traceback (most recent call last):
    ...
    ValueError: it is nested more than 60 levels deep
    """
    return _shallow(_guarded(json.loads, text))


def brief(value: Any, most: int = 60) -> str:
    """Write a value for a message, however long it is.

    >>> brief("x" * 100, most=10)
    "'xxxxxx..."
    """
    text = repr(value)
    return text if len(text) <= most else text[: most - 3] + "..."


def _text_of(path: Path, most_bytes: int) -> str:
    size = path.stat().st_size
    if size > most_bytes:
        raise ValueError(f"it has {size:,} bytes, and at most {most_bytes:,} are read")
    return path.read_text()


def _guarded(parse: Any, text: str) -> Any:
    try:
        return parse(text)
    except RecursionError:
        raise ValueError(f"it is nested more than {MOST_LEVELS} levels deep") from None


def _shallow(content: Any) -> Any:
    """Return the content, unless it is nested too deeply; each level is looked at as a whole."""
    level = [content]
    for _ in range(MOST_LEVELS + 1):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return content
    raise ValueError(f"it is nested more than {MOST_LEVELS} levels deep")
