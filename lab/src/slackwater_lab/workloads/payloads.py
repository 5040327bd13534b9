"""Events that carry something: text columns of 1.5 to 3.5 KB, made by Spark SQL expressions."""

from __future__ import annotations

from typing import Final

from slackwater.progress.tables import array_sql

LEAST_BYTES: Final = 1_536
MOST_BYTES: Final = 3_520
_PIECE: Final = 16  # bytes of a hash in hexadecimal digits
_DIGEST: Final = 128
_SYLLABLES: Final = ("ba", "de", "fi", "go", "ku", "la", "me", "ni", "po", "ru", "sa", "ti")


def payload_sql(h: str = "h") -> str:
    """Repeat a record's hash, as often as another hash of it says."""
    least, most = LEAST_BYTES // _PIECE, MOST_BYTES // _PIECE
    times = f"cast({least} + pmod(xxhash64({h}), {most - least + 1}) AS int)"
    return f"repeat(lpad(hex({h}), {_PIECE}, '0'), {times})"


def digest_sql(size: int, h: str = "h") -> str:
    """Write about `size` bytes of digests: quick to make, and half as large once compressed."""
    digests = max(1, round(size / _DIGEST))
    return f"array_join(transform(sequence(1, {digests}), i -> sha2(hex({h} + i), 512)), '')"


def vocabulary() -> list[str]:
    """Make words of one, two and three syllables, short ones first.

    >>> len(vocabulary()), vocabulary()[:2], vocabulary()[-1]
    (1884, ['ba', 'de'], 'tititi')
    """
    ones = list(_SYLLABLES)
    twos = [a + b for a in ones for b in ones]
    return ones + twos + [a + b for a in twos for b in ones]


def text_sql(h: str = "h") -> str:
    """Write a text of 300 to 630 words, frequent ones short: about as long as a payload."""
    words = vocabulary()
    listed = array_sql(words, "string")
    # The cube of an even draw favours the front of the list, as speech does.
    draw = f"(pmod(xxhash64({h}, i), 1048576) / 1048576D)"
    word = f"{listed}[cast(pow({draw}, 3) * {len(words)} AS int)]"
    count = f"cast(300 + pmod(xxhash64({h}), 331) AS int)"
    return f"array_join(transform(sequence(1, {count}), i -> {word}), ' ')"
