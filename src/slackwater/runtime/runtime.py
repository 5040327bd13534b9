"""The runtime: deploy apps, run their queries together, survive what happens."""

from __future__ import annotations

import logging
import os
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from pyspark.sql import SparkSession

from slackwater.app.durations import Duration
from slackwater.app.stream import App
from slackwater.disk import PRIVATE, SHARED
from slackwater.errors import DescriptionError, SlackwaterError
from slackwater.lateness.tiering import TierPolicy
from slackwater.progress.coverage import Coverage
from slackwater.runtime.auditing import Auditor
from slackwater.runtime.block_files import storage_files
from slackwater.runtime.blocks import BlockStore
from slackwater.runtime.clerk import DeadLetterClerk
from slackwater.runtime.clock import Clock
from slackwater.runtime.deployed import DeployedQuery
from slackwater.runtime.deploying import Deployer
from slackwater.runtime.emitting import PaneEmitter
from slackwater.runtime.executor import StepExecutor
from slackwater.runtime.fleet import Fleet
from slackwater.runtime.inbox import Inbox
from slackwater.runtime.io_lane import IoLane
from slackwater.runtime.ledger import Ledger
from slackwater.runtime.live import LiveInputs
from slackwater.runtime.loop import Loop
from slackwater.runtime.memory_gauge import MemoryGauge
from slackwater.runtime.placing import Limits, Placer
from slackwater.runtime.reports import Observer, QueryReport
from slackwater.runtime.settings import DeadLetterKind, RuntimeSettings, StateKind
from slackwater.runtime.slots import Worker
from slackwater.runtime.staged import StagedBlocks
from slackwater.runtime.tiers import Tiers
from slackwater.runtime.transfers import Transfers
from slackwater.runtime.write_turns import WriteTurns
from slackwater.scheduling.snapshot import Policy
from slackwater.spark.failures import explain
from slackwater.spark.frames import Template
from slackwater.spark.hush import hushed
from slackwater.spark.jobs import StepJobs
from slackwater.spark.latebound import parallelism, stored_bytes
from slackwater.spark.pools import StepPools
from slackwater.spark.sinks.dead_letters import DeadLetterFiles
from slackwater.spark.sources.base import SourceDescription
from slackwater.spark.staged_frames import StagedFrames
from slackwater.spark.steps import StepRunner

logger = logging.getLogger("slackwater")


class Runtime:
    """Run many window queries together on one Spark.

    `policy` says which run next: `sw.klink()` unless given, or the name of one ("deadline").
    `journal` is the directory that makes it crash-proof (None: a temporary one, for trying out).
    `slots` is how many steps run at once (default: Spark's parallelism). `budget` is about how long
    a step may take; a larger backlog is worked off in slices. `memory` is how much window state may
    be held in memory. `state="tiered"` keeps to it: state of past windows, and what does not fit,
    is moved to `storage` (a directory or URI; default: beside the journal) as `tiering` says;
    `state="memory"` keeps everything in memory. `dead_letters="count"` only counts
    records that could not be used; "file" also files each with its reason. What is in the journal's
    directory can be read by this user alone; with `shared=True`, by those whom the umask lets.
    `profile=True` splits
    the time of each Spark job into submitting, running and collecting, which costs some itself.
    `step_limit` is how long a step may take before it is cancelled and its query, if that happens
    again, quarantined; `stop_limit` is how long `stop` and `close` wait for what is running.
    """

    def __init__(
        self,
        spark: SparkSession,
        *,
        policy: Policy | str | None = None,
        journal: str | os.PathLike[str] | None = None,
        slots: int | None = None,
        budget: Duration = "250 ms",
        memory: str | int = "1 GB",
        state: StateKind = "tiered",
        storage: str | os.PathLike[str] | None = None,
        tiering: TierPolicy | None = None,
        prepare: bool = True,
        durable: bool = True,
        shared: bool = False,
        dead_letters: DeadLetterKind = "file",
        limits: Limits | None = None,
        profile: bool = False,
        clock: Clock | None = None,
        step_limit: Duration = "10 minutes",
        stop_limit: Duration = "30 seconds",
    ) -> None:
        """Open the journal, and find out where its queries stand."""
        if not hasattr(spark, "conf"):
            raise DescriptionError(
                f"Runtime(spark={spark!r}): give a Spark session, such as slackwater.session()"
            )
        settings = RuntimeSettings.checked(
            policy=policy,
            journal=journal,
            slots=slots,
            budget=budget,
            memory=memory,
            state=state,
            storage=storage,
            tiering=tiering,
            prepare=prepare,
            durable=durable,
            shared=shared,
            dead_letters=dead_letters,
            limits=limits,
            profile=profile,
            clock=clock,
            step_limit=step_limit,
            stop_limit=stop_limit,
        )
        if prepare and spark.conf.get("spark.sql.adaptive.enabled", "true") == "true":
            logger.warning(
                "spark.sql.adaptive.enabled is on, so no plan can be prepared and every step is "
                "planned anew; turn it off in this session, or start it with slackwater.session()"
            )
        self._spark = spark
        self._closed = False
        self._clock = settings.clock
        self._stop_limit_s = settings.stop_limit_ms / 1_000
        self._inbox = Inbox()
        self._turns = WriteTurns()
        self._hangs = False  # some thread, at the end
        self._slots = settings.slots or parallelism(spark)
        with ExitStack() as opened:
            self._open(settings, opened)
            self._opened = opened.pop_all()

    def _open(self, settings: RuntimeSettings, opened: ExitStack) -> None:
        """Open everything; `opened` closes what is open, the last first."""
        spark, directory, limits = self._spark, settings.directory, settings.limits
        if directory is None:
            temporary = tempfile.TemporaryDirectory(prefix="slackwater-")
            opened.callback(temporary.cleanup)
            directory = Path(temporary.name)
        self.directory = directory
        access = SHARED if settings.shared else PRIVATE
        self._ledger = Ledger(directory, durable=settings.durable, access=access)
        opened.callback(self._ledger.close)
        self._blocks = BlockStore(storage_files(directory, settings.storage, access))
        self._blocks.tidy(self._ledger.block_paths(), self._ledger.content.next_query)
        self._staged = StagedBlocks(self._blocks, StagedFrames(spark))
        self._runner = StepRunner(spark, prepare=settings.prepare, profile=settings.profile)
        self._fleet = Fleet(
            tiered=settings.tiered, copied_bytes=self._staged.bytes_of, inbox=self._inbox
        )
        self._deployer = Deployer(
            spark, self._ledger, self._blocks, self._fleet, self._clock, self._inbox
        )
        opened.callback(self._close_deployed)
        self._lane = IoLane()
        opened.callback(lambda: self._lane.close(self._stop_limit_s))
        self._warm: Counter[Template] = Counter()  # plans made ahead
        self.dead_letters = DeadLetterFiles(directory / "dead-letters", access)
        self._ledger.require_batch(self.dead_letters.newest_batch(), directory / "dead-letters")
        placer = Placer(
            self._blocks,
            self._staged,
            self._lane,
            limits,
            budget_bytes=settings.memory_bytes,
            used_bytes=lambda: self._fleet.state_bytes,
            tiered=settings.tiered,
        )
        executor = StepExecutor(
            self._runner,
            self._ledger,
            self._blocks,
            placer,
            PaneEmitter(spark, self._staged, self._deployer.sinks, limits),
            self._turns,
            StepPools(spark),
            self._clock,
            files_dead_letters=settings.files_dead_letters,
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
            settings.tiering,
            settings.memory_bytes,
            lambda: self._fleet.queries,
            lambda query: self._inbox.post(lambda: self._fleet.reweigh(query)),
        )
        opened.callback(lambda: self._note_end(self._tiers.close(self._stop_limit_s)))
        clerk = DeadLetterClerk(self._ledger, self._runner, self.dead_letters, self._find)
        self._live = LiveInputs(
            self._fleet, directory, lambda query: self._loop.reason(query), access
        )
        self._loop = Loop(
            fleet=self._fleet,
            ledger=self._ledger,
            executor=executor,
            clerk=clerk if settings.files_dead_letters else None,
            auditor=Auditor(spark, self._runner, self._deployer.exactly),
            policy=settings.policy,
            clock=self._clock,
            slots=self._slots,
            budget_ms=settings.budget_ms,
            step_limit_ms=settings.step_limit_ms,
            stop_limit_ms=settings.stop_limit_ms,
            inbox=self._inbox,
            jobs=StepJobs(spark),
            live=self._live,
            memory=MemoryGauge(settings.memory_bytes, lambda: stored_bytes(spark)),
            tiers=self._tiers if settings.tiered else None,
        )
        opened.callback(lambda: self._note_end(self._loop.close()))

    def deploy(
        self, app: App, name: str, *, reset: bool = False, **inputs: SourceDescription
    ) -> list[str]:
        """Start an app's queries over the inputs given, all or none; return the queries' names.

        Any thread may, while another one runs them: they begin as soon as they are opened.

        A query that the journal knows goes on where it was. `reset=True` forgets what it knows.
        """
        return self._deployer.deploy(app, name, inputs, reset=reset)

    def run(
        self,
        *,
        seconds: float | None = None,
        until: Callable[[], bool] | None = None,
    ) -> None:
        """Run until stopped: by time, a condition, Ctrl-C, `stop()`, or the end of all inputs.

        Where it ends by itself, because all inputs have ended or no query is left that can run, it
        raises QuarantinedError if any query was stopped for an error.
        """
        if seconds is not None and (not isinstance(seconds, int | float) or not seconds >= 0):
            raise DescriptionError(
                f"run(seconds={seconds!r}): give a number of seconds, or leave it out"
            )
        if until is not None and not callable(until):
            raise DescriptionError(
                f"run(until={until!r}): give a function that says whether to stop, such as "
                "until=lambda: done.is_set()"
            )
        if self._closed:
            raise SlackwaterError("run(): the runtime is closed: make another one")
        with self._inbox.owned():
            self.warm()
            self._loop.run(seconds=seconds, until=until)

    def warm(self) -> None:
        """Plan and compile what is deployed, so that first results are not late for it.

        `run` does it too. Pipelines that cannot share steps are left to their own first steps.
        """
        queries = Counter(query.template for query in self._fleet.queries)
        # Two steps of a template at once need a plan each; one query is in one step only.
        wanted = {
            template: min(self._slots, queries[template])
            for template in list(self._deployer.templates.values())
            if template.query is None and queries[template]
        }
        cold = [template for template, plans in wanted.items() if plans > self._warm[template]]
        with ThreadPoolExecutor(self._slots) as pool:
            list(pool.map(self._warm_one, cold, [wanted[template] for template in cold]))
        self._warm |= Counter(wanted)

    def _warm_one(self, template: Template, plans: int) -> None:
        """Warm a template; where that fails, its queries' own steps will say so."""
        try:
            with hushed():
                self._runner.warm(template, plans)
        except Exception as error:
            logger.info("%s could not be planned ahead: %s", template.output.place, explain(error))

    def stop(self) -> None:
        """Make `run` return after the steps that are running now; any thread may ask."""
        self._loop.stop()

    def observe(self, observer: Observer) -> None:
        """Tell an observer of every committed step from now on."""
        if not callable(getattr(observer, "step_committed", None)):
            raise DescriptionError(
                f"observe({observer!r}): give an object with a method step_committed(report)"
            )
        self._loop.observers.append(observer)

    def queries(self) -> list[QueryReport]:
        """Report how each deployed query stands; any thread may ask, also while they run."""
        now_ms, queries = self._clock.now_ms(), list(self._fleet.queries)
        # Sources are asked by one thread alone: others are told what that one saw last.
        counted = self._inbox.at_once(lambda: self._fleet.queued(now_ms))
        return [
            self._report(
                query,
                self._live.queued(query.number) if counted is None else int(counted[query.row]),
            )
            for query in queries
        ]

    def resume(self, name: str) -> None:
        """Let a quarantined query go on, beginning with the step that failed; any thread may."""
        self._inbox.ask(lambda: self._resume(name))

    def _resume(self, name: str) -> None:
        query = self._fleet.named(name)
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
        if not isinstance(app, App):
            raise DescriptionError(f"refresh({app!r}): give the App that was deployed")
        for template in list(self._deployer.templates.values()):
            if template.output.app == app.name:
                self._runner.forget(template)
                del self._warm[template]

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
        """Finish, and release the journal, the sinks and the sources; closing twice is fine."""
        self._closed = True
        self._opened.close()

    def _note_end(self, ended: bool) -> None:
        """Remember that some thread goes on after all: what it holds is not waited for either."""
        self._hangs |= not ended

    def _close_deployed(self) -> None:
        """Release sinks and sources; not for longer than may be where something hangs in them."""
        if not self._hangs:
            self._release()
            return
        closer = Worker("slackwater-closer")
        closing = closer.submit(self._release)
        closer.end()
        if not closer.ended(self._stop_limit_s):
            logger.warning("close(): sinks and sources did not close in time and are left")
        elif (error := closing.exception()) is not None:
            raise error

    def _release(self) -> None:
        """Release sinks and sources, each whatever becomes of the others."""
        with ExitStack() as all_of_them:
            for sink in self._deployer.sinks.values():
                all_of_them.callback(sink.close)
            # No other runtime may have a sink while a step that was given up writes to it.
            all_of_them.callback(self._turns.wait_until_over)
            for query in self._fleet.queries:
                for reader in query.readers:
                    all_of_them.callback(reader.close)

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

    def _find(self, number: int) -> DeployedQuery | None:
        return self._fleet.find(number)

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
            waits_for=live.waits_for,
            arrivals_per_s=live.arrivals_per_s,
            lags=live.lags,
            lost=live.lost,
            bounds=None if query.sampler is None else query.sampler.audits(state),
        )
