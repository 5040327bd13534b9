"""File dead letters off the critical path: the records that steps counted but could not use."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from slackwater.runtime.deployed import DeployedQuery
from slackwater.runtime.ledger import DeadLetterDuty, Ledger
from slackwater.runtime.planning import pieces_of
from slackwater.spark.frames import Template, TooLate
from slackwater.spark.sinks.dead_letters import DEAD_LETTER_SCHEMA, DeadLetterFiles
from slackwater.spark.sources.base import QUERY
from slackwater.spark.steps import Piece, StepRunner

MOST_PER_BATCH = 200


class DeadLetterClerk:
    """Work off the ledger's duties, batch by batch; each batch is journaled before it is filed."""

    def __init__(
        self,
        ledger: Ledger,
        runner: StepRunner,
        files: DeadLetterFiles,
        find: Callable[[int], DeployedQuery | None],
    ) -> None:
        """Bring together what filing needs; `find` gives a deployed query by its number."""
        self._ledger = ledger
        self._runner = runner
        self._files = files
        self._find = find

    def work(self) -> bool:
        """File one batch; return False where there is nothing to do."""
        unfinished = next(filter(self._can_fetch, self._ledger.open_batches()), None)
        if unfinished is not None:
            batch, duties = unfinished
        else:
            duties = self._next_duties()
            if not duties:
                return False
            batch = self._ledger.plan_dead_letters(duties)
        rows = [table for table in self._fetch(duties) if table.num_rows]
        if rows:
            self._files.write(f"{batch:010d}", pa.concat_tables(rows))
        self._ledger.dead_letters_filed(batch)
        return True

    def _can_fetch(self, batch: tuple[int, Sequence[DeadLetterDuty]]) -> bool:
        """Tell whether all queries of a batch are deployed: it is filed whole, or it waits."""
        return all(self._find(duty.query) is not None for duty in batch[1])

    def _next_duties(self) -> list[DeadLetterDuty]:
        waiting = [
            duty for duty in self._ledger.open_duties() if self._find(duty.query) is not None
        ]
        return waiting[:MOST_PER_BATCH]

    def _fetch(self, duties: Sequence[DeadLetterDuty]) -> list[pa.Table]:
        """Fetch in as few jobs as possible: one pass per template and turn of a query."""
        tables = []
        for turn in _turns(duties):
            groups: dict[Template, list[DeadLetterDuty]] = {}
            for duty in turn:
                query = self._find(duty.query)
                if query is not None:
                    groups.setdefault(query.template, []).append(duty)
            for template, group in groups.items():
                tables += self._fetch_group(template, group)
        return tables

    def _fetch_group(self, template: Template, duties: Sequence[DeadLetterDuty]) -> list[pa.Table]:
        tables = []
        rejected = [duty for duty in duties if duty.rejected]
        if rejected:
            tables.append(self._runner.rejected(template, self._pieces(rejected)))
        late = [duty for duty in duties if duty.forgotten_until_ms is not None or duty.too_late]
        if late:
            over = {duty.query: TooLate(duty.forgotten_until_ms, duty.too_late) for duty in late}
            tables.append(self._runner.too_late(template, self._pieces(late), over))
        return [self._named(table) for table in tables]

    def _pieces(self, duties: Sequence[DeadLetterDuty]) -> list[Piece]:
        queries = [query for duty in duties if (query := self._find(duty.query)) is not None]
        return pieces_of(queries, {duty.query: duty.ranges for duty in duties})

    def _named(self, table: pa.Table) -> pa.Table:
        """Give the rows the columns of a dead letter, with the query's name for its number."""
        numbers = table[QUERY].to_numpy()
        names = {
            int(number): query.state.name
            for number in np.unique(numbers)
            if (query := self._find(int(number))) is not None
        }
        query = pa.array([names[int(number)] for number in numbers], pa.string())
        columns = [query, *(table.column(index) for index in range(1, table.num_columns))]
        topics, columns[2] = self._origins(table)
        columns.append(topics)
        return pa.table(
            [
                column.cast(field.type)
                for column, field in zip(columns, DEAD_LETTER_SCHEMA, strict=True)
            ],
            schema=DEAD_LETTER_SCHEMA,
        )

    def _origins(self, table: pa.Table) -> tuple[pa.Array, pa.Array]:
        """Return topics, and partitions as these number them, where it is known which input."""
        topics: list[str | None] = []
        partitions: list[int | None] = []
        for number, index, partition in zip(
            *(table.column(place).to_pylist() for place in range(3)), strict=True
        ):
            query = self._find(number)
            readers = () if query is None else query.readers
            reader = readers[index or 0] if index is not None or len(readers) == 1 else None
            topic = None
            if reader is not None and partition is not None:
                topic, partition = reader.origin(partition)
            topics.append(topic)
            partitions.append(partition)
        return pa.array(topics, pa.string()), pa.array(partitions, pa.int32())


def _turns(duties: Sequence[DeadLetterDuty]) -> list[list[DeadLetterDuty]]:
    """Split duties so that each turn has a query once: bounds are per query."""
    turns: list[list[DeadLetterDuty]] = []
    seen: dict[int, int] = {}
    for duty in duties:
        turn = seen.get(duty.query, 0)
        seen[duty.query] = turn + 1
        if turn == len(turns):
            turns.append([])
        turns[turn].append(duty)
    return turns
