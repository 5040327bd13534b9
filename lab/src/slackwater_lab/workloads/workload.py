"""What a benchmark runs: a workload says which inputs a query has, and what it makes of them.

Each workload stands in a module of its own, written to be read as an example. Everything that is
measured (which windows are due, and when) follows from this description, for every engine alike.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from slackwater.app.stream import App
from slackwater.app.windows import Windows
from slackwater.progress.arrivals import stream_salt
from slackwater.progress.distributions import DelayDistribution
from slackwater.progress.grid import WindowGrid
from slackwater.spark.sinks.base import Sink
from slackwater.spark.sources.generator import Generator
from slackwater_lab.workloads.due import Span

Phase = Literal["spread", "aligned"]


@dataclass(frozen=True)
class Feed:
    """Describe the events of one query: `rate` a second, over all its inputs together."""

    rate: float
    delay: str | DelayDistribution
    seed: int
    query: int
    start_ms: int

    def salt(self, place: int = 0) -> int:
        """Return the seed of the query's input at a place, unlike that of any other input."""
        salt = stream_salt(self.seed, self.query)
        return salt if place == 0 else stream_salt(salt, place)


class Workload(ABC):
    """Describe a query that is run many times at once, each over its own inputs."""

    name: ClassVar[str]

    @abstractmethod
    def stages(self, phase: Phase) -> tuple[Windows, ...]:
        """Return the windows, and behind them those over their results, down to the last."""

    @abstractmethod
    def sources(self, feed: Feed) -> dict[str, Generator]:
        """Generate the inputs of one query, by the names that the app gives them."""

    @abstractmethod
    def app(self, spark: SparkSession, sink: Sink, *, phase: Phase, variant: int) -> App:
        """Write the query; variants do the same work by plans that no step can share."""

    @abstractmethod
    def streaming_frame(
        self,
        inputs: Mapping[str, DataFrame],
        lag_ms: int,
        *,
        grids: Sequence[WindowGrid],
        variant: int,
    ) -> DataFrame:
        """Write the query for Structured Streaming, with watermarks that trail by `lag_ms`."""

    def grids(self, phase: Phase, query: int) -> tuple[WindowGrid, ...]:
        """Place the windows of one query, stage by stage."""
        return tuple(windows.grid(query) for windows in self.stages(phase))

    @property
    def slide_ms(self) -> int:
        """Return how often a query has results."""
        return self.stages("aligned")[0].slide_ms


def due_in(
    spark: SparkSession, grids: Sequence[WindowGrid], inputs: Sequence[Generator], span: Span
) -> Iterator[tuple[int, float]]:
    """List the last windows of one query that are due in a span: their end, and when they are due.

    A window is due when the slowest of the inputs' watermarks has passed it. Where results go into
    further windows, only those are due that the results of a first window fall into.
    """
    readers = [source.open(spark) for source in inputs]

    def swept_at(end_ms: int) -> float:
        return max(float(reader.sweep_arrival_ms(end_ms) or 0.0) for reader in readers)

    first, *later = grids
    # A result is an event of the window's last millisecond; the window that holds it ends at most
    # the sizes of all later windows after it.
    behind_ms = sum(grid.size_ms for grid in later)
    begins_ms = min(reader.state()["start_ms"] for reader in readers)
    due: dict[int, float] = {}
    end_ms = first.next_end(int(span.until_ms)) - first.slide_ms
    # One and the same watermark, the first, sweeps all that ends before the streams begin.
    while end_ms + behind_ms > begins_ms and swept_at(end_ms + behind_ms) >= span.first_ms:
        ends = {end_ms}
        for grid in later:
            ends = {last_ms for earlier_ms in ends for last_ms in _ends_with(grid, earlier_ms - 1)}
        for last_ms in ends:
            if last_ms not in due and (swept_ms := swept_at(last_ms)) in span:
                due[last_ms] = swept_ms
        end_ms -= first.slide_ms
    yield from due.items()


def windows_of(size_ms: int, phase: Phase) -> Windows:
    """Place tumbling windows: "aligned" on full multiples, or "spread" query by query."""
    return Windows(size_ms, size_ms, spread=phase == "spread")


def varied(rows: DataFrame, key: str, variant: int) -> DataFrame:
    """Let variants differ in one cheap condition that every row meets: keys are not negative."""
    return rows if variant == 0 else rows.where(f"{key} <> -{variant}")


def spark_window(grid: WindowGrid, time: str | Column = "event_time") -> Column:
    """Write a query's windows as Structured Streaming has them."""
    return F.window(
        time,
        f"{grid.size_ms} milliseconds",
        f"{grid.slide_ms} milliseconds",
        f"{grid.offset_ms % grid.slide_ms} milliseconds",
    )


def _ends_with(grid: WindowGrid, moment_ms: int) -> Iterator[int]:
    """List the ends of the windows that hold a moment."""
    slice_ms = grid.slice_start(moment_ms)
    if slice_ms is not None:
        for window_ms in grid.windows_of(slice_ms):
            yield window_ms + grid.size_ms
