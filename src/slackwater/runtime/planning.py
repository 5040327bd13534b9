"""From a policy's choice to exact ranges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slackwater.progress.times import END_OF_TIME_MS
from slackwater.runtime.deployed import DeployedQuery
from slackwater.runtime.state import PlannedRange
from slackwater.spark.frames import Template
from slackwater.spark.sources.base import LateBoundReader
from slackwater.spark.steps import Piece


@dataclass(frozen=True, eq=False)
class PlannedStep:
    """Hold what one step reads, for whom; `failures` counts earlier tries, `waits` those in vain.

    `decided_ms` is when that was decided, and `expected_ms` when it should end, as far as costs can
    tell, both by the steady clock; `serves_due` says that it is to
    close windows, and not only to read ahead. `amending` are the queries, by number, whose past
    windows it amends where they are due; those of others wait for a step with more time.
    """

    number: int
    position: int  # in the journal: the plan is durable once this is
    template: Template
    queries: tuple[DeployedQuery, ...]
    plans: dict[int, tuple[PlannedRange, ...]]
    decided_ms: float
    parallelism: int = 1
    failures: int = 0
    waits: int = 0  # tries that found a source or sink out of reach
    expected_ms: float = 0.0
    serves_due: bool = True
    amending: frozenset[int] = frozenset()

    def amends(self, query: DeployedQuery, after_ms: int | None) -> bool:
        """Tell whether past windows of a query may be amended in this step.

        At the end of the input there is no later step. A further stage may forget its windows with
        those they are made from, so it is told in the very step.
        """
        ended = after_ms is not None and after_ms >= END_OF_TIME_MS
        return ended or bool(self.template.output.stages) or query.number in self.amending

    @property
    def pieces(self) -> list[Piece]:
        """Return what Spark has to read."""
        return pieces_of(self.queries, self.plans)

    @property
    def events(self) -> int:
        """Count the records that the step reads."""
        return sum(piece.events for ranges in self.plans.values() for _, piece in ranges)


def pieces_of(
    queries: Sequence[DeployedQuery], plans: dict[int, tuple[PlannedRange, ...]]
) -> list[Piece]:
    """List the non-empty ranges of some queries."""
    return [
        Piece(query.number, index, piece, query.readers[index])
        for query in queries
        for index, piece in plans[query.number]
        if piece.events
    ]


def plan_query(query: DeployedQuery, now_ms: float, max_events: int) -> tuple[PlannedRange, ...]:
    """Plan what a query reads next; a plan that was journaled before comes again unchanged."""
    if query.state.pending is not None:
        return query.state.pending
    planned: list[PlannedRange] = []
    for index, reader in enumerate(query.readers):
        share = max(1, max_events // len(query.readers))
        ranges = reader.plan(query.positions(index), now_ms, share)
        planned += [(index, piece) for piece in ranges]
    if query.sampler is not None:
        return query.sampler.planned(query.state, query.readers, planned, now_ms)
    return tuple(planned)


def step_size(
    queries: Sequence[DeployedQuery], max_events: int, parallelism: int
) -> tuple[int, int]:
    """Return how many events a step reads, in how many tasks: no more than it carries, if it can.

    A step that carries its records is prepared and has one task. One that has others fetch them is
    planned anew, and keeps all slots busy for as long as several of the former take.
    """
    carried = [
        reader.most_records() if isinstance(reader, LateBoundReader) else None
        for query in queries
        for reader in query.readers
    ]
    limits = [limit for limit in carried if limit is not None]
    if len(limits) < len(carried):
        return max_events * parallelism, parallelism
    return min(max_events * parallelism, *limits), 1
