"""The runtime: deploy apps, run their queries together, survive what happens."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from pyspark.sql import SparkSession

from slackwater.app.durations import Duration, to_ms
from slackwater.app.nodes import leaves
from slackwater.app.outputs import Output
from slackwater.app.sizes import to_bytes
from slackwater.app.stream import App
from slackwater.errors import DescriptionError, SlackwaterError
from slackwater.lateness.state import LatenessWish
from slackwater.lateness.tier_policies import default_tiering
from slackwater.lateness.tiering import TierPolicy
from slackwater.progress.coverage import Coverage
from slackwater.runtime.auditing import Auditor
from slackwater.runtime.block_files import storage_files
from slackwater.runtime.blocks import BlockStore
from slackwater.runtime.clerk import DeadLetterClerk
from slackwater.runtime.clock import Clock, SystemClock
from slackwater.runtime.deployed import DeployedQuery
from slackwater.runtime.emitting import PaneEmitter
from slackwater.runtime.executor import StepExecutor
from slackwater.runtime.fingerprint import fingerprint, require_same
from slackwater.runtime.fleet import Fleet
from slackwater.runtime.io_lane import IoLane
from slackwater.runtime.ledger import Ledger
from slackwater.runtime.live import LiveInputs
from slackwater.runtime.loop import Loop
from slackwater.runtime.memory_gauge import MemoryGauge
from slackwater.runtime.placing import Limits, Placer
from slackwater.runtime.reports import Observer, QueryReport
from slackwater.runtime.sampler import QuerySampler
from slackwater.runtime.staged import StagedBlocks
from slackwater.runtime.tiers import Tiers
from slackwater.runtime.transfers import Transfers
from slackwater.scheduling.klink import klink
from slackwater.scheduling.snapshot import Policy
from slackwater.spark.frames import Bounds, Template
from slackwater.spark.latebound import parallelism, stored_bytes
from slackwater.spark.pipeline import CheckedPipeline
from slackwater.spark.pools import StepPools
from slackwater.spark.sinks.base import Sink, SinkWriter
from slackwater.spark.sinks.dead_letters import DeadLetterFiles
from slackwater.spark.sources.base import SourceDescription, SourceReader
from slackwater.spark.staged_frames import StagedFrames
from slackwater.spark.steps import StepRunner

logger = logging.getLogger("slackwater")


class Runtime:
    """Run many window queries together on one Spark.

    `journal` is the directory that makes it crash-proof (None: a temporary one, for trying out).
    `slots` is how many steps run at once (default: Spark's parallelism). `budget` is about how long
    a step may take; a larger backlog is worked off in slices. `memory` is how much window state may
    be held in memory. `state="tiered"` keeps to it: state of past windows, and what does not fit,
    is moved to `storage` (a directory or URI; default: beside the journal) as `tiering` says;
    `state="memory"` keeps everything in memory. `dead_letters="count"` only counts
    records that could not be used; "file" also files each with its reason. `profile=True` splits
    the time of each Spark job into submitting, running and collecting, which costs some itself.
    """

    def __init__(
        self,
        spark: SparkSession,
        *,
        policy: Policy | None = None,
        journal: str | os.PathLike[str] | None = None,
        slots: int | None = None,
        budget: Duration = "250 ms",
        memory: str | int = "1 GB",
        state: Literal["tiered", "memory"] = "tiered",
        storage: str | os.PathLike[str] | None = None,
        tiering: TierPolicy | None = None,
        prepare: bool = True,
        durable: bool = True,
        dead_letters: Literal["file", "count"] = "file",
        limits: Limits | None = None,
        profile: bool = False,
        clock: Clock | None = None,
    ) -> None:
        """Open the journal, and find out where its queries stand."""
        if slots is not None and slots < 1:
            raise DescriptionError(f"slots={slots}: at least one step must be able to run")
        if dead_letters not in ("file", "count"):
            raise DescriptionError(f"dead_letters={dead_letters!r}: use 'file' or 'count'")
        if state not in ("tiered", "memory"):
            raise DescriptionError(f"state={state!r}: use 'tiered' or 'memory'")
        budget_bytes, tiered = to_bytes(memory, "memory"), state == "tiered"
        if prepare and spark.conf.get("spark.sql.adaptive.enabled", "true") == "true":
            logger.warning(
                "spark.sql.adaptive.enabled is on, so no plan can be prepared and every step is "
                "planned anew; turn it off in this session, or start it with slackwater.session()"
            )
        self._spark = spark
        self._clock = clock or SystemClock()
        self._slots = slots or parallelism(spark)
        self._temporary = None
        if journal is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="slackwater-")
            journal = self._temporary.name
        self.directory = Path(journal)
        self._ledger = Ledger(self.directory, durable=durable)
        self._blocks = BlockStore(storage_files(self.directory, storage))
        try:
            self._blocks.tidy(self._ledger.block_paths())
        except BaseException:
            self._ledger.close()
            raise
        self._staged = StagedBlocks(self._blocks, StagedFrames(spark))
        self._lane = IoLane()
        self._runner = StepRunner(spark, prepare=prepare, profile=profile)
        self._fleet = Fleet(tiered=tiered, copied_bytes=self._staged.bytes_of)
        self._sinks: dict[object, SinkWriter] = {}
        self._templates: dict[object, Template] = {}
        self._warm: set[Template] = set()
        self.dead_letters = DeadLetterFiles(self.directory / "dead-letters")
        limits = limits or Limits()
        placer = Placer(
            self._blocks,
            self._staged,
            self._lane,
            limits,
            budget_bytes=budget_bytes,
            used_bytes=lambda: self._fleet.state_bytes,
            tiered=tiered,
        )
        executor = StepExecutor(
            self._runner,
            self._ledger,
            self._blocks,
            placer,
            PaneEmitter(spark, self._staged, self._sinks, limits),
            StepPools(spark),
            self._clock,
            files_dead_letters=dead_letters == "file",
        )
        transfers = Transfers(
            self._ledger,
            self._blocks,
            self._staged,
            self._lane,
            function_bytes=limits.function_bytes,
        )
        self._tiers = Tiers(
            transfers,
            self._staged,
            self._lane,
            tiering or default_tiering(),
            budget_bytes,
            lambda: self._fleet.queries,
            self._fleet.reweigh,
        )
        clerk = DeadLetterClerk(self._ledger, self._runner, self.dead_letters, self._find)
        self._live = LiveInputs(self._fleet, self.directory)
        self._loop = Loop(
            fleet=self._fleet,
            ledger=self._ledger,
            executor=executor,
            clerk=clerk if dead_letters == "file" else None,
            auditor=Auditor(self._runner, self._exactly),
            policy=policy or klink(),
            clock=self._clock,
            slots=self._slots,
            budget_ms=to_ms(budget, "budget"),
            live=self._live,
            memory=MemoryGauge(budget_bytes, lambda: stored_bytes(spark)),
            tiers=self._tiers if tiered else None,
        )

    def deploy(
        self, app: App, name: str, *, reset: bool = False, **inputs: SourceDescription
    ) -> list[str]:
        """Start an app's queries over the inputs given, all or none; return the queries' names.

        A query that the journal knows goes on where it was. `reset=True` forgets what it knows.
        """
        _check_inputs(app, name, inputs)
        single = len(app.outputs) == 1
        opened: list[_Opened] = []
        try:
            for output in app.outputs:
                query = name if single else f"{name}/{output.name}"
                for bounds in _bounds_of(output):
                    opened.append(self._open_output(output, query, inputs, bounds, reset=reset))
        except BaseException:
            for each in opened:
                each.close()
            raise
        for each in opened:
            self._start(each, reset=reset)
        return [each.name for each in opened if each.bounds != "exact"]

    def run(
        self,
        *,
        seconds: float | None = None,
        until: Callable[[], bool] | None = None,
    ) -> None:
        """Run until stopped: by time, a condition, Ctrl-C, `stop()`, or the end of all inputs."""
        self.warm()
        self._loop.run(seconds=seconds, until=until)

    def warm(self) -> None:
        """Plan and compile what is deployed, so that first results are not late for it.

        `run` does it too. Pipelines that cannot share steps are left to their own first steps.
        """
        cold = [
            template
            for template in self._templates.values()
            if template.query is None and template not in self._warm
        ]
        with ThreadPoolExecutor(self._slots) as pool:
            list(pool.map(self._warm_one, cold))
        self._warm.update(cold)

    def _warm_one(self, template: Template) -> None:
        """Warm a template; where that fails, its queries' own steps will say so."""
        try:
            self._runner.warm(template)
        except Exception as error:
            logger.info("%s could not be planned ahead: %s", template.output.place, error)

    def stop(self) -> None:
        """Make `run` return after the steps that are running now; any thread may ask."""
        self._loop.stop()

    def observe(self, observer: Observer) -> None:
        """Tell an observer of every committed step from now on."""
        self._loop.observers.append(observer)

    def queries(self) -> list[QueryReport]:
        """Report how each deployed query stands."""
        queued = self._fleet.queued(self._clock.now_ms())
        return [self._report(query, int(queued[query.row])) for query in self._fleet.queries]

    def resume(self, name: str) -> None:
        """Let a quarantined query go on, beginning with the step that failed."""
        query = self._named(name)
        if query.state.quarantined is None:
            return  # it may be in a step at this moment, and must not be in two
        for reader in query.readers:
            reader.resume()
        self._fleet.refresh(query, self._clock.now_ms())
        self._ledger.quarantine(query.number, None)
        self._fleet.freed(query)
        self._loop.wake()

    def refresh(self, app: App) -> None:
        """Plan an app's steps anew, so that static tables it joins are read again."""
        for template in self._templates.values():
            if template.output.app == app.name:
                self._runner.forget(template)
                self._warm.discard(template)

    @property
    def sweep_coverage(self) -> Coverage:
        """Return how often the watermarks that close windows came in when they were expected."""
        return self._fleet.coverage()

    @property
    def cost_error(self) -> float | None:
        """Return by which share steps took more or less time than predicted (the median)."""
        return self._fleet.cost_error()

    @property
    def state_bytes(self) -> int:
        """Return how much window state is held in the driver."""
        return self._fleet.state_bytes

    @property
    def decide_ms(self) -> list[float]:
        """Return the CPU time of the last decisions, in milliseconds, snapshots included."""
        return list(self._loop.decide_ms)

    def close(self) -> None:
        """Finish, and release the journal, the sinks and the sources."""
        self._loop.close()
        self._tiers.close()
        for query in self._fleet.queries:
            for reader in query.readers:
                reader.close()
        for sink in self._sinks.values():
            sink.close()
        self._ledger.close()
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> Self:
        """Use it as a context manager, so that it is closed whatever happens."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def _open_output(
        self,
        output: Output,
        shown_as: str,
        inputs: dict[str, SourceDescription],
        bounds: Bounds,
        *,
        reset: bool,
    ) -> _Opened:
        """Open and check all that an output needs; nothing is written down yet."""
        name = f"{shown_as}#exact" if bounds == "exact" else shown_as
        if any(query.state.name == name for query in self._fleet.queries):
            raise DescriptionError(f"deploy(name={name!r}): a query of that name is running")
        opened = _Opened(output, name, shown_as, bounds, [])
        try:
            for leaf in leaves(output.stream):
                opened.readers.append(inputs[leaf.name].open(self._spark))
            opened.pipeline = self._pipeline(output, opened.readers)
            opened.mark = fingerprint(output, opened.pipeline, opened.readers)
            if bounds == "early":
                opened.mark["sampled"] = "by sub-streams"
            known = self._ledger.content.queries.get(name)
            if known is not None and not reset:
                require_same(name, known.fingerprint, opened.mark)
            if output.sink not in self._sinks:
                self._sinks[output.sink] = _opened_sink(output)
        except BaseException:
            opened.close()
            raise
        return opened

    def _start(self, opened: _Opened, *, reset: bool) -> None:
        """Let a query begin, or go on where the journal says it was."""
        output, readers, bounds = opened.output, opened.readers, opened.bounds
        known = self._ledger.content.queries.get(opened.name)
        if known is not None and reset:
            self._blocks.remove(self._ledger.reset(opened.name))
            known = None
        state = known or self._ledger.introduce(opened.name, opened.mark)
        since = self._ledger.content.planned_since.pop(state.number, [])
        grid = output.windows.grid(state.number)
        sampler = None
        if output.error is not None and bounds == "early":
            sampler = QuerySampler(output.error, grid, state.number)
        query = DeployedQuery(
            row=len(self._fleet.queries),
            state=state,
            template=self._template(output, opened.pipeline, readers, state.number, bounds),
            readers=tuple(readers),
            grid=grid,
            sampler=sampler,
            panes_before=1 if bounds == "exact" else 0,
            shown_as=opened.shown_as,
            audits=self._named(opened.shown_as).sampler if bounds == "exact" else None,
            audited_by_panes=output.lateness.first_ms > 0,
        )
        if known is None and bounds == "exact":
            for mine, early in zip(readers, self._named(opened.shown_as).readers, strict=True):
                mine.restore({}, early.state(), ())  # the same stream, from its beginning
        for index, reader in enumerate(readers):
            saved = state.source_states[index] if index < len(state.source_states) else None
            ranges = [piece for i, piece in since if i == index]
            reader.restore(query.positions(index), saved, ranges)
        # Early panes are not amended: the exact ones follow, from a query of their own.
        wish = LatenessWish() if bounds == "early" else output.lateness
        self._ledger.remember_wish(state.number, wish)
        if known is None:
            self._ledger.remember_sources(state.number, [reader.state() for reader in readers])
        self._fleet.add(query, self._clock.now_ms())
        if state.quarantined is not None:
            logger.warning("%s is still quarantined: %s", opened.name, state.quarantined)

    def _pipeline(self, output: Output, readers: Sequence[SourceReader]) -> CheckedPipeline:
        for template in self._templates.values():
            if template.output is output and _keys(template.readers) == _keys(readers):
                return template.pipeline
        return CheckedPipeline(self._spark, output, readers)

    def _template(
        self,
        output: Output,
        pipeline: CheckedPipeline,
        readers: Sequence[SourceReader],
        number: int,
        bounds: Bounds,
    ) -> Template:
        alone = None if pipeline.fusable else number
        key = (id(output), _keys(readers), alone, bounds)
        if key not in self._templates:
            if alone is not None and not any(k[0] == id(output) for k in self._templates):  # type: ignore[index]
                logger.warning(
                    "%s: its transforms drop _sw_query, so its queries cannot share steps; "
                    "keep that column (select('_sw_query', ...)) to make them faster",
                    output.place,
                )
            self._templates[key] = Template(
                len(self._templates), output, pipeline, tuple(readers), alone, bounds
            )
        return self._templates[key]

    def _exactly(self, query: DeployedQuery) -> Template:
        """Find the template that computes a query that samples from all of its records."""
        it = query.template
        return self._template(it.output, it.pipeline, it.readers, query.number, "exact")

    def _find(self, number: int) -> DeployedQuery | None:
        return self._fleet.find(number)

    def _named(self, name: str) -> DeployedQuery:
        for query in self._fleet.queries:
            if query.state.name == name:
                return query
        running = ", ".join(query.state.name for query in self._fleet.queries) or "none"
        raise SlackwaterError(f"no query {name!r} is deployed (deployed: {running})")

    def _report(self, query: DeployedQuery, queued: int) -> QueryReport:
        state = query.state
        watermark_ms = state.watermark_ms
        live = self._live.tell(query, queued)
        return QueryReport(
            name=state.name,
            window=query.template.output.windows.text,
            watermark_ms=watermark_ms,
            deadline_ms=None if watermark_ms is None else query.next_deadline_ms(watermark_ms),
            queued=queued,
            open_windows=query.open_windows(),
            state_rows=state.rows_held,
            records=state.counters.records,
            rejected=state.counters.rejected,
            too_late_rows=state.counters.too_late_rows,
            panes=state.counters.panes,
            rows_out=state.counters.rows_out,
            quarantined=state.quarantined,
            rebuilt_because=tuple(self._runner.why_rebuilt(query.template)),
            waits_for=self._loop.waiting.reason(query.number) or live.waits_for,
            arrivals_per_s=live.arrivals_per_s,
            lags=live.lags,
            lost=live.lost,
            bounds=None if query.sampler is None else query.sampler.monitor(state).audits,
        )


@dataclass
class _Opened:
    """Hold what was opened for one output of an app that is being deployed."""

    output: Output
    name: str
    shown_as: str  # the name on its panes
    bounds: Bounds
    readers: list[SourceReader]
    pipeline: CheckedPipeline = field(init=False)
    mark: dict[str, Any] = field(init=False)

    def close(self) -> None:
        """Give the inputs up again."""
        for reader in self.readers:
            reader.close()


def _bounds_of(output: Output) -> tuple[Bounds, ...]:
    """List the queries that one output is made of.

    The exact panes that follow early ones come from a query of their own, which reads everything:
    so it has all that a query without the wish has, and the same results.
    """
    if output.error is None:
        return (None,)
    return ("early", "exact") if output.lateness.first_ms else ("early",)


def _keys(readers: Sequence[SourceReader]) -> tuple[Any, ...]:
    return tuple(
        (type(reader), reader.fusion_key, reader.watermark, reader.max_ahead_ms)
        for reader in readers
    )


def _opened_sink(output: Output) -> SinkWriter:
    if not isinstance(output.sink, Sink):
        raise DescriptionError(
            f"{output.place}: to({output.sink!r}) is not a sink; "
            "use parquet(path), kafka_sink(servers, topic), console(), memory() or "
            "callback(function)"
        )
    return output.sink.open()


def _check_inputs(app: App, name: str, inputs: dict[str, SourceDescription]) -> None:
    place = f"deploy({app.name!r}, {name!r})"
    if not name:
        raise DescriptionError(f"{place}: give the deployment a name")
    if not app.outputs:
        raise DescriptionError(f"{place}: the app has no output; end a stream with .to(sink)")
    missing = [wanted for wanted in app.inputs if wanted not in inputs]
    if missing:
        raise DescriptionError(f"{place}: give its input, {missing[0]}=...")
    for given, source in inputs.items():
        if given not in app.inputs:
            wanted = ", ".join(app.inputs)
            raise DescriptionError(f"{place}: {given}=... is not an input of the app ({wanted})")
        if not isinstance(source, SourceDescription):
            raise DescriptionError(
                f"{place}: {given}={source!r} is not a source; use generator(...), files(...), ..."
            )
