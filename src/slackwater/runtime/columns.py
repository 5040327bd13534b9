"""The columns that all deployed queries stand in: one entry each, seen by many snapshots."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_NUMBERS: Final = (
    "query",
    "template",
    "deadline_ms",
    "last_step",
    "state_bytes",
    "freed_bytes",
    "read",
)
_TIMES: Final = (
    "sweep_deviation_ms",
    "oldest_arrival_ms",
    "due_at_ms",  # this and those behind it are not shown as they are
    "sweep_ms",
    "amend_at_ms",
)


class Columns:
    """Hold the arrays.

    Snapshots share read-only copies for as long as nothing changes. Columns of a kind lie in one
    block, so that a copy is one call: right after a step, with cold caches, calls are what counts.
    """

    query: NDArray[np.int64]
    template: NDArray[np.int64]
    deadline_ms: NDArray[np.int64]
    last_step: NDArray[np.int64]
    state_bytes: NDArray[np.int64]
    freed_bytes: NDArray[np.int64]
    read: NDArray[np.int64]
    sweep_deviation_ms: NDArray[np.float64]
    oldest_arrival_ms: NDArray[np.float64]
    due_at_ms: NDArray[np.float64]
    sweep_ms: NDArray[np.float64]
    amend_at_ms: NDArray[np.float64]

    def __init__(self, size: int) -> None:
        """Hold so many queries, all zero but for what says that there is nothing yet."""
        self._numbers = np.zeros((len(_NUMBERS), size), dtype=np.int64)
        self._times = np.zeros((len(_TIMES), size), dtype=np.float64)
        for names, block in ((_NUMBERS, self._numbers), (_TIMES, self._times)):
            for name, column in zip(names, block, strict=True):
                setattr(self, name, column)
        self.last_step[:] = -1
        self.amend_at_ms[:] = np.inf
        self.amends_now = np.zeros(size, dtype=np.bool_)  # needs nothing more to be read
        self.known = np.zeros(size, dtype=np.bool_)
        self.ready = np.zeros(size, dtype=np.bool_)
        self._copied: tuple[dict[str, Any], dict[str, Any]] | None = None

    def shown(self) -> dict[str, Any]:
        """Return the columns as a snapshot has them, by name: nobody can change these."""
        return self._copies()[0]

    def kept(self) -> dict[str, Any]:
        """Return what else a snapshot may be asked about later: `read`, `oldest_arrival_ms`."""
        return self._copies()[1]

    def _copies(self) -> tuple[dict[str, Any], dict[str, Any]]:
        if self._copied is None:
            numbers, times, ready = self._numbers.copy(), self._times[:2].copy(), self.ready.copy()
            for block in (numbers, times, ready):
                block.setflags(write=False)
            shown: dict[str, Any] = dict(zip(_NUMBERS, numbers, strict=True))
            deviation_ms, oldest_ms = times
            kept = {"read": shown.pop("read"), "oldest_arrival_ms": oldest_ms}
            shown |= {"sweep_deviation_ms": deviation_ms, "ready": ready}
            self._copied = (shown, kept)
        return self._copied

    def changed(self) -> None:
        """Note that something changes: the next snapshot has copies of its own."""
        self._copied = None

    def grown(self) -> Columns:
        """Return columns with one entry more."""
        larger = Columns(len(self.query) + 1)
        for name, column in vars(self).items():
            if isinstance(column, np.ndarray):
                getattr(larger, name)[..., :-1] = column
        return larger
