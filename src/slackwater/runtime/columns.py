"""The columns that all deployed queries stand in: one entry each, seen by many snapshots."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

# What snapshots show as it is.
_SHOWN: Final = (
    "query",
    "template",
    "deadline_ms",
    "sweep_deviation_ms",
    "ready",
    "last_step",
    "state_bytes",
    "freed_bytes",
)


# What a snapshot may be asked about later; neither may change under it.
_KEPT: Final = (*_SHOWN, "read", "oldest_arrival_ms")


class Columns:
    """Hold the arrays.

    A snapshot must stay as it is while things change, and is taken far more often than most columns
    change. So snapshots share read-only views of them, and columns are copied before they change.
    """

    def __init__(self, size: int) -> None:
        self.query = np.zeros(size, dtype=np.int64)
        self.template = np.zeros(size, dtype=np.int64)
        self.read = np.zeros(size, dtype=np.int64)
        self.oldest_arrival_ms = np.zeros(size, dtype=np.float64)
        self.deadline_ms = np.zeros(size, dtype=np.int64)
        self.due_at_ms = np.zeros(size, dtype=np.float64)
        self.sweep_ms = np.zeros(size, dtype=np.float64)
        self.sweep_deviation_ms = np.zeros(size, dtype=np.float64)
        self.state_bytes = np.zeros(size, dtype=np.int64)
        self.freed_bytes = np.zeros(size, dtype=np.int64)
        self.amend_at_ms = np.full(size, np.inf, dtype=np.float64)
        self.amends_now = np.zeros(size, dtype=np.bool_)  # needs nothing more to be read
        self.known = np.zeros(size, dtype=np.bool_)
        self.ready = np.zeros(size, dtype=np.bool_)
        self.last_step = np.full(size, -1, dtype=np.int64)
        self._shown: dict[str, Any] | None = None

    def shown(self) -> dict[str, Any]:
        """Return the columns as a snapshot has them, by name: nobody can change these."""
        if self._shown is None:
            self._shown = {name: getattr(self, name).view() for name in _SHOWN}
            for view in self._shown.values():
                view.flags.writeable = False
        return self._shown

    def changeable(self) -> None:
        """Copy what snapshots have, so that it can be changed."""
        if self._shown is not None:
            self._shown = None
            for name in _KEPT:
                setattr(self, name, getattr(self, name).copy())

    def grown(self) -> Columns:
        """Return columns with one entry more."""
        larger = Columns(len(self.query) + 1)
        for name, column in vars(self).items():
            if isinstance(column, np.ndarray):
                getattr(larger, name)[:-1] = column
        return larger
