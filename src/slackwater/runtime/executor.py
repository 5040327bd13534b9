"""One step from its plan to its commit: run, advance, close windows, write panes."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.app.watermarks import BoundedLateness, KSlack, Punctuated
from slackwater.app.windows import KeyedWindows
from slackwater.errors import StateError, UnavailableError
from slackwater.lateness.amending import LateStep
from slackwater.progress.closing import Closing, close_windows
from slackwater.progress.epochs import DelayMoments
from slackwater.progress.times import END_OF_TIME_MS
from slackwater.progress.watermarks import PartitionTime
from slackwater.runtime.auditing import exact_truths
from slackwater.runtime.blocks import BlockStore
from slackwater.runtime.chains import ChainedQuery, follow_chain
from slackwater.runtime.clock import Clock
from slackwater.runtime.deployed import DeployedQuery
from slackwater.runtime.emitting import Emission, PaneEmitter, Watch
from slackwater.runtime.keyed import KeyedQuery, split_by_lateness, take_in
from slackwater.runtime.ledger import DeadLetterDuty, Ledger
from slackwater.runtime.panes import ClosingWindow, PaneRows
from slackwater.runtime.placing import Placed, Placer
from slackwater.runtime.planning import PlannedStep
from slackwater.runtime.records import rows_by_slice
from slackwater.runtime.reports import InputReport, PaneReport, StepReport, StepTimes
from slackwater.runtime.sampler import QuerySampler, SampledStep, stragglers
from slackwater.runtime.state import Counters, KeyedChange, PlannedRange, QueryChange, SliceState
from slackwater.runtime.write_turns import WriteTurns, WritingStep
from slackwater.sampling.monitor import Monitor
from slackwater.spark.failures import during, explain
from slackwater.spark.frames import ROWS, Template
from slackwater.spark.hush import hushed
from slackwater.spark.jobtimes import JobTimes
from slackwater.spark.outcome import PartitionStatistics, StepOutcome
from slackwater.spark.pools import StepPools
from slackwater.spark.sinks.base import RETRACTED
from slackwater.spark.steps import Piece, StepRunner

logger = logging.getLogger("slackwater")

_Truths = Mapping[int, Mapping[int, Mapping[str, float] | None]]  # by query, and a window's end


@dataclass(frozen=True)
class _Advance:
    """Hold what a step means for one query, before it is committed."""

    query: DeployedQuery
    change: QueryChange
    windows: tuple[ClosingWindow, ...]
    duty: DeadLetterDuty | None
    newest_arrival_ms: float | None
    monitor: Monitor | None = None  # of a query that samples, before its windows taught it more
    doubted: bool | None = None  # whether audits did doubt that query before the step


@dataclass(frozen=True)
class _Advanced:
    """Hold what a step means for all its queries; `panes` where they are computed already."""

    queries: list[_Advance]
    panes: PaneRows | None = None


class StepExecutor:
    """Carry out planned steps. Used by all slots at once; holds no state of its own."""

    def __init__(
        self,
        runner: StepRunner,
        ledger: Ledger,
        blocks: BlockStore,
        placer: Placer,
        emitter: PaneEmitter,
        turns: WriteTurns,
        pools: StepPools,
        clock: Clock,
        *,
        files_dead_letters: bool,
    ) -> None:
        """Bring together what a step needs."""
        self._runner = runner
        self._ledger = ledger
        self._blocks = blocks
        self._placer = placer
        self._emitter = emitter
        self._turns = turns
        self._pools = pools
        self._clock = clock
        self._files_dead_letters = files_dead_letters

    def execute(self, step: PlannedStep, slot: int) -> StepReport:
        """Run a step and commit it; anything raised leaves no trace, and the step may run again.

        Once the commit is durable nothing raises any more, but for a journal that is unusable.
        """
        with hushed():
            if step.serves_due or not step.amending:
                return self._execute(step, slot)
            with self._pools.late():
                return self._execute(step, slot)

    def _execute(self, step: PlannedStep, slot: int) -> StepReport:
        started_ms, begun_ms = self._clock.now_ms(), self._clock.steady_ms()
        watch = Watch()
        if step.failures or step.waits:  # before panes are written, not only before the commit
            self._ledger.require_pending(step.number, step.plans)
        self._ledger.sync(step.position)
        journal_ms = watch.lap_ms()
        outcome, job = None, JobTimes()
        if pieces := step.pieces:
            with _reachable(pieces), during(lambda: "while records were read and transformed"):
                outcome = self._runner.run(
                    step.template, pieces, slot, parallelism=step.parallelism
                )
            job = outcome.times
        watch.lap_ms()
        with self._blocks.reading():
            advanced = self._advance(step, outcome)
            try:
                writing = WritingStep(
                    slot,
                    step.plans.keys(),
                    lambda: self._ledger.require_wanted(step.number, step.plans),
                    self._turns,
                )
                writing.require_wanted()
                with during(lambda: _closing_text(advanced.queries)):
                    advances, emission = self._emit(step.template, advanced, writing, watch)
                windows = (window for advance in advances for window in advance.windows)
                rows = dict(zip(windows, emission.counts, strict=True))
                changes = [_with_rows_out(advance, rows, emission) for advance in advances]
                # What may fail is done now: a step that is committed must not run again.
                inputs = () if outcome is None else _input_reports(outcome.statistics)
                swept = _sweeps(advances)
                truths = self._truths(step.template, advances, emission)
            except BaseException:
                self._withdraw(advanced.queries)
                raise
        duties = [advance.duty for advance in advances if advance.duty is not None]
        duties = duties if self._files_dead_letters else []
        try:
            position, obsolete = self._ledger.commit(step.number, changes, duties)
        except StateError:
            self._withdraw(advanced.queries)
            raise
        self._ledger.sync(position)
        with _harmless("old window state was not given up"):
            self._placer.discard(obsolete)
        with _harmless("what was promised early was not noted"):
            _remember_promises(step, advances, emission, truths)
        journal_ms += watch.lap_ms()
        committed_ms = self._clock.now_ms()
        return StepReport(
            step=step.number,
            queries=tuple(query.state.name for query in step.queries),
            template=step.template.index,
            events=step.events,
            rows=0 if outcome is None else outcome.rows.num_rows,
            row_bytes=0 if outcome is None else outcome.rows.nbytes,
            inputs=inputs,
            prepared=outcome is not None and outcome.prepared,
            panes=tuple(_pane_reports(advances, rows, swept, committed_ms)),
            times=StepTimes(
                wait=begun_ms - step.decided_ms,
                journal=journal_ms,
                specify=job.specify,
                submit=job.submit,
                run=job.run,
                collect=job.collect,
                merge=emission.merge_ms,
                sink=emission.sink_ms,
            ),
            started_ms=started_ms,
            committed_ms=committed_ms,
            took_ms=self._clock.steady_ms() - begun_ms,
        )

    def _advance(self, step: PlannedStep, outcome: StepOutcome | None) -> _Advanced:
        arrived = outcome.rows if outcome is not None else None
        if not isinstance(step.template.output.windows, KeyedWindows):
            return _Advanced(self._advance_queries(step, outcome, arrived))
        # Only what is too late goes by cells; windows are made of all the rest together.
        fresh, too_late = split_by_lateness(arrived, step.queries)
        advances = self._advance_queries(step, outcome, too_late)
        times = [
            KeyedQuery(a.query, a.change.watermarks.current_ms, a.change.windows_gone_until_ms)
            for a in advances
        ]
        keyed = take_in(step.template, fresh, times)
        each = zip(advances, keyed.changes, keyed.windows, strict=True)
        return _Advanced([_with_keyed(*parts) for parts in each], keyed.panes)

    def _advance_queries(
        self, step: PlannedStep, outcome: StepOutcome | None, arrived: pa.Table | None
    ) -> list[_Advance]:
        rows = rows_by_slice(arrived)
        statistics: dict[tuple[int, int, int], PartitionStatistics] = {}
        for seen in outcome.statistics if outcome is not None else ():
            statistics[seen.query, seen.input, seen.partition] = seen
        advances: list[_Advance] = []
        try:
            for query in step.queries:
                advances.append(
                    self._advance_query(
                        step,
                        query,
                        rows.get(query.number, {}),
                        statistics,
                        timeless=0 if outcome is None else outcome.timeless[query.number],
                    )
                )
        except BaseException:
            self._withdraw(advances)
            raise
        return advances

    def _advance_query(
        self,
        step: PlannedStep,
        query: DeployedQuery,
        arrived: dict[int, pa.Table],
        statistics: Mapping[tuple[int, int, int], PartitionStatistics],
        *,
        timeless: int,
    ) -> _Advance:
        state = query.state
        plan = step.plans[query.number]
        times, arrivals, rejected = [], [], timeless
        slack_ms = _grown_slack(query, plan, statistics)
        for index, piece in plan:
            seen = statistics.get((query.number, index, piece.partition))
            reader = query.readers[index]
            candidate_ms = piece.watermark_ms
            if seen is not None:
                rejected += seen.rejected
                if seen.newest_ms is not None and candidate_ms != END_OF_TIME_MS:
                    if isinstance(reader.watermark, BoundedLateness):
                        candidate_ms = seen.newest_ms - reader.watermark.bound_ms
                    elif isinstance(reader.watermark, KSlack):
                        candidate_ms = seen.newest_ms - slack_ms[index]
                    elif isinstance(reader.watermark, Punctuated):
                        candidate_ms = seen.newest_ms
                if seen.newest_arrival_ms is not None:
                    arrivals.append(float(seen.newest_arrival_ms))
            times.append(PartitionTime((index, piece.partition), candidate_ms, piece.idle))
        watermarks = state.watermarks.advance(times)
        sampled = None
        if query.sampler is not None:
            sampled = query.sampler.advance(state, step.number, plan, arrived, watermarks)
            arrived, watermarks = sampled.arrived, sampled.watermarks
        late_step = self._late_step(step, query, arrived, watermarks.current_ms)
        closing = close_windows(
            query.grid,
            bounds=query.bounds,
            held=state.slices.keys(),
            arrived=arrived.keys(),
            panes=state.panes,
            gone_until_ms=state.gone_until_ms,
            before_ms=state.watermark_ms,
            after_ms=watermarks.current_ms,
            amending=None
            if late_step is None
            else late_step.amending(now=step.amends(query, watermarks.current_ms)),
        )
        too_late = sum(_row_count(step.template, arrived[start]) for start in closing.too_late)
        placed = self._keep(query, arrived, closing)
        change = QueryChange(
            query=query.number,
            positions={(index, piece.partition): piece.until for index, piece in plan},
            watermarks=watermarks,
            fired={firing.window_ms: firing.pane + 1 for firing in closing.firings},
            windows_gone_until_ms=closing.gone_until_ms,
            slices_gone=tuple(start for start in closing.forgotten if start in state.slices),
            added=placed.added,
            blocks=placed.blocks,
            counted=Counters(
                records=sum(piece.events for _, piece in plan),
                rejected=rejected,
                too_late_rows=too_late,
                panes=len(closing.firings),
            ),
            lateness=None if late_step is None else late_step.change(closing),
            slack_ms=slack_ms,
        )
        duty = None
        if query.sampler is not None:
            too_late = 0  # stragglers are counted, and estimated: nothing is lost without a word
        if rejected or too_late:
            gone_ms = state.gone_until_ms if too_late else None
            until = None if gone_ms is None else gone_ms + query.grid.size_ms
            slices = query.over_early(closing.too_late)
            duty = DeadLetterDuty(step.number, query.number, plan, rejected > 0, until, slices)
        windows = _closing_windows(query, arrived, placed, closing, sampled)
        monitor, doubted = None, None
        if sampled is not None and query.sampler is not None:
            monitor, doubted = sampled.monitor, query.sampler.monitor(state).audits.doubted
        newest_ms = max(arrivals, default=None)
        return _Advance(query, change, windows, duty, newest_ms, monitor, doubted)

    def _late_step(
        self,
        step: PlannedStep,
        query: DeployedQuery,
        arrived: Mapping[int, pa.Table],
        after_ms: int | None,
    ) -> LateStep | None:
        """Look at what came late: how much to each window, and how late where that matters."""
        before_ms = query.state.watermark_ms
        if after_ms is None:
            return None
        past, learns = query.past_windows(after_ms), True
        if past is None:
            arrived = query.late_slices(arrived)
            if not arrived:
                return None
            past, learns = query.kept_windows(after_ms), False
        rows = {start: _row_count(step.template, table) for start, table in arrived.items()}
        return LateStep.of(past, rows, before_ms, learns=learns)

    def _keep(self, query: DeployedQuery, arrived: dict[int, pa.Table], closing: Closing) -> Placed:
        """Place the new rows that some window may still need."""
        gone = closing.forgotten | closing.too_late
        return self._placer.place(
            query, {start: table for start, table in arrived.items() if start not in gone}
        )

    def _truths(
        self, template: Template, advances: Sequence[_Advance], emission: Emission
    ) -> _Truths:
        """Compute what exact panes tell of early ones, while their state is there to read."""
        found: dict[int, Mapping[int, Mapping[str, float] | None]] = {}
        for advance in advances:
            query, windows = advance.query, advance.windows
            if query.audits is None or not windows:
                continue
            loaded = partial(self._emitter.loaded, template)
            try:
                known = exact_truths(query.audits, template, windows, emission.results, loaded)
            except Exception as error:  # an audit that fails is none, and no reason to fail
                logger.warning("%s was not audited: %s", query.pane_name, explain(error))
                known = {window.end_ms: None for window in windows}
            found[query.number] = known
        return found

    def _withdraw(self, advances: Sequence[_Advance]) -> None:
        """Remove the files of a step that will be tried again, and write its own."""
        for advance in advances:
            for blocks in advance.change.blocks.values():
                self._placer.discard(blocks)

    def _emit(
        self, template: Template, advanced: _Advanced, step: WritingStep, watch: Watch
    ) -> tuple[list[_Advance], Emission]:
        """Emit what has fired: of a chain of windows, that of the last stage."""
        advances = advanced.queries
        windows = [window for advance in advances for window in advance.windows]
        if isinstance(template.output.windows, KeyedWindows):
            merge_ms = watch.lap_ms()
            counts = [int(window.timing != RETRACTED) for window in windows]
            if advanced.panes is not None:
                self._emitter.write(template, advanced.panes, windows, step)
            return advances, Emission(counts, merge_ms, watch.lap_ms())
        if not template.output.stages:
            return advances, self._emitter.emit(template, windows, step, watch)
        chained, panes = follow_chain(
            template.pipeline.shapes,
            [ChainedQuery(a.query, a.change.watermarks.current_ms, a.windows) for a in advances],
            self._emitter.compute(template, windows) if windows else None,
        )
        advances = [_at_end(*pair) for pair in zip(advances, chained, strict=True)]
        fired = [window for each in chained for window in each.windows]
        merge_ms = watch.lap_ms()
        self._emitter.write(template, panes, fired, step)
        return advances, Emission(panes.counts(len(fired)), merge_ms, watch.lap_ms())


@contextmanager
def _harmless(what: str) -> Iterator[None]:
    """Keep what fails after a commit from making the step look as if it had failed."""
    try:
        yield
    except Exception:
        logger.exception("%s after a step that is committed; its results are right", what)


@contextmanager
def _reachable(pieces: Sequence[Piece]) -> Iterator[None]:
    """Tell a source that is away from a step that fails: the former is only waited for."""
    try:
        yield
    except Exception as error:
        for piece in pieces:
            if (reason := piece.reader.waits_for()) is not None:
                raise UnavailableError(reason) from error
        raise


def _with_keyed(
    advance: _Advance, change: KeyedChange, windows: tuple[ClosingWindow, ...]
) -> _Advance:
    """Add what a step changes in windows that each key has for itself."""
    counted = replace(advance.change.counted, panes=len(windows))
    return replace(
        advance, change=replace(advance.change, counted=counted, keyed=change), windows=windows
    )


def _at_end(advance: _Advance, chained: ChainedQuery) -> _Advance:
    """Look at a query from the end of its chain: the panes that count are those of the last."""
    counted = replace(advance.change.counted, panes=len(chained.windows))
    change = replace(advance.change, counted=counted, stages=chained.changes)
    return replace(advance, change=change, windows=chained.windows)


def _closing_windows(
    query: DeployedQuery,
    arrived: Mapping[int, pa.Table],
    placed: Placed,
    closing: Closing,
    sampled: SampledStep | None,
) -> tuple[ClosingWindow, ...]:
    """Gather the state of each firing window: what was held, and what this step brought."""
    early = sampled is not None and sampled.early
    windows = []
    for firing in closing.firings:
        parts = []
        for start in query.grid.slices_of(firing.window_ms):
            held = query.state.slices.get(start, SliceState())
            if start in arrived and start not in closing.too_late and not firing.held_only:
                # Rows for a function are read from their file, if they have one: Spark does that
                # faster than it takes them from the driver.
                blocks = placed.blocks.get(start, ()) if query.template.keeps_rows else ()
                held = held.plus(chunk=None if blocks else arrived[start], blocks=blocks)
            if held.chunks or held.blocks:
                parts.append(held)
        windows.append(
            ClosingWindow(
                query=query.pane_name,
                number=query.number,
                start_ms=firing.window_ms,
                end_ms=firing.window_ms + query.grid.size_ms,
                pane=firing.pane + query.panes_before,
                timing="early" if early else firing.timing,
                slices=tuple(parts),
                sample=None if sampled is None else sampled.facts,
                first_pane=query.state.first_pane,
            )
        )
    return tuple(windows)


def _closing_text(advances: Sequence[_Advance]) -> str:
    """Say which windows a step was closing."""
    windows = [window for advance in advances for window in advance.windows]
    if not windows:
        return "while no window was due"
    first, more = windows[0], len(windows) - 1
    start, end = (
        datetime.fromtimestamp(moment_ms / 1_000, UTC).replace(tzinfo=None)
        for moment_ms in (first.start_ms, first.end_ms)
    )
    others = f" (and {more:,} more)" if more else ""
    return f"while the window of {first.query} from {start} to {end} UTC was emitted{others}"


def _remember_promises(
    step: PlannedStep, advances: Sequence[_Advance], emission: Emission, truths: _Truths
) -> None:
    """Note what was promised early, to audit it, and compare what exact panes tell."""
    for advance in advances:
        query = advance.query
        if query.sampler is not None:
            ahead_ms = [0 if each.trusted else each.max_ahead_ms for each in query.readers]
            early = [window for window in advance.windows if window.timing == "early"]
            query.sampler.committed(
                step.plans[query.number],
                [(window.end_ms, emission.lessons[window]) for window in early],
                untrusted_ms=max(ahead_ms),
            )
            _tell_doubt(query, query.sampler, advance)
        elif query.audits is not None:
            for end_ms, truth in truths.get(query.number, {}).items():
                query.audits.amended(end_ms, truth)
            query.audits.settle(query.is_over)


def _tell_doubt(query: DeployedQuery, sampler: QuerySampler, advance: _Advance) -> None:
    """Say when audits begin to doubt what a query promises, and when they do no longer."""
    before = False if advance.doubted is None else advance.doubted
    audits = sampler.monitor(query.state).audits
    if audits.doubted and not before:
        logger.warning(
            "%s: bounds held in %d of %d audited results, too few for a confidence of %g: its rows "
            "say met = false until they hold again. Do late events differ from others? Exact panes "
            "(lateness=...) are right either way",
            query.state.name,
            audits.held,
            audits.audited,
            sampler.wish.confidence,
        )
    elif before and not audits.doubted:
        logger.info("%s: its bounds hold again", query.state.name)


def _grown_slack(
    query: DeployedQuery,
    plan: Sequence[PlannedRange],
    statistics: Mapping[tuple[int, int, int], PartitionStatistics],
) -> dict[int, int]:
    """Return how long K-Slack waits from now on, for each input that has it."""
    slack_ms = {
        index: query.state.slack_ms.get(index, 0)
        for index, reader in enumerate(query.readers)
        if isinstance(reader.watermark, KSlack)
    }
    for index, piece in plan:
        seen = statistics.get((query.number, index, piece.partition))
        if seen is not None and index in slack_ms:
            slack_ms[index] = max(slack_ms[index], math.ceil(seen.delay_most_ms))
    return slack_ms


def _row_count(template: Template, table: pa.Table) -> int:
    """Count the rows behind some state."""
    if template.samples:
        return stragglers(table)
    if template.keeps_rows:
        return int(table.num_rows)
    return int(pc.sum(table[ROWS]).as_py() or 0)


def _input_reports(statistics: Sequence[PartitionStatistics]) -> tuple[InputReport, ...]:
    """Add up what a step saw over the partitions of each input."""
    found: dict[tuple[int, int], InputReport] = {}
    for seen in statistics:
        delays = DelayMoments(seen.delays, seen.delay_sum_ms, seen.delay_squares_ms2)
        newest_ms: float | None = seen.newest_arrival_ms
        before = found.get((seen.query, seen.input))
        if before is not None:
            delays = before.delays + delays
            earlier_ms = before.newest_arrival_ms
            if newest_ms is None or (earlier_ms is not None and earlier_ms > newest_ms):
                newest_ms = earlier_ms
        found[seen.query, seen.input] = InputReport(seen.query, seen.input, newest_ms, delays)
    return tuple(found.values())


def _with_rows_out(
    advance: _Advance, rows: Mapping[ClosingWindow, int], emission: Emission
) -> QueryChange:
    out = sum(rows[window] for window in advance.windows)
    counted = replace(advance.change.counted, rows_out=out)
    change = replace(advance.change, counted=counted)
    if advance.monitor is None or advance.query.sampler is None:
        return change
    lessons = [emission.lessons[window] for window in advance.windows]
    return replace(change, sampling=advance.query.sampler.learned(advance.monitor, lessons))


def _sweeps(advances: Sequence[_Advance]) -> dict[ClosingWindow, float | None]:
    """Find when the watermarks arrived that closed windows on time."""
    found: dict[ClosingWindow, float | None] = {}
    for advance in advances:
        for window in advance.windows:
            if window.timing in ("on_time", "early"):
                swept_ms = advance.query.sweep_arrival_ms(window.end_ms)
                found[window] = advance.newest_arrival_ms if swept_ms is None else swept_ms
    return found


def _pane_reports(
    advances: Sequence[_Advance],
    rows: Mapping[ClosingWindow, int],
    swept: Mapping[ClosingWindow, float | None],
    committed_ms: float,
) -> Iterator[PaneReport]:
    for advance in advances:
        for window in advance.windows:
            yield PaneReport(
                query=window.query,
                window_start_ms=window.start_ms,
                window_end_ms=window.end_ms,
                pane=window.shown_pane,
                timing=window.timing,
                rows=rows[window],
                swept_ms=swept.get(window),
                committed_ms=committed_ms,
            )
