"""One deployed query: its state, its inputs, and what can be asked of both."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from slackwater.app.windows import KeyedWindows
from slackwater.lateness.amending import PastWindows
from slackwater.lateness.state import LatenessWish
from slackwater.progress.bounds import WindowBounds
from slackwater.progress.grid import WindowGrid
from slackwater.progress.times import END_OF_TIME_MS
from slackwater.runtime.forecasting import SweepWatch
from slackwater.runtime.keyed_state import next_end_ms, unended
from slackwater.runtime.sampler import QuerySampler
from slackwater.runtime.state import QueryState
from slackwater.spark.frames import Template
from slackwater.spark.sources.base import SourceReader

Rows = TypeVar("Rows")

_NO_WISH = LatenessWish()
_LOOK_AGAIN_MS = 100  # how soon a window that is about to be due is looked at once more


@dataclass(eq=False)
class DeployedQuery:
    """Hold one query that the runtime is running."""

    row: int
    state: QueryState
    template: Template
    readers: tuple[SourceReader, ...]
    grid: WindowGrid
    sampler: QuerySampler | None = None  # of a query that samples
    panes_before: int = 0  # of each window, that another query of the same output makes
    shown_as: str | None = None  # the name on panes, where it is not the query's own
    audits: QuerySampler | None = None  # whose early panes this query's exact ones confirm
    audited_by_panes: bool = False
    sweeps: SweepWatch = field(init=False)

    def __post_init__(self) -> None:
        """Begin to watch for the watermarks that close windows."""
        self.sweeps = SweepWatch([reader.sweep_generation for reader in self.readers])

    @property
    def number(self) -> int:
        """Return the query's number."""
        return self.state.number

    @property
    def wish(self) -> LatenessWish:
        """Return what is wished of late events."""
        return self.state.wish or _NO_WISH

    @property
    def pane_name(self) -> str:
        """Return the name that its panes carry."""
        return self.shown_as or self.state.name

    @property
    def bounds(self) -> WindowBounds:
        """Return how late events of each window may be."""
        return WindowBounds(self.wish.first_ms, self.state.lateness.bounds)

    def past_windows(self, watermark_ms: int) -> PastWindows | None:
        """Look at the past windows at a watermark; None where nothing is to be known of them."""
        if not self.wish.learns and not self.state.lateness.bounds:
            return None
        return self.kept_windows(watermark_ms)

    def kept_windows(self, watermark_ms: int) -> PastWindows:
        """Look at the past windows at a watermark."""
        state, gone_until_ms = self.state.lateness, self.state.gone_until_ms
        return PastWindows(self.wish, self.grid, self.bounds, state, watermark_ms, gone_until_ms)

    def late_slices(self, arrived: Mapping[int, Rows]) -> dict[int, Rows]:
        """Return, of what a step brought by slices, that which comes to windows that have ended.

        Nothing where ended windows are not kept, or each key has windows of its own.
        """
        before_ms = self.state.watermark_ms
        if before_ms is None or not self.wish.first_ms:
            return {}
        if isinstance(self.template.output.windows, KeyedWindows):
            return {}
        ends_ms = before_ms - self.grid.size_ms
        return {
            start: rows
            for start, rows in arrived.items()
            if start < before_ms and any(w <= ends_ms for w in self.grid.windows_of(start))
        }

    def is_over(self, end_ms: int) -> bool:
        """Tell whether the window that ends here has had its last pane."""
        start_ms, gone_until_ms = end_ms - self.grid.size_ms, self.state.gone_until_ms
        gone = gone_until_ms is not None and start_ms <= gone_until_ms
        return gone and start_ms not in self.state.lateness.waiting

    def over_early(self, slices: Collection[int]) -> tuple[int, ...]:
        """Name the slices, of some whose windows are all over, that have windows before them."""
        until_ms = self.state.gone_until_ms
        return tuple(
            sorted(s for s in slices if until_ms is None or self.grid.last_window_of(s) > until_ms)
        )

    def amendments_at_ms(self, now_ms: float) -> dict[int, float]:
        """Foretell when past windows are executed once more, by the clock and as far as known.

        These are the windows with late events that no pane shows yet, and the one that ended last.
        """
        watermark_ms = self.state.watermark_ms
        if self.wish.trigger is None or watermark_ms is None or watermark_ms >= END_OF_TIME_MS:
            return {}
        past = self.past_windows(watermark_ms)
        if past is None:
            return {}
        last_ms = self.grid.next_end(watermark_ms) - self.grid.slide_ms - self.grid.size_ms
        shown = {last_ms} if self.state.panes.get(last_ms) else set()
        found = {}
        for window_ms in sorted(self.state.lateness.waiting | shown):
            due_ms = past.next_execution_ms(window_ms)
            if due_ms is not None:
                found[window_ms] = self._reached_at_ms(due_ms, watermark_ms, now_ms)
        return found

    def _reached_at_ms(self, due_ms: int, watermark_ms: int, now_ms: float) -> float:
        """Tell when the watermark will reach a moment: as the source says, or as time goes by."""
        if due_ms <= watermark_ms:
            return now_ms
        arrival_ms = self.sweep_arrival_ms(due_ms)
        if arrival_ms is None:
            return now_ms + max(due_ms - watermark_ms, _LOOK_AGAIN_MS)
        return arrival_ms

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

    def closes_early_at_ms(self, deadline_ms: int) -> float | None:
        """Tell when a sample may close the window before its source does; None: not at all."""
        return None if self.sampler is None else self.sampler.closes_at_ms(self.state, deadline_ms)
