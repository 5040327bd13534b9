"""The sinks of all deployed outputs: opened once each, asked before anything is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from slackwater.app.outputs import Output
from slackwater.errors import DescriptionError, SinkError
from slackwater.runtime.ledger import Ledger
from slackwater.runtime.state import QueryState
from slackwater.spark.pane_schema import pane_schema
from slackwater.spark.pipeline import CheckedPipeline
from slackwater.spark.sinks.base import Sink, SinkWriter

EXACT = "#exact"  # ends the name of the query that makes the exact panes after early ones


class OpenedSinks(Mapping[object, SinkWriter]):
    """Hold the writer of each sink, by the sink's description; outputs share them."""

    def __init__(self, ledger: Ledger) -> None:
        """Begin with none."""
        self._ledger = ledger
        self._writers: dict[object, SinkWriter] = {}

    def __getitem__(self, sink: object) -> SinkWriter:
        return self._writers[sink]

    def __iter__(self) -> Iterator[object]:
        return iter(self._writers)

    def __len__(self) -> int:
        return len(self._writers)

    @contextmanager
    def all_or_none(self) -> Iterator[None]:
        """Give up the sinks that were opened meanwhile, if something fails."""
        before = set(self._writers)
        try:
            yield
        except BaseException:
            for sink in set(self._writers) - before:
                self._writers.pop(sink).close()
            raise

    def admit(self, output: Output, pipeline: CheckedPipeline) -> None:
        """Open an output's sink, if it is not; refuse an output whose panes it could not take."""
        if output.sink not in self._writers:
            self._writers[output.sink] = self._opened(output)
        try:
            self._writers[output.sink].admit(pane_schema(output, pipeline.result))
        except SinkError as failure:
            raise SinkError(f"{output.place}: {failure}") from failure

    def _opened(self, output: Output) -> SinkWriter:
        if not isinstance(output.sink, Sink):
            raise DescriptionError(
                f"{output.place}: to({output.sink!r}) is not a sink; "
                "use parquet(path), kafka_sink(servers, topic), console(), memory() or "
                "callback(function)"
            )
        writer = output.sink.open()
        try:
            # Of all queries that the journal knows: others write before some of them return.
            writer.recall(_unfinished(self._ledger.content.queries))
        except BaseException:
            writer.close()
            raise
        return writer


def _unfinished(queries: Mapping[str, QueryState]) -> dict[str, int | None]:
    """Name the queries whose last step may have been written and will run again, as panes do.

    With each goes the first window that the step may show, as far as that is known.
    """
    found: dict[str, int | None] = {}
    for state in list(queries.values()):  # others may be introduced meanwhile
        if state.pending is None:
            continue
        # A name may end so because a user chose it: then its panes have it whole.
        for name in {state.name, state.name.removesuffix(EXACT)}:
            since = _first_window_us(state)
            if name in found:
                other = found[name]
                since = None if since is None or other is None else min(since, other)
            found[name] = since
    return found


def _first_window_us(state: QueryState) -> int | None:
    mark = state.fingerprint
    common = "kind" not in mark.get("windows", {"kind": ""}) and "stages" not in mark
    if not common or state.gone_until_ms is None or state.lateness.waiting:
        return None
    return state.gone_until_ms * 1_000
