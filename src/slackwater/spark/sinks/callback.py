"""Panes handed to a function of the user's."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from slackwater.errors import DescriptionError, SinkError
from slackwater.spark.failures import defined_at, explain
from slackwater.spark.sinks.base import Sink, SinkWriter
from slackwater.spark.sinks.pane_tables import RecentPanes


def callback(fn: Callable[[pa.Table], object]) -> CallbackSink:
    """Call `fn` with each batch of panes, one call at a time; a pane is committed when it returns.

    While the process lives, each pane comes once, unless `fn` raised: then its whole batch comes
    again. After a crash, panes whose commit was not recorded come a second time (at least once),
    with the same rows: a function that must not act twice remembers `query, window_start, pane`.
    """
    return CallbackSink(fn)


@dataclass(frozen=True)
class CallbackSink(Sink):
    """Name a function that takes panes."""

    fn: Callable[[pa.Table], object]

    def __post_init__(self) -> None:
        if not callable(self.fn):
            raise DescriptionError(
                f"callback(fn={self.fn!r}) cannot be called: give a function of one pyarrow Table"
            )

    def open(self) -> SinkWriter:
        """Make a writer that calls the function."""
        return _CallbackWriter(self.fn)


class _CallbackWriter(SinkWriter):
    def __init__(self, fn: Callable[[pa.Table], object]) -> None:
        self._fn = fn
        self._written = RecentPanes()
        self._lock = threading.Lock()

    def write(self, panes: pa.Table, lane: int) -> None:
        with self._lock:
            fresh, new, sent = self._written.leave_out(panes)
            if not new:
                return
            try:
                self._fn(fresh)
            except Exception as failure:
                raise SinkError(
                    f"callback {defined_at(self._fn)} raised {explain(failure)}: mend the "
                    "function, then resume; its panes will be sent again"
                ) from failure
            self._written.add(sent)
