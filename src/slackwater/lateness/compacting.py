"""Which of a slice's blocks are worth putting together: late events leave many small ones."""

from __future__ import annotations

from collections.abc import Sequence

LEAST_BLOCKS = 8
SMALL_BYTES = 8 * 1024 * 1024
MOST_BYTES = 64 * 1024 * 1024


def to_compact(
    sizes: Sequence[int],
    *,
    least: int = LEAST_BLOCKS,
    small_bytes: int = SMALL_BYTES,
    most_bytes: int = MOST_BYTES,
) -> tuple[int, ...]:
    """Choose the blocks to put into one: small ones, once there are `least` that fit together.

    A block that has become large is left alone, so each row is written again only a few times.

    >>> to_compact([5, 90, 3, 4], least=3, small_bytes=10, most_bytes=100)
    (0, 2, 3)
    >>> to_compact([5, 90, 3], least=3, small_bytes=10, most_bytes=100)
    ()
    """
    chosen, total = [], 0
    for place in sorted(range(len(sizes)), key=lambda place: sizes[place]):
        if sizes[place] > small_bytes or total + sizes[place] > most_bytes:
            break
        chosen.append(place)
        total += sizes[place]
    return tuple(sorted(chosen)) if len(chosen) >= max(least, 2) else ()
