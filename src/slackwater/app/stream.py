"""What users write: an App, its streams, and their outputs. A description, no execution."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from slackwater.app.aggregates import Aggregate
from slackwater.app.durations import Duration, to_ms
from slackwater.app.windows import Windows
from slackwater.errors import DescriptionError

# A function from DataFrame to DataFrame; descriptions do not import Spark to say so.
FrameFunction = Callable[[Any], Any]

RESERVED_NAMES = frozenset({"query", "window_start", "window_end", "pane", "timing", "accuracy"})
SYSTEM_PREFIX = "_sw_"


@dataclass(frozen=True, eq=False)
class SourceNode:
    """Stand for an input that is named now and given when the app is deployed."""

    name: str


@dataclass(frozen=True, eq=False)
class TransformNode:
    """Stand for a stream after a DataFrame function."""

    parent: Node
    function: FrameFunction


@dataclass(frozen=True, eq=False)
class UnionNode:
    """Stand for the rows of two streams together."""

    left: Node
    right: Node


Node = SourceNode | TransformNode | UnionNode


def leaves(node: Node) -> Iterator[SourceNode]:
    """List the inputs of a stream, left to right; one used twice is listed (and read) twice."""
    match node:
        case SourceNode():
            yield node
        case TransformNode(parent=parent):
            yield from leaves(parent)
        case UnionNode(left=left, right=right):
            yield from leaves(left)
            yield from leaves(right)


@dataclass(frozen=True, eq=False)
class Output:
    """Describe one windowed query from its inputs to its sink."""

    app: str
    name: str
    stream: Node
    windows: Windows
    by: tuple[str, ...]
    aggregates: dict[str, Aggregate]
    function: FrameFunction | None
    sink: Any
    lateness_ms: int

    @property
    def place(self) -> str:
        """Say where this output was described, for error messages."""
        return f"app {self.app!r}, output {self.name!r}"


class App:
    """Hold a set of outputs that are deployed together, under as many names as there are inputs.

    >>> from slackwater.app.aggregates import count
    >>> from slackwater.app.windows import tumbling
    >>> app = App("ads")
    >>> views = app.source("events").transform(lambda df: df.where("event_type = 'view'"))
    >>> output = views.window(tumbling("3 s"), by="campaign_id").aggregate(n=count()).to(None)
    >>> output.name, output.by
    ('output', ('campaign_id',))
    """

    def __init__(self, name: str) -> None:
        """Name the app; the name is part of every query's identity in the journal."""
        if not name or "/" in name:
            raise DescriptionError(f"App(name={name!r}): give a name without '/'")
        self.name = name
        self._outputs: dict[str, Output] = {}

    @property
    def outputs(self) -> tuple[Output, ...]:
        """Return what has been described so far."""
        return tuple(self._outputs.values())

    @property
    def inputs(self) -> tuple[str, ...]:
        """Return the names of the inputs that a deployment must give."""
        found = (leaf.name for output in self.outputs for leaf in leaves(output.stream))
        return tuple(dict.fromkeys(found))

    def source(self, name: str) -> Stream:
        """Name an input; which one it is, is said on deployment."""
        if not name.isidentifier():
            raise DescriptionError(
                f"source(name={name!r}): use a Python name, because deploy() takes it as a keyword"
            )
        return Stream(self, SourceNode(name))

    def add(self, output: Output) -> None:
        """Take in an output; used by `Result.to`."""
        if output.name in self._outputs:
            raise DescriptionError(
                f"{output.place} is described twice: give each its own name, .to(..., name='...')"
            )
        self._outputs[output.name] = output


class Stream:
    """Describe rows on their way from an input to a window."""

    def __init__(self, app: App, node: Node) -> None:
        """Wrap a node; users start with `App.source`."""
        self._app = app
        self._node = node

    def transform(self, function: FrameFunction) -> Stream:
        """Pass the rows through any stateless DataFrame -> DataFrame function.

        Keep the `_sw_query` column (do not `select` it away), or queries cannot share steps.
        """
        if not callable(function):
            raise DescriptionError(
                f"transform({function!r}): give a function from DataFrame to DataFrame"
            )
        return Stream(self._app, TransformNode(self._node, function))

    def union(self, other: Stream) -> Stream:
        """Put the rows of two streams with the same columns together; time is the slower one's."""
        if other._app is not self._app:
            raise DescriptionError("union(other): both streams must belong to the same App")
        return Stream(self._app, UnionNode(self._node, other._node))

    def window(self, windows: Windows, by: str | Sequence[str] = ()) -> WindowedStream:
        """Group the rows by window, and by the columns `by` within it."""
        if not isinstance(windows, Windows):
            raise DescriptionError(
                f"window({windows!r}): give tumbling(...) or sliding(...), "
                "such as window(tumbling('3 seconds'))"
            )
        keys = (by,) if isinstance(by, str) else tuple(by)
        _check_names(keys, "by")
        return WindowedStream(self._app, self._node, windows, keys)


class WindowedStream:
    """Describe the rows of each window, before anything is computed from them."""

    def __init__(self, app: App, node: Node, windows: Windows, by: tuple[str, ...]) -> None:
        """Wrap a windowed node; users start with `Stream.window`."""
        self._app = app
        self._node = node
        self._windows = windows
        self._by = by

    def aggregate(self, **aggregates: Aggregate) -> Result:
        """Compute named aggregates per window and group."""
        if not aggregates:
            raise DescriptionError("aggregate(): name at least one, such as aggregate(n=count())")
        for name, aggregate in aggregates.items():
            if not isinstance(aggregate, Aggregate):
                raise DescriptionError(
                    f"aggregate({name}={aggregate!r}): give one of count, sum, mean, min, max, "
                    "variance, stddev, approx_distinct, approx_quantile; for all else use apply"
                )
        _check_names((*self._by, *aggregates), "aggregate")
        return Result(self._app, self._node, self._windows, self._by, aggregates, None)

    def apply(self, function: FrameFunction) -> Result:
        """Compute any DataFrame -> DataFrame function over one window's rows, as a batch would."""
        if not callable(function):
            raise DescriptionError(
                f"apply({function!r}): give a function from DataFrame to DataFrame"
            )
        if self._by:
            raise DescriptionError(
                f"window(by={list(self._by)}).apply(...): apply gets the whole window; "
                "leave out `by` and group inside the function"
            )
        return Result(self._app, self._node, self._windows, (), {}, function)


class Result:
    """Describe what a window gives, before it is said where it goes."""

    def __init__(
        self,
        app: App,
        node: Node,
        windows: Windows,
        by: tuple[str, ...],
        aggregates: dict[str, Aggregate],
        function: FrameFunction | None,
    ) -> None:
        """Wrap a result; users start with `WindowedStream.aggregate` or `.apply`."""
        self._app = app
        self._node = node
        self._windows = windows
        self._by = by
        self._aggregates = aggregates
        self._function = function

    def to(self, sink: Any, *, name: str = "output", lateness: Duration = "0 s") -> Output:
        """Send each window's panes to a sink.

        Events up to `lateness` behind the watermark amend their window with a new pane; later ones
        go to the dead letters.
        """
        if not name or "/" in name:
            raise DescriptionError(f"to(name={name!r}): give a name without '/'")
        output = Output(
            app=self._app.name,
            name=name,
            stream=self._node,
            windows=self._windows,
            by=self._by,
            aggregates=self._aggregates,
            function=self._function,
            sink=sink,
            lateness_ms=to_ms(lateness, "lateness", allow_zero=True),
        )
        self._app.add(output)
        return output


def _check_names(names: Sequence[str], place: str) -> None:
    for name in names:
        if not isinstance(name, str) or not name:
            raise DescriptionError(f"{place}: {name!r} is not a column name: write it as a string")
        if name in RESERVED_NAMES or name.startswith(SYSTEM_PREFIX):
            raise DescriptionError(
                f"{place}: {name!r} is a name that Slackwater puts on every pane: rename the column"
            )
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise DescriptionError(f"{place}: {doubled[0]!r} is named twice: give each its own name")
