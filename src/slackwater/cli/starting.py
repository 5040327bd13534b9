"""Start Spark for a command, without its noise on the terminal."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from slackwater.cli.consoles import output, print_note
from slackwater.errors import MissingRequirementError
from slackwater.spark.session import session

logger = logging.getLogger("slackwater.spark")

_STDERR = 2
_NOISE = (
    "WARNING: Using incubator modules",  # the JVM's own, on every start of Spark 4
    "Warning: Java versions > Java 11 can only operate in restricted mode",  # its sketches
)


@contextmanager
def spark_session(master: str = "local[*]") -> Iterator[SparkSession]:
    """Give the running session, or start one and stop it afterwards."""
    running = SparkSession.getActiveSession()
    if running is not None:
        yield session(master)
        return
    spark = _start(master)
    try:
        yield spark
    finally:
        with suppress(Py4JError, OSError):  # a JVM that is gone need not be stopped
            spark.stop()


def _start(master: str) -> SparkSession:
    if not output.is_terminal:
        print_note("starting Spark ...")
    with output.status("starting Spark ..."):
        lines = _JvmLines()
        try:
            with lines.taken():
                spark = session(master)
        except (PySparkException, OSError) as error:
            said = lines.first() or str(error)
            raise MissingRequirementError(
                f"Spark did not start on {master} ({said}): check that Java 17 or 21 is installed, "
                "that JAVA_HOME names it, and that the master can be reached"
            ) from error
    _interrupt_calmly()
    return spark


def _interrupt_calmly() -> None:
    """Let Ctrl-C be nothing but a KeyboardInterrupt, which the runtime handles.

    PySpark's own handler calls the JVM, perhaps in the middle of another call, whose failure is
    logged at length.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    logging.getLogger().addFilter(lambda record: "sending command" not in record.msg)


class _JvmLines:
    """Turn what the JVM writes to stderr into log messages, which do not tear a live table apart.

    The JVM gets its stderr when Python starts it, and takes what Python's is at that moment.
    """

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=1_000)
        self._started = threading.Event()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Give processes that start meanwhile a stderr that ends here."""
        reading, writing = os.pipe()
        before = os.dup(_STDERR)
        os.dup2(writing, _STDERR)
        os.close(writing)
        threading.Thread(target=self._read, args=(reading,), name="jvm-lines", daemon=True).start()
        try:
            yield
        finally:
            os.dup2(before, _STDERR)
            os.close(before)
        self._started.set()
        self._log()

    def first(self) -> str:
        """Return the first thing said before the start failed: the rest follows from it."""
        return self._lines[0] if self._lines else ""

    def _read(self, reading: int) -> None:
        rest = b""
        while chunk := os.read(reading, 65_536):
            *lines, rest = (rest + chunk).split(b"\n")
            texts = [line.decode(errors="replace").rstrip() for line in lines]
            self._lines.extend(t for t in texts if t and not t.startswith(_NOISE))
            if self._started.is_set():  # until then a log message would come back through the pipe
                self._log()
        os.close(reading)

    def _log(self) -> None:
        with suppress(IndexError):
            while True:
                line = self._lines.popleft()
                stack_frame = line[0].isspace()
                logger.log(logging.INFO if stack_frame else logging.WARNING, "%s", line)
