"""What every sink offers: take panes, durably, each (query, window, pane) once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

import pyarrow as pa
from pyspark.sql import DataFrame

# The first columns of every pane row, before keys and values. accuracy: share of events used.
PANE_FIELDS: tuple[pa.Field, ...] = (
    pa.field("query", pa.string(), nullable=False),
    pa.field("window_start", pa.timestamp("us", tz="UTC"), nullable=False),
    pa.field("window_end", pa.timestamp("us", tz="UTC"), nullable=False),
    pa.field("pane", pa.int32(), nullable=False),
    pa.field("timing", pa.string(), nullable=False),
    pa.field("accuracy", pa.float64(), nullable=False),
)
PANE_COLUMNS = tuple(field.name for field in PANE_FIELDS)
# The timing of a row that only says: what earlier panes showed here is no longer so. Of windows
# that each key has for itself it takes back the one with its start and keys; of others, all rows.
RETRACTED = "retracted"
# Names, as metadata of a table of panes, the columns that tell such windows of one query apart.
KEYS_METADATA = b"slackwater.keys"
# A query that is reset numbers its panes from the next multiple on: no window has so many.
PANES_OF_A_LIFE: Final = 1_000_000


@dataclass(frozen=True, order=True)
class PaneId:
    """Name one pane, for ever."""

    query: str
    window_start_us: int
    pane: int


class StepPanes(ABC):
    """Gather the panes of one step where nobody sees them, and publish all of them at once.

    For steps with more than the driver should hold: the pieces lie in files until then. Leaving it
    without having published forgets them.
    """

    @abstractmethod
    def add(self, panes: pa.Table) -> None:
        """Add whole panes; those of one window stand in one call."""

    @abstractmethod
    def add_frame(self, pane: PaneId, frame: DataFrame) -> int:
        """Let Spark compute one pane, from a frame with all columns; count its rows."""

    @abstractmethod
    def publish(self) -> None:
        """Make all panes durable and visible, as `SinkWriter.write` does."""

    @abstractmethod
    def close(self) -> None:
        """Remove the files."""

    def __enter__(self) -> Self:
        """Use it as a context manager, so that nothing is left behind."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Forget what was not published."""
        self.close()


class SinkWriter(ABC):
    """Take panes for the runtime. Lanes are its threads: one lane is never used by two at once.

    All panes of a step come in one call, of `write` or of `StepPanes.publish`. So a query's panes
    can come again only as they came last: what its last call held is all that a writer has to
    remember, however many panes of others follow, and however long the query is away.
    """

    @abstractmethod
    def write(self, panes: pa.Table, lane: int) -> None:
        """Make these panes durable and visible, all or nothing, and leave out those it has already.

        These are all panes of a step; it may hold many queries. Returns only when they are
        committed. Raises SinkError, with nothing visible, where that failed.
        """

    def stage(self, lane: int) -> StepPanes:
        """Begin with a step whose panes are too large to be held at once."""
        from slackwater.spark.sinks.spilled import SpilledPanes

        return SpilledPanes(lambda panes: self.write(panes, lane))

    def admit(self, schema: pa.Schema) -> None:  # noqa: B027 (most take whatever comes)
        """Raise SinkError if panes with these columns could not be written here."""

    def recall(self, queries: Mapping[str, int | None]) -> None:  # noqa: B027
        """Find out what there is of queries whose last step is not committed: it will come again.

        For each query: the first window, by its start in microseconds, that may come; None: any.
        Called before anything is written. A writer that remembers by itself need not look.
        """

    def close(self) -> None:  # noqa: B027 (most writers hold nothing)
        """Release what the writer holds."""


class Sink(ABC):
    """What a user writes to name an output; frozen, validates itself, opens as a writer."""

    @abstractmethod
    def open(self) -> SinkWriter:
        """Make the writer; `recall` then tells it what may be sent again."""
