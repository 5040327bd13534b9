"""Keep PySpark's own log quiet about errors that Slackwater reports.

PySpark logs an error that Spark can place in a query the moment it is captured: several kilobytes
of JSON on stderr, whoever catches it then. What our steps and checks catch is told in one line
instead, so these two loggers say nothing of it; what users' own calls do is logged as ever.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from pyspark.logger import PySparkLogger

_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


class _Depth(threading.local):
    depth = 0


_here = _Depth()


@contextmanager
def hushed() -> Iterator[None]:
    """Let PySpark not log, in this thread, the errors that it captures meanwhile."""
    _install()
    _here.depth += 1
    try:
        yield
    finally:
        _here.depth -= 1


@cache
def _install() -> None:
    for name in _LOGGERS:
        PySparkLogger.getLogger(name).addFilter(lambda record: not _here.depth)
