"""Which panes a topic has: a compacted topic beside it, written in the very same transactions.

Its key is a query and a window, its value that window's newest pane. Panes of a window are written
in order, so a pane is there if its number is not higher than that. Only a query's last step can be
sent again, and a step is one transaction: so the windows of a query's last write are enough, for
however long the query is away; those before are removed. The first panes of windows and later ones
may come from two queries of one name, an early and an exact one, so they are noted apart. One more
record names the writer that owns the topic.

Of windows that each key has for itself there may be thousands in a step, but all of them have one
number, that of the query's emission: this alone is kept.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from slackwater.errors import SinkError
from slackwater.spark.sinks.pane_tables import PaneKey, is_first

OWNER: Final = b"owner"
VERSION: Final = 2  # the first one had no notes of first panes by themselves
EMISSION_US: Final = -(2**63)  # in the place of a window: the query's emission as a whole
_FIRST: Final = "first"
_KINDS: Final[tuple[list[str], ...]] = ([], [_FIRST])


@dataclass(frozen=True)
class _Note:
    """Name what one record is about: a window of a query, and which of its panes."""

    query: str
    start_us: int
    first: bool

    @staticmethod
    def of(pane: PaneKey) -> _Note:
        query, start_us, number = pane
        return _Note(query, start_us, is_first(number) and start_us != EMISSION_US)

    @staticmethod
    def read(key: bytes) -> _Note:
        query, start_us, *first = json.loads(key)
        if not isinstance(query, str) or not isinstance(start_us, int) or first not in _KINDS:
            raise ValueError(key)
        return _Note(query, start_us, bool(first))

    def key(self) -> bytes:
        cells: list[Any] = [self.query, self.start_us, *([_FIRST] if self.first else [])]
        return json.dumps(cells, ensure_ascii=False).encode()


def remembered(pane: PaneKey, window_keys: Sequence[str]) -> PaneKey:
    """Name what is remembered of a pane; `window_keys` tell windows with the same start apart."""
    query, _, number = pane
    return (query, EMISSION_US, number) if window_keys else pane


@dataclass
class WrittenPanes:
    """Remember the newest pane of each window that the last write of a query held."""

    owner: str | None = None
    _newest: dict[_Note, int] = field(default_factory=dict)
    _notes: dict[tuple[str, bool], set[_Note]] = field(default_factory=dict)

    def has(self, pane: PaneKey) -> bool:
        """Tell whether a pane, or a later one of its window, has been written."""
        query, start_us, number = pane
        kinds = (_Note(query, start_us, first) for first in (False, True))
        return any(number <= self._newest.get(note, -1) for note in kinds)

    def read(self, key: bytes, value: bytes | None, place: str) -> None:
        """Take in one record of the topic."""
        if key == OWNER:
            self.owner = None if value is None else value.decode()
            return
        try:
            note = _Note.read(key)
            content = None if value is None else json.loads(value)
            newer = content is not None and content["version"] > VERSION
            pane = None if content is None or newer else int(content["pane"])
        except (ValueError, KeyError, TypeError, RecursionError) as failure:
            raise SinkError(
                f"{place} holds a record that Slackwater did not write (key {key[:80]!r}): "
                "give the sink another writer=, whose topic nobody else writes to"
            ) from failure
        if newer:
            raise SinkError(f"{place} was written by a newer Slackwater: upgrade this one")
        if pane is None:
            self._forget(note)
        else:
            self._remember(note, pane)

    def add(self, panes: Collection[PaneKey], sent: Collection[PaneKey]) -> None:
        """Remember panes that have been committed; `sent` are also those that were there before."""
        for pane in sorted(panes):
            self._remember(_Note.of(pane), pane[2])
        for note in self._outdated(sent):
            self._forget(note)

    def records(
        self, panes: Collection[PaneKey], sent: Collection[PaneKey]
    ) -> Iterator[tuple[bytes, bytes | None]]:
        """Write down what `add` of these panes will remember, and what it will forget."""
        for pane in sorted(panes):
            content = {"version": VERSION, "pane": pane[2]}
            yield _Note.of(pane).key(), json.dumps(content).encode()
        for note in self._outdated(sent):
            yield note.key(), None

    def _outdated(self, sent: Collection[PaneKey]) -> list[_Note]:
        """List what to forget once these panes are written, the same before and after."""
        kept = {_Note.of(pane) for pane in sent}
        series = dict.fromkeys((note.query, note.first) for note in sorted(kept, key=_Note.key))
        return [
            note
            for each in series
            for note in sorted(self._notes.get(each, set()) - kept, key=_Note.key)
        ]

    def _remember(self, note: _Note, pane: int) -> None:
        self._newest[note] = pane
        self._notes.setdefault((note.query, note.first), set()).add(note)

    def _forget(self, note: _Note) -> None:
        self._newest.pop(note, None)
        self._notes.get((note.query, note.first), set()).discard(note)
