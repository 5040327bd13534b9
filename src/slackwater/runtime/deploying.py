"""Deploy an app: open what its queries need, all or nothing, and let them begin or go on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from pyspark.sql import SparkSession

from slackwater.app.nodes import leaves
from slackwater.app.outputs import Output
from slackwater.app.stream import App
from slackwater.errors import DescriptionError
from slackwater.lateness.state import LatenessWish
from slackwater.runtime.blocks import BlockStore
from slackwater.runtime.clock import Clock
from slackwater.runtime.deployed import DeployedQuery
from slackwater.runtime.fingerprint import fingerprint, require_same
from slackwater.runtime.fleet import Fleet
from slackwater.runtime.inbox import Inbox
from slackwater.runtime.ledger import Ledger
from slackwater.runtime.opened_sinks import EXACT, OpenedSinks
from slackwater.runtime.sampler import QuerySampler
from slackwater.spark.frames import Bounds, Template
from slackwater.spark.hush import hushed
from slackwater.spark.pipeline import CheckedPipeline
from slackwater.spark.sinks.base import PANES_OF_A_LIFE
from slackwater.spark.sources.base import SourceDescription, SourceReader
from slackwater.spark.steps import analyse_step
from slackwater.spark.strategies import check_watermark

logger = logging.getLogger("slackwater")


class Deployer:
    """Add queries to the fleet. Outputs share sinks, and queries alike share templates."""

    def __init__(
        self,
        spark: SparkSession,
        ledger: Ledger,
        blocks: BlockStore,
        fleet: Fleet,
        clock: Clock,
        inbox: Inbox,
    ) -> None:
        """Begin with nothing deployed; `inbox` is how to reach the thread that owns the fleet."""
        self._inbox = inbox
        self._opening = threading.Lock()
        self._making = threading.Lock()
        self._spark = spark
        self._ledger = ledger
        self._blocks = blocks
        self._fleet = fleet
        self._clock = clock
        self.sinks = OpenedSinks(ledger)
        self.templates: dict[object, Template] = {}

    def deploy(
        self, app: App, name: str, inputs: Mapping[str, SourceDescription], *, reset: bool
    ) -> list[str]:
        """Start an app's queries, all or none; return their names."""
        with hushed():
            return self._deploy(app, name, inputs, reset=reset)

    def _deploy(
        self, app: App, name: str, inputs: Mapping[str, SourceDescription], *, reset: bool
    ) -> list[str]:
        _check_inputs(app, name, inputs)
        single = len(app.outputs) == 1
        opened: list[_Opened] = []
        try:
            # What takes long is done here, whatever runs meanwhile; the rest by who owns the fleet.
            with self._opening, self.sinks.all_or_none():
                for output in app.outputs:
                    query = name if single else f"{name}/{output.name}"
                    for bounds in _bounds_of(output):
                        opened.append(self._open_output(output, query, inputs, bounds, reset=reset))
                for each in opened:
                    self.sinks.admit(each.output, each.pipeline)
            self._inbox.ask(lambda: self._start_all(opened, reset=reset))
        except BaseException:
            begun = {id(reader) for query in self._fleet.queries for reader in query.readers}
            for each in opened:
                if begun.isdisjoint(map(id, each.readers)):
                    each.close()
            raise
        return [each.name for each in opened if each.bounds != "exact"]

    def _start_all(self, opened: Sequence[_Opened], *, reset: bool) -> None:
        for each in opened:
            self._require_new(each.name)  # another thread may have come first
        for each in opened:
            self._start(each, reset=reset)

    def _require_new(self, name: str) -> None:
        if any(query.state.name == name for query in self._fleet.queries):
            raise DescriptionError(
                f"deploy(name={name!r}): a query of that name is deployed already: give this one "
                "another name"
            )

    def exactly(self, query: DeployedQuery) -> Template:
        """Find the template that computes a query that samples from all of its records."""
        it = query.template
        return self._template(it.output, it.pipeline, it.readers, query.number, "exact")

    def _open_output(
        self,
        output: Output,
        shown_as: str,
        inputs: Mapping[str, SourceDescription],
        bounds: Bounds,
        *,
        reset: bool,
    ) -> _Opened:
        """Open and check all that an output needs; nothing is written down yet."""
        name = f"{shown_as}{EXACT}" if bounds == "exact" else shown_as
        self._require_new(name)
        opened = _Opened(output, name, shown_as, bounds, [])
        try:
            for leaf in leaves(output.stream):
                opened.readers.append(inputs[leaf.name].open(self._spark))
                check_watermark(self._spark, opened.readers[-1], f"{output.place}, {leaf.name}")
            opened.pipeline = self._pipeline(output, opened.readers)
            opened.mark = fingerprint(output, opened.pipeline, opened.readers)
            if bounds == "early":
                opened.mark["sampled"] = "by sub-streams and groups"
            known = self._ledger.content.queries.get(name)
            if known is not None and not reset:
                require_same(name, known.fingerprint, opened.mark)
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
        # Sinks have the panes of its former lives, and would leave out others of the same number.
        lives = self._ledger.content.resets.get(opened.shown_as, 0)
        state = known or self._ledger.introduce(
            opened.name, opened.mark, first_pane=lives * PANES_OF_A_LIFE
        )
        since = self._ledger.content.planned_since.get(state.number, [])
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
            audits=self._fleet.named(opened.shown_as).sampler if bounds == "exact" else None,
            audited_by_panes=output.lateness.first_ms > 0,
        )
        if known is None and bounds == "exact":
            for mine, early in zip(
                readers, self._fleet.named(opened.shown_as).readers, strict=True
            ):
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
        self._ledger.content.planned_since.pop(state.number, None)  # its sources know it by now
        if state.quarantined is not None:
            logger.warning("%s is still quarantined: %s", opened.name, state.quarantined)

    def _pipeline(self, output: Output, readers: Sequence[SourceReader]) -> CheckedPipeline:
        for template in list(self.templates.values()):
            if template.output is output and _keys(template.readers) == _keys(readers):
                return template.pipeline
        pipeline = CheckedPipeline(self._spark, output, readers)
        bounds, *_ = _bounds_of(output)
        trial = Template(-1, output, pipeline, tuple(readers), _alone(pipeline, 0), bounds)
        analyse_step(self._spark, trial)
        return pipeline

    def _template(
        self,
        output: Output,
        pipeline: CheckedPipeline,
        readers: Sequence[SourceReader],
        number: int,
        bounds: Bounds,
    ) -> Template:
        alone = _alone(pipeline, number)
        key = (id(output), _keys(readers), alone, bounds)
        with self._making:  # audits ask too, from another thread
            if key in self.templates:
                return self.templates[key]
            if alone is not None and not any(k[0] == id(output) for k in self.templates):  # type: ignore[index]
                logger.warning(
                    "%s: its transforms drop or change _sw_query, or work on whole rows (as "
                    "mapInPandas, fillna and replace do without a subset), so its queries cannot "
                    "share steps; keep that column as it is (select('_sw_query', ...)) to make "
                    "them faster",
                    output.place,
                )
            self.templates[key] = Template(
                len(self.templates), output, pipeline, tuple(readers), alone, bounds
            )
            return self.templates[key]


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


def _alone(pipeline: CheckedPipeline, number: int) -> int | None:
    """Return a query's number where it must stand in the plan, for its rows do not carry it."""
    return None if pipeline.fusable else number


def _keys(readers: Sequence[SourceReader]) -> tuple[Any, ...]:
    return tuple(
        (type(reader), reader.fusion_key, reader.watermark, reader.max_ahead_ms)
        for reader in readers
    )


def _check_inputs(app: App, name: str, inputs: Mapping[str, SourceDescription]) -> None:
    if not isinstance(app, App):
        raise DescriptionError(
            f"deploy({app!r}, ...): give the App first, whose streams end with .to(sink)"
        )
    place = f"deploy({app.name!r}, {name!r})"
    if not isinstance(name, str) or not name:
        raise DescriptionError(f"{place}: give the deployment a name, as text")
    if not app.outputs:
        raise DescriptionError(f"{place}: the app has no output; end a stream with .to(sink)")
    missing = [wanted for wanted in app.inputs if wanted not in inputs]
    for given, source in inputs.items():
        if given not in app.inputs:
            raise DescriptionError(
                f"{place}: {given}=... is not an input of the app, which has "
                f"{', '.join(map(repr, app.inputs))}{_meant(given, missing)}"
            )
        if not isinstance(source, SourceDescription):
            raise DescriptionError(
                f"{place}: {given}={source!r} is not a source; use generator(...), files(...), ..."
            )
    if missing:
        raise DescriptionError(f"{place}: give its input, {missing[0]}=...")


def _meant(given: str, missing: Sequence[str]) -> str:
    """Ask whether one of the inputs that are missing was meant."""
    near = get_close_matches(given, missing, n=1) or (missing if len(missing) == 1 else [])
    return f": did you mean {near[0]}=...?" if near else ""
