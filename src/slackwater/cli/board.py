"""What the demo shows while it runs: a live table, or a line now and then without a terminal."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from slackwater.cli.consoles import show_latency, show_time
from slackwater.progress.times import END_OF_TIME_MS
from slackwater.runtime.reports import PaneReport, QueryReport, StepReport
from slackwater.runtime.runtime import Runtime

RECENT_MS = 10_000  # the live figures are about the last ten seconds
MOST_RECENT_PANES = 5_000
MOST_RECENT_STEPS = 500
REFRESHES_PER_SECOND = 4
LINE_EVERY_S = 5.0
T = TypeVar("T")

_AROUND_ROWS = 7  # lines around the rows of the table


class StepNotes:
    """Take note of every committed step, quickly; read by another thread at any time."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.steps = 0
        self.served = 0  # queries, summed over steps
        self.events = 0
        self.panes: list[PaneReport] = []
        self.last_pane: dict[str, PaneReport] = {}
        self._recent: deque[tuple[float, int]] = deque(maxlen=MOST_RECENT_STEPS)

    def step_committed(self, report: StepReport) -> None:
        """Take note of a committed step."""
        self.steps += 1
        self.served += len(report.queries)
        self.events += report.events
        self._recent.append((report.committed_ms, report.events))
        for pane in report.panes:
            if pane.timing == "on_time":
                self.panes.append(pane)
                self.last_pane[pane.query] = pane

    @property
    def queries_per_step(self) -> float:
        """Return how many queries a step serves on average."""
        return self.served / self.steps if self.steps else 0.0

    @property
    def events_per_s(self) -> float:
        """Return the rate of the recent steps, from the end of the first to that of the last."""
        recent = _within(list(self._recent), lambda step: step[0])
        if len(recent) < 2 or recent[-1][0] <= recent[0][0]:
            return 0.0
        return sum(n for _, n in recent[1:]) / (recent[-1][0] - recent[0][0]) * 1_000

    def work(self) -> str:
        """Say how much is done."""
        return (
            f"{self.steps:,} steps  {self.queries_per_step:.1f} queries/step  "
            f"{self.events_per_s:,.0f} events/s"
        )

    def timeliness(self) -> str:
        """Say how late the recent results were."""
        recent = _within(self.panes[-MOST_RECENT_PANES:], lambda pane: pane.committed_ms)
        if not recent:
            return "no result yet"
        latencies = [pane.latency_ms for pane in recent]
        mean, p99 = float(np.mean(latencies)), float(np.percentile(latencies, 99))
        said = f"latency {show_latency(mean)} mean, {show_latency(p99)} p99"
        known = [pane.propagation_ms for pane in recent if pane.propagation_ms is not None]
        if known:
            said += f"  propagation {show_latency(float(np.mean(known)))} mean"
        return said


def _within(items: Sequence[T], moment_ms: Callable[[T], float]) -> list[T]:
    """Keep what came at most `RECENT_MS` before the last of them."""
    since_ms = moment_ms(items[-1]) - RECENT_MS if items else 0.0
    return [item for item in items if moment_ms(item) >= since_ms]


@contextmanager
def board(console: Console, rt: Runtime, notes: StepNotes, seconds: float) -> Iterator[None]:
    """Show how a runtime goes while the block runs it."""
    started = time.monotonic()
    if console.is_terminal:

        def now() -> RenderableType:
            elapsed = min(time.monotonic() - started, seconds)
            head = f"{elapsed:3.0f} of {seconds:.0f} s"
            now_ms = time.time() * 1_000
            return render(rt.queries(), notes, now_ms=now_ms, height=console.height, head=head)

        live = Live(
            get_renderable=now,
            console=console,
            refresh_per_second=REFRESHES_PER_SECOND,
            transient=True,
        )
        with live:
            yield
        return
    done = threading.Event()
    lines = threading.Thread(target=_print_lines, args=(console, notes, started, done), daemon=True)
    lines.start()
    try:
        yield
    finally:
        done.set()
        lines.join()


def _print_lines(console: Console, notes: StepNotes, started: float, done: threading.Event) -> None:
    while not done.wait(LINE_EVERY_S):
        elapsed = time.monotonic() - started
        line = f"{elapsed:4.0f} s  {notes.work()}  {notes.timeliness()}"
        console.print(line, soft_wrap=True)


def render(
    queries: Sequence[QueryReport], notes: StepNotes, *, now_ms: float, height: int, head: str
) -> RenderableType:
    """Set out how the queries stand, as many as fit."""
    room = max(3, height - _AROUND_ROWS)
    first = Text.assemble((f"{head}  ", "bold"), notes.work())
    parts: list[RenderableType] = [
        first,
        Text(notes.timeliness()),
        "",
        _rows(queries[:room], notes, now_ms),
    ]
    if len(queries) > room:
        parts.append(Text(f"... and {len(queries) - room:,} more queries", style="dim"))
    return Group(*parts)


def _rows(queries: Sequence[QueryReport], notes: StepNotes, now_ms: float) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("query", no_wrap=True)
    table.add_column("window", no_wrap=True)
    table.add_column("watermark", no_wrap=True)
    for name in ("wait", "latency", "panes", "rows"):
        table.add_column(name, justify="right", no_wrap=True)
    for query in queries:
        last = notes.last_pane.get(query.name)
        table.add_row(
            escape(query.name),
            query.window,
            _watermark(query.watermark_ms),
            _wait(query, now_ms),
            "-" if last is None else show_latency(last.latency_ms),
            f"{query.panes:,}",
            f"{query.rows_out:,}",
            style="red" if query.quarantined is not None else "",
        )
    return table


def _watermark(watermark_ms: int | None) -> str:
    if watermark_ms is None:
        return "-"
    return "ended" if watermark_ms >= END_OF_TIME_MS else show_time(watermark_ms)


def _wait(query: QueryReport, now_ms: float) -> Text:
    """Say how long until the query's window ends, or that its closing watermark is on its way."""
    if query.quarantined is not None:
        return Text("stopped")
    if query.waits_for is not None:
        return Text("out of reach", style="yellow")
    if query.deadline_ms is None or query.deadline_ms >= END_OF_TIME_MS:
        return Text("-")
    wait_ms = query.deadline_ms - now_ms
    if wait_ms <= 0:
        return Text("closing", style="yellow")
    return Text(f"{wait_ms / 1_000:.1f} s", style="green" if wait_ms < 500 else "")
