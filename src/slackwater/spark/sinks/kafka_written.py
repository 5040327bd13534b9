"""Which panes a topic has: a compacted topic beside it, written in the very same transactions.

Its key is a query and a window, its value that window's newest pane. Panes of a window are written
in order, so a pane is there if its number is not higher than that. Only a query's last step can be
sent again, so the windows that a query wrote lately are enough; those before are removed. One more
record names the writer that owns the topic.

Of windows that each key has for itself there may be thousands in a step, but all of them have one
number, that of the query's emission: this alone is kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from slackwater.errors import SinkError
from slackwater.spark.sinks.pane_tables import PaneKey

OWNER: Final = b"owner"
VERSION: Final = 1
REMEMBERED_WINDOWS: Final = 128  # of each query, besides those of its last write
EMISSION_US: Final = -(2**63)  # in the place of a window: the query's emission as a whole
_Window = tuple[str, int]


def remembered(pane: PaneKey, window_keys: Sequence[str]) -> PaneKey:
    """Name what is remembered of a pane; `window_keys` tell windows with the same start apart."""
    query, _, number = pane
    return (query, EMISSION_US, number) if window_keys else pane


@dataclass
class WrittenPanes:
    """Remember the newest pane of each window, and its rows, for each query's latest windows."""

    owner: str | None = None
    _windows: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)

    def has(self, pane: PaneKey) -> bool:
        """Tell whether a pane, or a later one of its window, has been written."""
        query, start_us, number = pane
        found = self._windows.get(query, {}).get(start_us)
        return found is not None and number <= found[0]

    def rows(self, pane: PaneKey) -> int:
        """Count the rows of a window's newest pane."""
        query, start_us, _ = pane
        return self._windows[query][start_us][1]

    def read(self, key: bytes, value: bytes | None, place: str) -> None:
        """Take in one record of the topic."""
        if key == OWNER:
            self.owner = None if value is None else value.decode()
            return
        try:
            query, start_us = json.loads(key)
            content = None if value is None else json.loads(value)
            version = VERSION if content is None else content["version"]
        except (ValueError, KeyError, TypeError, RecursionError) as failure:
            raise SinkError(
                f"{place} holds a record that Slackwater did not write (key {key[:80]!r}): "
                "give the sink another writer=, whose topic nobody else writes to"
            ) from failure
        if version != VERSION:
            raise SinkError(f"{place} was written by a newer Slackwater: upgrade this one")
        windows = self._windows.setdefault(query, {})
        windows.pop(start_us, None)
        if content is not None:
            windows[start_us] = (content["pane"], content["rows"])

    def add(self, panes: dict[PaneKey, int]) -> None:
        """Remember panes that have been committed, with how many rows each has."""
        for query, start_us, pane, rows in _in_order(panes):
            windows = self._windows.setdefault(query, {})
            windows.pop(start_us, None)
            windows[start_us] = (pane, rows)
        for query, start_us in self._outdated(panes):
            self._windows[query].pop(start_us, None)

    def records(self, panes: dict[PaneKey, int]) -> Iterator[tuple[bytes, bytes | None]]:
        """Write down what `add` of these panes will remember, and what it will forget."""
        for query, start_us, pane, rows in _in_order(panes):
            content = {"version": VERSION, "pane": pane, "rows": rows}
            yield _key(query, start_us), json.dumps(content).encode()
        for query, start_us in self._outdated(panes):
            yield _key(query, start_us), None

    def _outdated(self, panes: Iterable[PaneKey]) -> list[_Window]:
        """List the windows to forget once these panes are written, the same before and after."""
        written: dict[str, set[int]] = {}
        for query, start_us, _ in panes:
            written.setdefault(query, set()).add(start_us)
        outdated = []
        for query, starts in written.items():
            others = [start for start in self._windows.get(query, {}) if start not in starts]
            outdated += [(query, start) for start in others[:-REMEMBERED_WINDOWS]]
        return outdated


def _in_order(panes: dict[PaneKey, int]) -> Iterator[tuple[str, int, int, int]]:
    for (query, start_us, pane), rows in sorted(panes.items()):
        yield query, start_us, pane, rows


def _key(query: str, start_us: int) -> bytes:
    return json.dumps([query, start_us], ensure_ascii=False).encode()
