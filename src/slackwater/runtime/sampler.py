"""One query that samples: what it has learned, what its next step takes, when it may close."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.app.bounds import ErrorWish
from slackwater.progress.arrivals import hash64_one
from slackwater.progress.grid import WindowGrid
from slackwater.progress.times import END_OF_TIME_MS
from slackwater.progress.watermarks import PartitionId, Watermarks
from slackwater.runtime.sample_facts import SampleFacts, WindowLesson
from slackwater.runtime.samples import STEP
from slackwater.runtime.state import PlannedRange, QueryState, SliceState
from slackwater.sampling.audits import Audits, audited
from slackwater.sampling.delays import DelayCounts, Floats
from slackwater.sampling.monitor import Monitor
from slackwater.sampling.planner import Planner, SamplePlan, substream_ms
from slackwater.sampling.targets import Target
from slackwater.spark.sampled import ARRIVED, DELAY_BIN, DELAY_SUM, SUBSTREAM, TAKEN
from slackwater.spark.sources.base import SourceReader

_RETRY_MS = 100.0  # how long to wait for more where a sample did not suffice
_LONG_AGO_MS = -(1 << 53)
_REMEMBERED = 512  # windows whose promises wait for an audit


@dataclass(frozen=True)
class SampledStep:
    """Hold what a step's sample means for a query, before it is committed."""

    arrived: dict[int, pa.Table]
    watermarks: Watermarks
    early: bool
    monitor: Monitor
    facts: SampleFacts


@dataclass(frozen=True)
class _Compared:
    """Hold what was promised of a window, and what an exact pane says of it."""

    lesson: WindowLesson
    truth: Mapping[str, float]
    counts: bool = True
    teaches: bool = True


class QuerySampler:
    """Sample one query. What it knows is part of the query's state, and journaled with it."""

    def __init__(self, wish: ErrorWish, grid: WindowGrid, number: int) -> None:
        """Plan for this wish; the query's number is the seed of its samples."""
        self.wish = wish
        self._grid = grid
        self._planner = Planner(
            Target(wish.relative, wish.confidence, wish.groups),
            substream_ms(grid.size_ms, grid.slide_ms),
            # Positive, and small enough for a JSON number of any reader.
            hash64_one(number) >> 12,
            wish.method,
        )
        self._known: tuple[dict[str, Any] | None, Monitor] = (None, Monitor())
        self._retry: tuple[int, float] = (0, 0.0)
        self._read: deque[tuple[float, dict[PartitionId, int]]] = deque(maxlen=_REMEMBERED)
        self._promises: dict[int, WindowLesson] = {}
        self._to_audit: deque[tuple[int, dict[PartitionId, int]]] = deque(maxlen=_REMEMBERED)
        self._latest: dict[int, Mapping[str, float]] = {}  # what exact panes have said so far
        self._found: deque[_Compared] = deque()
        self._counted = 0  # of those found, by the step that is under way
        self._lock = threading.Lock()  # exact panes come from another query's steps

    def monitor(self, state: QueryState) -> Monitor:
        """Return what is known, as of the last commit."""
        if self._known[0] is not state.sampling:
            self._known = (state.sampling, Monitor.from_json(state.sampling))
        return self._known[1]

    def closes_at_ms(self, state: QueryState, deadline_ms: int) -> float | None:
        """Return the earliest moment to close a window; None: its source says when."""
        start_ms = deadline_ms - self._grid.size_ms
        at_ms = self._planner.closes_at_ms(self.monitor(state), start_ms, deadline_ms)
        if at_ms is not None and self._retry[0] == deadline_ms:
            return max(float(at_ms), self._retry[1])
        return at_ms

    def clock_set(self) -> None:
        """Take note that the machine's clock was set: pauses end now."""
        self._retry = (0, 0.0)

    def planned(
        self,
        state: QueryState,
        readers: Sequence[SourceReader],
        ranges: Sequence[PlannedRange],
        now_ms: float,
    ) -> tuple[PlannedRange, ...]:
        """Say how the records of some ranges are sampled."""
        as_of_ms = float(math.floor(now_ms))  # moments are whole
        for index, reader in enumerate(readers):
            positions = {piece.partition: piece.until for i, piece in ranges if i == index}
            waiting_ms = reader.oldest_arrival_ms(positions, now_ms)
            if waiting_ms is not None:
                as_of_ms = min(as_of_ms, waiting_ms - 1.0)
        plan = self._plan(state, as_of_ms).to_json()
        return tuple((index, replace(piece, sample=plan)) for index, piece in ranges)

    def _plan(self, state: QueryState, as_of_ms: float) -> SamplePlan:
        watermark_ms = state.watermark_ms
        if watermark_ms is None or watermark_ms >= END_OF_TIME_MS:
            width_ms = self._planner.width_ms
            seed = self._planner.seed
            return SamplePlan(seed, 0, width_ms, (), (), 1.0, _LONG_AGO_MS, as_of_ms, None)
        end_ms = self._grid.next_end(watermark_ms)
        start_ms = end_ms - self._grid.size_ms
        return self._planner.plan(
            self.monitor(state), start_ms, end_ms, closed_ms=start_ms, as_of_ms=as_of_ms
        )

    def advance(
        self,
        state: QueryState,
        step: int,
        plan: Sequence[PlannedRange],
        arrived: Mapping[int, pa.Table],
        watermarks: Watermarks,
    ) -> SampledStep:
        """Look at what a step brought: delays, and whether the sample lets a window close."""
        tagged = {
            start: table.append_column(STEP, pa.array(np.full(table.num_rows, step, np.int64)))
            for start, table in arrived.items()
        }
        with self._lock:
            self._counted = len(self._found)
        monitor = self._audited(self.monitor(state)).delayed(_delays([*arrived.values()]))
        sample = SamplePlan.from_json(plan[0][1].sample)
        ends_ms = sample.closes_ms
        early = ends_ms is not None and not _passed(watermarks.current_ms, ends_ms)
        if early and ends_ms is not None:
            taken = self._taken(state, tagged, sample, ends_ms)
            early = taken is None or self._planner.suffices(sample, taken)
            if early:
                watermarks = watermarks.closed_to(ends_ms)
            else:
                self._retry = (ends_ms, sample.as_of_ms + _RETRY_MS)
        facts = SampleFacts(
            target=self._planner.target,
            caution=monitor.audits.caution,
            bias=monitor.audits.straggler_bias,
            delays=monitor.delays,
            as_of_ms=sample.as_of_ms if early else None,
            width_ms=self._planner.width_ms,
            extrapolates=self.wish.method != "slack",
            trusted=not monitor.audits.doubted,
        )
        return SampledStep(tagged, watermarks, early, monitor, facts)

    def learned(self, monitor: Monitor, lessons: Sequence[WindowLesson]) -> dict[str, Any]:
        """Write what will be known once the windows that a step closed are committed."""
        for lesson in lessons:
            monitor = monitor.closed(
                lesson.substreams, lesson.spreads, lesson.sampled_share, lesson.groups
            )
        target = self._planner.target
        # What was asked for stands beside it for those who read the journal.
        written = monitor.to_json() | {
            "asked": [target.relative, target.confidence, target.group_share]
        }
        self._known = (written, monitor)  # need not be read again
        return written

    def committed(
        self,
        plan: Sequence[PlannedRange],
        windows: Sequence[tuple[int, WindowLesson]],
        *,
        untrusted_ms: int,
    ) -> None:
        """Remember what was promised of windows, given by their ends, and where records lie.

        `untrusted_ms` is how long before its event time a record may arrive.
        """
        as_of_ms = SamplePlan.from_json(plan[0][1].sample).as_of_ms
        until = {(index, piece.partition): piece.until for index, piece in plan}
        with self._lock:
            for _ in range(self._counted):
                self._found.popleft()
            self._counted = 0
            self._promises.update(windows)
            for end_ms in sorted(self._promises)[:-_REMEMBERED]:
                self._settle(end_ms)
        for end_ms, lesson in windows:
            number = end_ms // self._grid.slide_ms
            if lesson.promised and hash64_one(number) * 2.0**-64 < self.wish.audit:
                since_ms = end_ms - self._grid.size_ms - untrusted_ms
                earlier = [at for read_ms, at in self._read if read_ms < since_ms]
                self._to_audit.append((end_ms, earlier[-1] if earlier else {}))
        self._read.append((as_of_ms, until))

    def take_audits(self) -> list[tuple[int, dict[PartitionId, int]]]:
        """Return, once, the windows that closed and are to be audited, and where they begin."""
        taken = []
        while self._to_audit:
            taken.append(self._to_audit.popleft())
        return taken

    def promised(self, end_ms: int) -> WindowLesson | None:
        """Return what was promised of a window, as far as it is remembered."""
        return self._promises.get(end_ms)

    def compare(self, end_ms: int, truth: Mapping[str, float]) -> None:
        """Take note of a window's exact results; they count from the query's next step on."""
        with self._lock:
            promised = self._promises.pop(end_ms, None)
            if promised is not None:
                self._found.append(_Compared(promised, truth))

    def amended(self, end_ms: int, truth: Mapping[str, float] | None) -> None:
        """Take note of an exact pane of a window, which a later one may amend; None: not known.

        What it tells is learned from at once, and counts when no other can follow.
        """
        with self._lock:
            promised = self._promises.get(end_ms)
            if promised is None:
                return
            if truth is None:
                self._settled(end_ms)  # earlier panes are not the truth any more
            elif truth != self._latest.get(end_ms):
                self._latest[end_ms] = truth
                self._found.append(_Compared(promised, truth, counts=False))

    def settle(self, over: Callable[[int], bool]) -> None:
        """Compare the last exact panes of windows that are over, told by their ends."""
        with self._lock:
            for end_ms in [end_ms for end_ms in self._latest if over(end_ms)]:
                self._settle(end_ms)

    def audits(self, state: QueryState) -> Audits:
        """Return what audits have found so far, with what the next step will count."""
        with self._lock:
            return self._audited(self.monitor(state), uncounted=True).audits

    def _settle(self, end_ms: int) -> None:
        promised, truth = self._settled(end_ms)
        if promised is not None and truth is not None:
            self._found.append(_Compared(promised, truth, teaches=False))

    def _settled(self, end_ms: int) -> tuple[WindowLesson | None, Mapping[str, float] | None]:
        return self._promises.pop(end_ms, None), self._latest.pop(end_ms, None)

    def _audited(self, monitor: Monitor, *, uncounted: bool = False) -> Monitor:
        audits, target = monitor.audits, self._planner.target
        found = list(self._found)
        for it in found if uncounted else found[: self._counted]:
            audits = audited(
                audits,
                it.lesson.promised,
                it.truth,
                missing=it.lesson.missing,
                relative=target.relative,
                confidence=target.confidence,
                counts=it.counts,
                teaches=it.teaches,
            )
        return replace(monitor, audits=audits)

    def _taken(
        self,
        state: QueryState,
        arrived: Mapping[int, pa.Table],
        sample: SamplePlan,
        end_ms: int,
    ) -> list[float] | None:
        """Count the sampled records of each sub-stream of a window, from all steps.

        None where part of them lies in files: the rates were those planned, so it will be enough.
        """
        taken = np.zeros(len(sample.wanted))
        for start in self._grid.slices_of(end_ms - self._grid.size_ms):
            held = state.slices.get(start, SliceState())
            if held.blocks:
                return None
            tables = [*held.chunks, *([arrived[start]] if start in arrived else [])]
            starts, counts = _counted(tables, SUBSTREAM, TAKEN)
            places = (starts.astype(np.int64) - sample.origin_ms) // sample.width_ms
            np.add.at(taken, places, counts)
        found: list[float] = taken.tolist()
        return found


def stragglers(table: pa.Table) -> int:
    """Count the records behind rows of a window that has closed."""
    return int(pc.sum(table[ARRIVED]).as_py() or 0)


def _delays(tables: Sequence[pa.Table]) -> DelayCounts:
    bins, arrived, sums_ms = _counted(tables, DELAY_BIN, ARRIVED, DELAY_SUM)
    return DelayCounts.summed(bins.astype(np.int64), arrived, sums_ms)


def _counted(tables: Sequence[pa.Table], *names: str) -> list[Floats]:
    """Return columns of the rows that count records; the others are of the sample."""
    if not tables:
        return [np.zeros(0) for _ in names]
    known = np.concatenate([table[ARRIVED].is_valid().to_numpy() for table in tables])
    columns = (np.concatenate([table[name].to_numpy() for table in tables]) for name in names)
    return [column[known] for column in columns]


def _passed(watermark_ms: int | None, end_ms: int) -> bool:
    return watermark_ms is not None and watermark_ms >= end_ms
