"""One deployed query: its state, its inputs, and what can be asked of both."""

from __future__ import annotations

from dataclasses import dataclass, field

from slackwater.app.windows import KeyedWindows
from slackwater.progress.grid import WindowGrid
from slackwater.progress.times import END_OF_TIME_MS
from slackwater.runtime.forecasting import SweepWatch
from slackwater.runtime.keyed_state import next_end_ms, unended
from slackwater.runtime.state import QueryState
from slackwater.spark.frames import Template
from slackwater.spark.sources.base import SourceReader


@dataclass(eq=False)
class DeployedQuery:
    """Hold one query that the runtime is running."""

    row: int
    state: QueryState
    template: Template
    readers: tuple[SourceReader, ...]
    grid: WindowGrid
    lateness_ms: int
    sweeps: SweepWatch = field(init=False)

    def __post_init__(self) -> None:
        """Begin to watch for the watermarks that close windows."""
        self.sweeps = SweepWatch([reader.sweep_generation for reader in self.readers])

    @property
    def number(self) -> int:
        """Return the query's number."""
        return self.state.number

    def positions(self, index: int) -> dict[int, int]:
        """Return the next offset of each partition of one input."""
        return {p: at for (i, p), at in self.state.positions.items() if i == index}

    def past(self, start_ms: int) -> bool:
        """Tell whether the watermark has passed every window that holds a slice."""
        reached_ms = self.state.watermark_ms
        end_ms = self.grid.last_window_of(start_ms) + self.grid.size_ms
        return reached_ms is not None and end_ms <= reached_ms

    def next_deadline_ms(self, watermark_ms: int) -> int:
        """Return when the next window ends: of the first stage, or of a later one with results."""
        windows = self.template.pipeline.shapes[0].windows
        if isinstance(windows, KeyedWindows):
            return next_end_ms(windows, self.state.keyed.rows, watermark_ms)
        deadline_ms = self.grid.next_end(watermark_ms)
        before = self.grid
        for index, shape in enumerate(self.template.pipeline.shapes[1:]):
            grid = shape.windows.grid(self.number)
            for start_ms in list(self.state.stage(index).sources):
                slice_ms = grid.slice_start(start_ms + before.size_ms - 1)
                for window_ms in () if slice_ms is None else grid.windows_of(slice_ms):
                    end_ms = window_ms + grid.size_ms
                    if watermark_ms < end_ms < deadline_ms:
                        deadline_ms = end_ms
            before = grid
        return deadline_ms

    def ended(self, now_ms: float) -> bool:
        """Tell whether nothing is left to read and every window has closed."""
        return self.state.watermark_ms == END_OF_TIME_MS and self.drained(now_ms)

    def drained(self, now_ms: float) -> bool:
        """Tell whether every input is read to its end, for good."""
        return self.state.pending is None and all(
            reader.finished(self.positions(index), now_ms)
            for index, reader in enumerate(self.readers)
        )

    def ask(self, now_ms: float) -> None:
        """Ask the sources everything that a snapshot needs, to see whether they answer."""
        for index, reader in enumerate(self.readers):
            positions = self.positions(index)
            reader.available_one(now_ms)
            reader.next_arrival_ms(now_ms)
            reader.oldest_arrival_ms(positions, now_ms)
            reader.finished(positions, now_ms)

    def sweep_arrival_ms(self, deadline_ms: int) -> float | None:
        """Tell when the watermark that reaches a deadline arrives; None where a source cannot."""
        arrivals = [reader.sweep_arrival_ms(deadline_ms) for reader in self.readers]
        known = [arrival for arrival in arrivals if arrival is not None]
        return max(known) if len(known) == len(arrivals) else None

    def open_windows(self) -> int:
        """Count the windows that hold something and have not ended."""
        watermark_ms, windows = self.state.watermark_ms, self.template.output.windows
        if isinstance(windows, KeyedWindows):
            return unended(windows, self.state.keyed.rows, self.template.output.by)
        slices = list(self.state.slices)  # at once: steps go on meanwhile
        starts = {start for slice_ms in slices for start in self.grid.windows_of(slice_ms)}
        if watermark_ms is None:
            return len(starts)
        return sum(start_ms + self.grid.size_ms > watermark_ms for start_ms in starts)
