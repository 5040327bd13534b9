"""What the runtime tells about itself: frozen reports, for tables, benchmarks and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from slackwater.progress.epochs import DelayMoments
from slackwater.sampling.audits import Audits


@dataclass(frozen=True)
class PaneReport:
    """Tell of one emitted pane. Latencies follow from the three moments.

    `swept_ms` is when the watermark that closed the window arrived (None: the source cannot tell).
    """

    query: str
    window_start_ms: int
    window_end_ms: int
    pane: int
    timing: str
    rows: int
    swept_ms: float | None
    committed_ms: float

    @property
    def latency_ms(self) -> float:
        """Return how long after the window's end its result was committed."""
        return self.committed_ms - self.window_end_ms

    @property
    def propagation_ms(self) -> float | None:
        """Return how long after its closing watermark the result was committed."""
        return None if self.swept_ms is None else self.committed_ms - self.swept_ms


@dataclass(frozen=True)
class StepTimes:
    """Tell where a step's time went, in milliseconds.

    `wait` is from the decision until the slot took it up, `merge` all work on state and windows in
    the driver. Unless the runtime profiles, `run` includes submitting the job and collecting its
    result.
    """

    wait: float = 0.0
    journal: float = 0.0
    specify: float = 0.0
    submit: float = 0.0
    run: float = 0.0
    collect: float = 0.0
    merge: float = 0.0
    sink: float = 0.0


@dataclass(frozen=True)
class InputReport:
    """Tell what a step saw of one input of one query, the latter by its number."""

    query: int
    input: int
    newest_arrival_ms: float | None
    delays: DelayMoments


@dataclass(frozen=True)
class StepReport:
    """Tell of one committed step.

    `rows` is how many rows its job gave back, the partials of all groups and slices, and
    `row_bytes` how much memory they take.
    """

    step: int
    queries: tuple[str, ...]
    template: int
    events: int
    prepared: bool
    panes: tuple[PaneReport, ...]
    times: StepTimes
    started_ms: float
    committed_ms: float
    rows: int = 0
    row_bytes: int = 0
    inputs: tuple[InputReport, ...] = ()
    took_ms: float = 0.0  # by a clock that nobody sets, unlike the moments


@dataclass(frozen=True)
class QueryReport:
    """Tell how one query stands."""

    name: str
    window: str
    watermark_ms: int | None
    deadline_ms: int | None
    queued: int
    open_windows: int
    state_rows: int
    records: int
    rejected: int
    too_late_rows: int
    panes: int
    rows_out: int
    quarantined: str | None
    rebuilt_because: tuple[str, ...] = ()
    waits_for: str | None = None  # what it cannot reach at the moment
    arrivals_per_s: float | None = None  # over the last seconds; None: not known yet
    lags: Mapping[str, int] = field(default_factory=dict)  # by topic/partition
    lost: int = 0  # records gone from the source before they were read
    bounds: Audits | None = None  # of a query with an error wish: whether its bounds hold


class Observer(Protocol):
    """Be told of everything the runtime commits. Called from the runtime's threads; be quick."""

    def step_committed(self, report: StepReport) -> None:
        """Take note of a committed step."""
        ...
