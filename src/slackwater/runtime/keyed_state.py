"""What can be told of windows that each key has for itself from the rows held of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from slackwater.app.windows import CountWindows, KeyedWindows, SessionWindows
from slackwater.runtime.merge import group_numbers
from slackwater.spark.keyed_rows import FIRST, LAST

SHOWN = "_sw_shown"  # what begins with this row has been emitted
PREFIX = "_sw_prefix"  # this row only counts events that are done with


def next_end_ms(windows: KeyedWindows, rows: pa.Table | None, watermark_ms: int) -> int:
    """Return the first moment after the watermark at which a window may be found to have ended.

    Events that are still to come make windows that end at least a gap after the watermark. Any
    number of keys may have windows that end at any time; looking at once at all that end within a
    little while of each other saves steps.
    """
    patience_ms = windows.patience_ms
    if isinstance(windows, CountWindows):
        return watermark_ms + patience_ms  # the next event may complete one
    latest_ms = watermark_ms + windows.gap_ms + 1
    if rows is None:
        return latest_ms
    last_us = rows[LAST].to_numpy()
    ahead_us = last_us[last_us >= (watermark_ms - windows.gap_ms) * 1_000]
    if not len(ahead_us):
        return latest_ms
    end_ms = int(ahead_us.min()) // 1_000 + windows.gap_ms + 1
    return min(latest_ms, -(-end_ms // patience_ms) * patience_ms)


def may_change(
    windows: SessionWindows,
    held: pa.Table,
    by: Sequence[str],
    arrived: pa.Table | None,
    horizon_us: tuple[int, int, int],
) -> NDArray[np.bool_]:
    """Tell which sessions a step has to look at: of keys with new events, ended, or forgotten.

    `horizon_us` is the watermark before and after the step, and what is settled after it.

    It spares sorting the sessions of all keys, of which there may be many more than new events.
    """
    end_us = held[LAST].to_numpy() + windows.gap_ms * 1_000
    before_us, after_us, settled_us = horizon_us
    not_shown = ~held[SHOWN].to_numpy() | (end_us >= before_us)  # or not as it is now
    found: NDArray[np.bool_] = (end_us < settled_us) | ((end_us < after_us) & not_shown)
    if arrived is None or not arrived.num_rows:
        return found
    same_key = np.ones(held.num_rows, dtype=np.bool_)
    for key in by:
        if not pa.types.is_floating(held[key].type):  # of which NaN would not be found
            values = pc.unique(arrived[key])
            same_key &= pc.is_in(held[key], value_set=values).to_numpy()
    return found | same_key


def unended(windows: KeyedWindows, rows: pa.Table | None, by: Sequence[str]) -> int:
    """Count the windows that are not full, or whose session goes on."""
    if rows is None:
        return 0
    open_rows = rows.filter(pc.invert(rows[SHOWN]))
    if not isinstance(windows, CountWindows):
        return int(open_rows.num_rows)
    return len(set(group_numbers(open_rows, by).tolist()))


def settled_bytes(windows: KeyedWindows, rows: pa.Table, lateness_ms: int, deadline_ms: int) -> int:
    """Estimate how much state is freed once the watermark reaches a deadline."""
    ends_ms = rows[LAST].to_numpy() // 1_000 + windows.gap_ms + lateness_ms
    return int(rows.nbytes * (ends_ms < deadline_ms).mean()) if rows.num_rows else 0


def held_windows(
    windows: KeyedWindows, rows: pa.Table | None, by: Sequence[str]
) -> list[tuple[int, int, int, int]]:
    """List what is held, oldest first: start and end in ms, whether it was shown, and its rows.

    Of sessions each is listed, of count windows all that a key has.
    """
    if rows is None:
        return []
    counted = isinstance(windows, CountWindows)
    keys = group_numbers(rows, by) if counted else np.arange(rows.num_rows)
    found: dict[int, tuple[int, int, int, int]] = {}
    columns = (rows[FIRST].to_numpy(), rows[LAST].to_numpy(), rows[SHOWN].to_numpy())
    for key, first_us, last_us, shown in zip(keys, *columns, strict=True):
        end_ms = int(last_us) // 1_000 + (0 if counted else windows.gap_ms)
        before = found.get(int(key), (int(first_us) // 1_000, end_ms, 0, 0))
        found[int(key)] = (
            min(before[0], int(first_us) // 1_000),
            max(before[1], end_ms),
            max(before[2], int(shown)),
            before[3] + 1,
        )
    return sorted(found.values())
