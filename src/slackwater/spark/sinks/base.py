"""What every sink offers: take panes, durably, each (query, window, pane) once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

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


@dataclass(frozen=True, order=True)
class PaneId:
    """Name one pane, for ever."""

    query: str
    window_start_us: int
    pane: int


class SinkWriter(ABC):
    """Take panes for the runtime. Lanes are its threads: one lane is never used by two at once."""

    @abstractmethod
    def write(self, panes: pa.Table, lane: int) -> None:
        """Make these panes durable and visible, all or nothing, and leave out those it has already.

        The rows of one pane stand in one call. A call may hold panes of many queries. Returns only
        when they are committed. Raises SinkError, with nothing visible, where that failed.
        """

    def write_frame(self, pane: PaneId, frame: DataFrame, lane: int) -> int:
        """Write one pane too large for the driver, from a frame with all columns; count rows."""
        panes = frame.toArrow()
        self.write(panes, lane)
        return int(panes.num_rows)

    def close(self) -> None:  # noqa: B027 (most writers hold nothing)
        """Release what the writer holds."""


class Sink(ABC):
    """What a user writes to name an output; frozen, validates itself, opens as a writer."""

    @abstractmethod
    def open(self) -> SinkWriter:
        """Make the writer, and find out which panes it has already."""
