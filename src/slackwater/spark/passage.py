"""The way of a stream through its transforms: what they may see, and what comes out untouched.

Queries share steps where each row keeps the number of its query. Transforms of whole frames
(`df.replace(1, 0)`, `df.na.drop(thresh=3)`, `df.toDF(...)`) would take the columns that Slackwater
adds for the user's own. So a description is tried with all of them first, then with fewer, until
its transforms leave alone those that they see.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, IntegerType, LongType, StructType

from slackwater.app.nodes import LegsNode, Node, SidesNode, SourceNode, TransformNode, UnionNode
from slackwater.app.outputs import Output
from slackwater.errors import DescriptionError
from slackwater.spark.carrying import Carried, carried_columns
from slackwater.spark.flows import PLACE_COLUMNS, Check, Flow, through, timed, unchecked
from slackwater.spark.latebound import classic_jvm
from slackwater.spark.logical import PlanNode, read_plan
from slackwater.spark.rowwise import OPAQUE, empty_input, reads_stream, require_rowwise
from slackwater.spark.safety import SEEDED, is_time
from slackwater.spark.sources.base import ARRIVAL, OFFSET, PARTITION, QUERY, SourceReader

logger = logging.getLogger("slackwater")

_SYSTEM_TYPES: dict[str, DataType] = {
    QUERY: IntegerType(),
    PARTITION: IntegerType(),
    OFFSET: LongType(),
    ARRIVAL: LongType(),
}
# A view that a transform makes is known by its name in the whole session: while one description is
# looked up, no other may be put in its place.
_session_names = threading.RLock()


@dataclass(frozen=True, eq=False)
class Passage:
    """Hold what comes out of an output's transforms over empty input.

    `shown` are the columns of Slackwater that transforms see, `carried` all columns of the inputs
    that come out as they went in, under their names.
    """

    flow: Flow
    shown: tuple[str, ...]
    fusable: bool
    carried: frozenset[str] = frozenset()
    calls_python: bool = False
    names_views: bool = False

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Let no other description name views meanwhile, if this one does."""
        if not self.names_views:
            yield
            return
        with _session_names:
            yield


@dataclass(frozen=True, eq=False)
class _Trial:
    """Hold what a description did with some of Slackwater's columns before its eyes."""

    shown: tuple[str, ...]
    flow: Flow
    plan: PlanNode
    carried: Carried

    @property
    def clean(self) -> bool:
        """Tell whether nothing that was shown can have come into the results."""
        return not self.carried.computed_with and not self.carried.opaque

    def passage(self, *, fusable: bool) -> Passage:
        kinds = {each.kind for node in self.plan.downwards() for each in node.within()}
        return Passage(
            self.flow,
            self.shown,
            fusable and QUERY in self.carried.names,
            self.carried.names,
            "PythonUDF" in kinds,
            any(
                node.kind == "View" and any(map(reads_stream, node.downwards()))
                for node in self.plan.downwards()
            ),
        )


def find_passage(spark: SparkSession, output: Output, readers: Sequence[SourceReader]) -> Passage:
    """Run a description over empty input; refuse transforms that cannot work in steps."""
    if classic_jvm(spark) is None:
        return _unseen(spark, output, readers)
    with _session_names:
        passage = _tried(spark, output, readers)
        if _transforms(output.stream):
            passage = _confirmed(spark, output, readers, passage)
    return passage


def hands_out_rows(frame: DataFrame) -> bool:
    """Tell whether a function gets whole rows: then they have the number of their query."""
    if classic_jvm(frame.sparkSession) is None:
        return True  # who knows
    return any(node.kind in OPAQUE for node in read_plan(_analyzed(frame)).downwards())


def _tried(spark: SparkSession, output: Output, readers: Sequence[SourceReader]) -> Passage:
    all_shown = (QUERY, *PLACE_COLUMNS)
    try:
        trial = _trial(spark, output, readers, all_shown)
        if trial.clean:
            _warn_of_watermarks(trial.plan, output.place)
            return trial.passage(fusable=True)
    except DescriptionError:
        pass  # tried again with fewer columns, where it is told if it stays
    numbered: _Trial | DescriptionError
    try:
        numbered = _trial(spark, output, readers, (QUERY,))
        _warn_of_watermarks(numbered.plan, output.place)
        if numbered.clean:
            return numbered.passage(fusable=True)
        if numbered.carried.opaque:
            return numbered.passage(fusable=False)
    except DescriptionError as error:
        numbered = error
    try:
        return _trial(spark, output, readers, ()).passage(fusable=False)
    except DescriptionError:
        if isinstance(numbered, DescriptionError):
            raise numbered from None
        return numbered.passage(fusable=False)


def _trial(
    spark: SparkSession, output: Output, readers: Sequence[SourceReader], shown: tuple[str, ...]
) -> _Trial:
    def check(frame: DataFrame, what: str) -> None:
        require_rowwise(read_plan(_analyzed(frame)), what)

    flow = _run(spark, output, readers, shown, streaming=True, check=check)
    analyzed = _analyzed(flow.frame)
    plan = read_plan(analyzed)
    require_rowwise(plan, f"{output.place}: a transform")
    return _Trial(shown, flow, plan, carried_columns(analyzed, plan, shown))


def _confirmed(
    spark: SparkSession, output: Output, readers: Sequence[SourceReader], passage: Passage
) -> Passage:
    """Call the transforms once more, for a batch without our columns, as a user would.

    What they return must not depend on how many columns they saw, nor on seeing a stream.
    """
    try:
        batch = _run(spark, output, readers, (), streaming=False)
    except DescriptionError:  # they name the query's number
        batch = _run(spark, output, readers, passage.shown, streaming=False)
    again, found = _outline(batch), _outline(passage.flow)
    if again != found and passage.shown and not hands_out_rows(passage.flow.frame):
        with suppress(DescriptionError):
            passage = _trial(spark, output, readers, ()).passage(fusable=False)
            found = _outline(passage.flow)
    if again.operators != found.operators or again.expressions != found.expressions:
        raise DescriptionError(
            f"{output.place}: a transform returns another plan when it is called again, or for a "
            "streaming DataFrame than for a batch; let it do the same each time, without looking "
            "at isStreaming"
        )
    return passage


@dataclass(frozen=True)
class _Outline:
    """Say what a plan does, but for what Spark itself does otherwise for streams.

    Watermarks are left out of batches, and the columns of a stream that is united with itself are
    named anew. Seeds and times are others each time.
    """

    operators: tuple[str, ...]
    expressions: frozenset[str]
    values: tuple[str, ...]


def _outline(flow: Flow) -> _Outline:
    nodes = read_plan(_analyzed(flow.frame)).downwards()
    within = [each for node in nodes for each in node.within()]
    seeds = {child for each in within if each.kind in SEEDED for child in each.children}
    return _Outline(
        tuple(node.kind for node in nodes if node.kind not in {"Project", "EventTimeWatermark"}),
        frozenset(each.kind for each in within) - {"Alias", "AttributeReference"},
        tuple(
            sorted(
                str(each.fields.get("value"))
                for each in within
                if each.kind == "Literal" and each not in seeds and not is_time(each)
            )
        ),
    )


def _run(
    spark: SparkSession,
    output: Output,
    readers: Sequence[SourceReader],
    shown: Sequence[str],
    *,
    streaming: bool,
    check: Check = unchecked,
) -> Flow:
    def schema(reader: SourceReader) -> StructType:
        columns = StructType(list(reader.schema.fields))
        for name in shown:
            columns = columns.add(name, _SYSTEM_TYPES[name], nullable=False)
        return columns

    empty = (
        Flow(empty_input(spark, schema(reader), streaming=streaming), reader.event_time)
        for reader in readers
    )
    return timed(through(output.stream, empty, output.place, check), output.place)


def _unseen(spark: SparkSession, output: Output, readers: Sequence[SourceReader]) -> Passage:
    """Run a description where plans cannot be looked at: then its queries share nothing."""
    empty = (
        Flow(
            spark.createDataFrame([], StructType(list(reader.schema.fields)).add(QUERY, "integer")),
            reader.event_time,
        )
        for reader in readers
    )
    flow = timed(through(output.stream, empty, output.place), output.place)
    fusable = QUERY in flow.frame.columns and not _transforms(output.stream)
    return Passage(flow, (QUERY,), fusable)


def _warn_of_watermarks(plan: PlanNode, place: str) -> None:
    if any(node.kind == "EventTimeWatermark" for node in plan.downwards()):
        logger.warning(
            "%s: withWatermark in a transform has no effect; event time follows the source: give "
            "it watermark=... where the input is described, and drop withWatermark",
            place,
        )


def _transforms(node: Node) -> bool:
    match node:
        case SourceNode():
            return False
        case TransformNode():
            return True
        case UnionNode(left=left, right=right):
            return _transforms(left) or _transforms(right)
        case LegsNode(legs=legs):
            return any(_transforms(leg.node) for leg in legs)
        case SidesNode(sides=sides):
            return any(map(_transforms, sides))


def _analyzed(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()
