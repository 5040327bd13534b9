"""What a journal says about its queries, read beside the process that may be writing it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from slackwater.app.windows import KeyedWindows
from slackwater.cli.kept_windows import KeptWindow, kept_windows, lateness_text
from slackwater.errors import JournalError
from slackwater.progress.grid import WindowGrid
from slackwater.runtime.fingerprint import windows_of
from slackwater.runtime.journal import Journal
from slackwater.runtime.keyed_state import held_windows
from slackwater.runtime.ledger import LedgerContent, read_content
from slackwater.runtime.live import LiveInput, read_live
from slackwater.runtime.state import Counters, QueryState, SliceState
from slackwater.sampling.monitor import Monitor
from slackwater.spark.sinks.dead_letters import DeadLetterFiles


@dataclass(frozen=True)
class Offset:
    """Tell which record of a partition is read next."""

    input: int
    partition: int
    next: int


@dataclass(frozen=True)
class OpenWindow:
    """Tell of a window that still holds state: to be closed, or to be amended by late events."""

    start_ms: int
    end_ms: int
    panes: int
    state_rows: int


@dataclass(frozen=True)
class PendingRange:
    """Tell of records that a step was to read when the journal was last written."""

    input: int
    partition: int
    first: int
    until: int
    records: int


@dataclass(frozen=True)
class BoundsStatus:
    """Tell how a query with an error wish does: what was asked for, and what audits measured.

    `groups` is the share of rows from which on groups have the bound (None: the total has it), and
    `own_rates` how many groups are sampled at rates of their own (0: all at the same);
    `sampled_share` is that of recent windows, None while all of them are taken whole.
    """

    error: float
    confidence: float
    groups: float | None
    own_rates: int
    sampled_share: float | None
    audited: int
    held: int
    coverage: float | None
    caution: float
    doubted: bool = False  # bounds held too seldom: no row says that it keeps the error


@dataclass(frozen=True)
class QueryStatus:
    """Tell how one query stands. The watermark is None before the first, `ended` after the last."""

    name: str
    number: int
    windows: str
    size_ms: int
    slide_ms: int
    offset_ms: int
    watermark_ms: int | None
    offsets: tuple[Offset, ...]
    open_windows: tuple[OpenWindow, ...]
    state_rows: int
    pending: tuple[PendingRange, ...]
    counters: Counters
    quarantined: str | None
    lateness: str | None = None  # what was wished of late events, and learned
    kept_windows: tuple[KeptWindow, ...] = ()  # that have ended
    bounds: BoundsStatus | None = None  # of a query with an error wish


@dataclass(frozen=True)
class FiledLetters:
    """Count the dead letters of one query and reason."""

    query: str
    reason: str
    count: int


@dataclass(frozen=True)
class JournalReport:
    """Tell everything that a journal's directory says."""

    directory: str
    process: int | None  # that uses it now
    steps: int
    queries: tuple[QueryStatus, ...]
    dead_letters: tuple[FiledLetters, ...]
    steps_with_letters_to_file: int
    inputs: tuple[LiveInput, ...] = ()  # of a process that uses it now


def read_journal(directory: Path) -> JournalReport:
    """Read a runtime's directory (or the journal in it), without a lock or any change."""
    if (directory / "lock").is_file() and not (directory / "journal").is_dir():
        directory = directory.resolve().parent
    records = directory / "journal"
    if not records.is_dir():
        raise JournalError(
            f"{directory} holds no journal: name the directory given to Runtime(journal=...)"
        )
    content = read_content(Journal.read_only(records))
    process = _process_using(records / "lock")
    return JournalReport(
        directory=str(directory),
        process=process,
        steps=content.next_step,
        queries=tuple(_query_status(state) for state in content.queries.values()),
        dead_letters=_filed(directory / "dead-letters"),
        steps_with_letters_to_file=_steps_to_file(content),
        inputs=read_live(directory) if process is not None else (),
    )


def _query_status(state: QueryState) -> QueryStatus:
    windows = windows_of(state.fingerprint)
    grid = windows.grid(state.number)
    return QueryStatus(
        name=state.name,
        number=state.number,
        windows=windows.text,
        size_ms=grid.size_ms,
        slide_ms=grid.slide_ms,
        offset_ms=grid.offset_ms,
        watermark_ms=state.watermark_ms,
        offsets=tuple(Offset(i, p, at) for (i, p), at in sorted(state.positions.items())),
        open_windows=tuple(
            _keyed_windows(state, windows)
            if isinstance(windows, KeyedWindows)
            else _open_windows(state, grid)
        ),
        state_rows=sum(map(_state_rows, state.slices.values())) + state.keyed.rows_held,
        pending=tuple(
            PendingRange(index, piece.partition, piece.first, piece.until, piece.events)
            for index, piece in state.pending or ()
        ),
        counters=state.counters,
        quarantined=state.quarantined,
        lateness=lateness_text(state),
        kept_windows=() if isinstance(windows, KeyedWindows) else tuple(kept_windows(state, grid)),
        bounds=_bounds_status(state),
    )


def _bounds_status(state: QueryState) -> BoundsStatus | None:
    if state.sampling is None or "asked" not in state.sampling:
        return None
    error, confidence, groups = state.sampling["asked"]
    monitor = Monitor.from_json(state.sampling)
    audits = monitor.audits
    return BoundsStatus(
        error=error,
        confidence=confidence,
        groups=groups,
        own_rates=len(monitor.groups),
        sampled_share=monitor.sampled_share,
        audited=audits.audited,
        held=audits.held,
        coverage=audits.coverage,
        caution=audits.caution,
        doubted=audits.doubted,
    )


def _open_windows(state: QueryState, grid: WindowGrid) -> Iterator[OpenWindow]:
    """List the windows that some slice belongs to, but for those that are over."""
    for start_ms in sorted({w for slice_ms in state.slices for w in grid.windows_of(slice_ms)}):
        held = [state.slices[s] for s in grid.slices_of(start_ms) if s in state.slices]
        panes = state.panes.get(start_ms, 0)
        end_ms = start_ms + grid.size_ms
        if panes or state.watermark_ms is None or end_ms > state.watermark_ms:
            yield OpenWindow(start_ms, end_ms, panes, sum(map(_state_rows, held)))


def _keyed_windows(state: QueryState, windows: KeyedWindows) -> Iterator[OpenWindow]:
    keys = list(state.fingerprint["keys"])
    for start_ms, end_ms, panes, rows in held_windows(windows, state.keyed.rows, keys):
        yield OpenWindow(start_ms, end_ms, panes, rows)


def _state_rows(held: SliceState) -> int:
    return held.rows_held + sum(block.rows for block in held.blocks)


def _steps_to_file(content: LedgerContent) -> int:
    return len({duty.step for duty in content.duties.values()})


def _filed(directory: Path) -> tuple[FiledLetters, ...]:
    if not directory.is_dir():
        return ()
    counts = sorted(DeadLetterFiles(directory).counts().items())
    return tuple(FiledLetters(query, reason, count) for (query, reason), count in counts)


def _process_using(lock: Path) -> int | None:
    """Find the process that holds the lock: it wrote its number there and has the file open."""
    try:
        number = int(lock.read_text())
        process = psutil.Process(number)
    except (OSError, ValueError, psutil.NoSuchProcess):
        return None
    try:
        opened = any(Path(file.path) == lock.resolve() for file in process.open_files())
    except psutil.NoSuchProcess:
        return None
    except psutil.AccessDenied:
        return number  # of another user: all that can be said is that it runs
    return number if opened else None
