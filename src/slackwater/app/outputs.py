"""Outputs: one windowed query from its inputs to its sink, stage by stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from slackwater.app.aggregates import Aggregate
from slackwater.app.bounds import ErrorWish
from slackwater.app.nodes import FrameFunction, LegsNode, Node, SidesNode
from slackwater.app.windows import Windows
from slackwater.lateness.state import LatenessWish
from slackwater.progress.times import END_OF_TIME_MS, START_OF_TIME_MS

# A function from a pyarrow.Table of finished rows to one pyarrow.Array of as many values.
ColumnFunction = Callable[[Any], Any]


@dataclass(frozen=True, eq=False)
class Stage:
    """Describe a further stage: windows over the rows that the stage before it emits."""

    windows: Windows
    by: tuple[str, ...]
    aggregates: Mapping[str, Aggregate]
    derived: Mapping[str, ColumnFunction] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Output:
    """Describe one windowed query from its inputs to its sink."""

    app: str
    name: str
    stream: Node
    windows: Windows
    by: tuple[str, ...]
    aggregates: dict[str, Aggregate]
    function: FrameFunction | None
    sink: Any
    lateness: LatenessWish = field(default_factory=LatenessWish)
    derived: Mapping[str, ColumnFunction] = field(default_factory=dict)
    stages: tuple[Stage, ...] = ()
    error: ErrorWish | None = None

    @property
    def place(self) -> str:
        """Say where this output was described, for error messages."""
        return f"app {self.app!r}, output {self.name!r}"

    @property
    def join(self) -> LegsNode | None:
        """Return the join of results that this output is, if it is one."""
        return self.stream if isinstance(self.stream, LegsNode) else None

    @property
    def row_join(self) -> SidesNode | None:
        """Return the join of rows that this output begins with, if it does."""
        return self.stream if isinstance(self.stream, SidesNode) else None

    @property
    def bounded(self) -> tuple[str, ...]:
        """Name the numbers that have bounds, where an error was wished for."""
        if self.error is None:
            return ()
        return tuple(self.aggregates if self.function is None else self.error.functions)

    @property
    def times_ms(self) -> tuple[int, int]:
        """Return the first and last event time whose windows, of all stages, lie within time.

        A window that reaches beyond the end of time would never close, and its rows would be gone
        without a word.
        """
        each = [self.windows, *(stage.windows for stage in self.stages)]
        reach_ms = 1 + sum(windows.reach_ms for windows in each)
        return START_OF_TIME_MS + reach_ms, END_OF_TIME_MS - reach_ms

    @property
    def keeps_rows(self) -> bool:
        """Tell whether a window's state is its rows rather than partial aggregates."""
        return self.function is not None or self.row_join is not None
