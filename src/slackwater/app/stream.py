"""What users write: an App, its streams, and their windows. A description, no execution."""

from __future__ import annotations

from collections.abc import Sequence

from slackwater.app.aggregates import Aggregate
from slackwater.app.checks import (
    JOIN_INSTEAD,
    check_aggregates,
    check_common,
    check_join,
    check_no_sketches,
    check_windows,
    key_names,
)
from slackwater.app.nodes import (
    FrameFunction,
    Node,
    SidesNode,
    SourceNode,
    TransformNode,
    UnionNode,
    leaves,
)
from slackwater.app.outputs import Output
from slackwater.app.results import Result
from slackwater.app.windows import CountWindows, Windows
from slackwater.errors import DescriptionError


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
        if not isinstance(name, str) or not name or "/" in name:
            raise DescriptionError(f"App(name={name!r}): give a name, as text without '/'")
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
        if not isinstance(name, str) or not name.isidentifier():
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
        if not isinstance(other, Stream):
            raise DescriptionError(
                f"union({other!r}): give a stream of the same App, such as app.source('more')"
            )
        if other._app is not self._app:
            raise DescriptionError("union(other): both streams must belong to the same App")
        return Stream(self._app, UnionNode(self._node, other._node))

    def window(self, windows: Windows, by: str | Sequence[str] = ()) -> WindowedStream:
        """Group the rows by window, and by the columns `by` within it."""
        check_windows(windows)
        return WindowedStream(self._app, self._node, windows, key_names(by, "by"))


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
        return _aggregated(self._app, self._node, self._windows, self._by, aggregates)

    def apply(self, function: FrameFunction) -> Result:
        """Compute any DataFrame -> DataFrame function over one window's rows, as a batch would."""
        check_common(
            self._windows,
            "apply(...)",
            "use aggregate(...), or apply(...) over tumbling(...) or sliding(...) windows",
        )
        if self._by:
            raise DescriptionError(
                f"window(by={list(self._by)}).apply(...): apply gets the whole window; "
                "leave out `by` and group inside the function"
            )
        return _applied(self._app, self._node, self._windows, function)

    def join(
        self, other: WindowedStream, *, on: str | Sequence[str], how: str = "inner"
    ) -> JoinedRows:
        """Join the rows that meet in a window and have equal columns `on`; null equals null.

        Where results of aggregates are all that is wanted, join those instead: it is far faster.
        """
        return _join_rows(self, (self._node,), (), other, key_names(on, "join(on=...)"), how)


class JoinedRows:
    """Describe the joined rows of each window, before anything is computed from them."""

    def __init__(self, left: WindowedStream, node: SidesNode) -> None:
        """Wrap a join; users start with `WindowedStream.join`."""
        self._left = left
        self._node = node

    def join(
        self, other: WindowedStream, *, on: str | Sequence[str], how: str = "inner"
    ) -> JoinedRows:
        """Join the rows of one more stream, by the same columns."""
        keys = key_names(on, "join(on=...)")
        if keys != self._node.on:
            raise DescriptionError(
                f"join(on={list(keys)}): the sides before are joined on {list(self._node.on)}; "
                "join all sides on the same columns, or use apply(...) for the rest"
            )
        return _join_rows(self._left, self._node.sides, self._node.hows, other, keys, how)

    def aggregate(self, by: str | Sequence[str] = (), **aggregates: Aggregate) -> Result:
        """Compute named aggregates of the joined rows per window and group."""
        left = self._left
        return _aggregated(left._app, self._node, left._windows, key_names(by, "by"), aggregates)

    def apply(self, function: FrameFunction) -> Result:
        """Compute any DataFrame -> DataFrame function over one window's joined rows."""
        return _applied(self._left._app, self._node, self._left._windows, function)


def _join_rows(
    left: WindowedStream,
    sides: tuple[Node, ...],
    hows: tuple[str, ...],
    other: WindowedStream,
    on: tuple[str, ...],
    how: str,
) -> JoinedRows:
    if not isinstance(other, WindowedStream):
        raise DescriptionError(
            f"join({type(other).__name__}): give a windowed stream, such as "
            "other.window(...); joins are written one after the other"
        )
    if not on:
        raise DescriptionError("join(on=[]): name at least one column that the sides have")
    if other._app is not left._app:
        raise DescriptionError("join(other): both streams must belong to the same App")
    if left._by or other._by:
        raise DescriptionError(
            "window(by=...).join(...): rows are joined before they are grouped; leave out `by` "
            "and give it to aggregate(by=...)"
        )
    check_common(left._windows, "join(...)", JOIN_INSTEAD)
    check_join(how, left._windows, other._windows)
    return JoinedRows(left, SidesNode((*sides, other._node), on, (*hows, how)))


def _aggregated(
    app: App, node: Node, windows: Windows, by: tuple[str, ...], aggregates: dict[str, Aggregate]
) -> Result:
    check_aggregates(aggregates, by)
    if isinstance(windows, CountWindows):
        check_no_sketches(aggregates, f"windows of {windows.text} have")
    return Result(app, Output(app.name, "", node, windows, by, aggregates, None, None))


def _applied(app: App, node: Node, windows: Windows, function: FrameFunction) -> Result:
    if not callable(function):
        raise DescriptionError(f"apply({function!r}): give a function from DataFrame to DataFrame")
    return Result(app, Output(app.name, "", node, windows, (), {}, function, None))
