"""Results: what windows give, joined, derived from, windowed again, and sent to a sink."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from slackwater.app.aggregates import Aggregate
from slackwater.app.bounds import ErrorWish, bound_names
from slackwater.app.checks import (
    JOIN_INSTEAD,
    check_aggregates,
    check_common,
    check_join,
    check_names,
    check_no_sketches,
    check_windows,
    key_names,
)
from slackwater.app.durations import Duration
from slackwater.app.nodes import Leg, LegsNode
from slackwater.app.outputs import ColumnFunction, Output, Stage
from slackwater.app.sampled import check_sampled
from slackwater.app.windows import Windows
from slackwater.app.wishes import lateness_wish
from slackwater.errors import DescriptionError
from slackwater.lateness.cleanup import Cover
from slackwater.lateness.triggers import AmendTrigger

if TYPE_CHECKING:
    from slackwater.app.stream import App


class Result:
    """Describe what a window gives, before it is said where it goes."""

    def __init__(self, app: App, draft: Output) -> None:
        """Wrap an output without name and sink; users start with `WindowedStream.aggregate`."""
        self._app = app
        self._draft = draft

    def join(
        self, other: Result, *more: Result, on: str | Sequence[str], how: str = "inner"
    ) -> Result:
        """Join results of the same windows by their keys, which are exactly the columns `on`.

        "inner" keeps the groups that every side has, "left" those of this one, "full" all. A side
        that lacks a group gives null, also for counts. Null keys match each other, as in grouping.
        """
        keys = key_names(on, "join(on=...)")
        others = (other, *more)
        self._check_side(keys, self._draft.windows, how)
        for side in others:
            _check_other(side, self._app)
            side._check_side(keys, self._draft.windows, how)
        before = self._draft.join
        legs = before.legs if before else (Leg(self._draft.stream, self._draft.aggregates),)
        hows = before.hows if before else ()
        node = LegsNode(
            legs=(*legs, *(Leg(s._draft.stream, s._draft.aggregates) for s in others)),
            on=keys,
            hows=(*hows, *(how for _ in others)),
        )
        _check_columns_differ(node)
        return Result(
            self._app, replace(self._draft, stream=node, by=keys, aggregates=node.aggregates)
        )

    def derive(self, **functions: ColumnFunction) -> Result:
        """Add columns computed from finished rows, each by a function of a pyarrow.Table.

        The table has query, window_start, window_end, the keys, the values and the columns derived
        before; the function returns one pyarrow.Array of as many values. Rows of many windows come
        together, or those of one in pieces: compute each row from itself, and only from it.
        """
        if not functions:
            raise DescriptionError("derive(): name at least one column, such as derive(toll=...)")
        for name, function in functions.items():
            if not callable(function):
                raise DescriptionError(
                    f"derive({name}={function!r}): give a function from a pyarrow.Table to an Array"
                )
        draft = self._draft
        if draft.function is not None and not draft.stages:
            raise DescriptionError(
                "apply(...).derive(...): compute the column inside the function that apply takes"
            )
        last: Output | Stage = draft.stages[-1] if draft.stages else draft
        check_names((*last.by, *_visible(last), *last.derived, *functions), "derive")
        derived = {**last.derived, **functions}
        if not draft.stages:
            return Result(self._app, replace(draft, derived=derived))
        stages = (*draft.stages[:-1], replace(draft.stages[-1], derived=derived))
        return Result(self._app, replace(draft, stages=stages))

    def window(self, windows: Windows, by: str | Sequence[str] = ()) -> ResultWindows:
        """Window the emitted rows again: each is an event in the last millisecond of its window.

        A late pane replaces the rows that the panes before it gave.
        """
        check_windows(windows)
        remedy = "chain tumbling(...) and sliding(...) windows, or send {} to a sink and read that"
        check_common(self._draft.windows, "window(...) over results", remedy.format("them"))
        check_common(windows, "window(...) over results", remedy.format("the results"))
        return ResultWindows(self._app, self._draft, windows, key_names(by, "by"))

    def to(
        self,
        sink: Any,
        *,
        name: str = "output",
        lateness: Duration | Cover = "0 s",
        staleness: float | AmendTrigger | None = None,
        error: ErrorWish | None = None,
    ) -> Output:
        """Send each window's panes to a sink.

        Events up to `lateness` behind the watermark amend their window with a new pane; later ones
        go to the dead letters. `lateness=cover(0.99)` learns how late that has to be. Windows are
        amended with every step that brings late events; with a `staleness` such as 0.05, as rarely
        as possible such that no result is staler, and once more before they are forgotten.

        With `error=within(0.05)` each window has a first pane at its deadline, estimated from a
        sample, with its bounds; with `lateness` too, exact ones follow.
        """
        if not name or "/" in name:
            raise DescriptionError(f"to(name={name!r}): give a name without '/'")
        wish = lateness_wish(lateness, staleness, self._draft.windows)
        output = replace(self._draft, name=name, sink=sink, lateness=wish, error=error)
        if error is not None:
            _check_error(output)
        self._app.add(output)
        return output

    def _check_side(self, on: tuple[str, ...], windows: Windows, how: str) -> None:
        draft = self._draft
        check_common(draft.windows, "join(...)", JOIN_INSTEAD)
        if draft.stages:
            raise DescriptionError(
                "join: a side is windowed twice; join the first windows' results, then window those"
            )
        if draft.keeps_rows:
            raise DescriptionError(
                "join: a side is no aggregate of one stream; join the rows before apply(...), with "
                "a.window(...).join(b.window(...), on=...)"
            )
        if draft.derived:
            raise DescriptionError("join: a side has derived columns; derive after the join")
        check_join(how, windows, draft.windows)
        if set(draft.by) != set(on):
            raise DescriptionError(
                f"join(on={list(on)}): a side is grouped by {list(draft.by)}; results are joined "
                "by exactly the keys that each is grouped by"
            )


class ResultWindows:
    """Describe the windows of a further stage, before anything is computed from them."""

    def __init__(self, app: App, draft: Output, windows: Windows, by: tuple[str, ...]) -> None:
        """Wrap a windowed result; users start with `Result.window`."""
        self._app = app
        self._draft = draft
        self._windows = windows
        self._by = by

    def aggregate(self, **aggregates: Aggregate) -> Result:
        """Compute named aggregates of the emitted rows per window and group."""
        check_aggregates(aggregates, self._by)
        check_no_sketches(aggregates, "a further stage has")
        stage = Stage(self._windows, self._by, aggregates)
        return Result(self._app, replace(self._draft, stages=(*self._draft.stages, stage)))


def _visible(part: Output | Stage) -> tuple[str, ...]:
    join = part.join if isinstance(part, Output) else None
    return tuple(part.aggregates if join is None else join.written)


def _check_other(side: Result, app: App) -> None:
    if not isinstance(side, Result):
        raise DescriptionError(
            f"join({type(side).__name__}): give a result, such as "
            "other.window(..., by=...).aggregate(...)"
        )
    if side._app is not app:
        raise DescriptionError("join(other): both results must belong to the same App")
    if side._draft.join is not None:
        raise DescriptionError(
            "join(other): other is a join itself; join one after the other instead, such as "
            "a.join(b, on=...).join(c, on=...)"
        )


def _check_columns_differ(node: LegsNode) -> None:
    taken = {key.lower() for key in node.on}  # Spark ignores case
    for leg in node.legs:
        for name in leg.aggregates:
            if name.lower() in taken:
                raise DescriptionError(
                    f"join(other): {name!r} is a column of two sides; give each aggregate a name "
                    f"of its own, such as aggregate(other_{name}=...)"
                )
            taken.add(name.lower())


def _check_error(output: Output) -> None:
    """Refuse an error wish where a sample could not keep it."""
    place = output.place
    if not isinstance(output.error, ErrorWish):
        raise DescriptionError(
            f"{place}: error={output.error!r}: write it as error=within(0.05, confidence=0.95)"
        )
    if not isinstance(output.windows, Windows):
        raise DescriptionError(
            f"{place}: error=within(...) over sessions or counted windows: their edges depend on "
            "every event; use tumbling(...) or sliding(...), or leave error= away"
        )
    if output.join is not None or output.row_join is not None:
        raise DescriptionError(
            f"{place}: error=within(...) over a join: a sample of two sides has no known share of "
            "the pairs; give each side an output of its own, or leave error= away"
        )
    if output.stages:
        raise DescriptionError(
            f"{place}: error=within(...) with windows over results: estimates of estimates have no "
            "known bounds; give the first windows an output of their own with error="
        )
    if output.function is not None and not output.error.functions:
        raise DescriptionError(
            f"{place}: error=within(...) with apply(...): what a function makes of a sample is not "
            "known; say what bounds mean for it, with within(..., functions={'cost': ...}), use "
            "aggregate(...), or leave error= away"
        )
    if output.function is None and output.error.functions:
        raise DescriptionError(
            f"{place}: error=within(functions=...) with aggregate(...): aggregates have error "
            "functions; leave functions= away"
        )
    if output.derived:
        raise DescriptionError(
            f"{place}: error=within(...) with derive(...): a derived column has no known bounds; "
            "derive it from the rows of the sink"
        )
    if output.lateness.first_ms and output.windows.spread:
        raise DescriptionError(
            f"{place}: error=within(...) and lateness=... with windows whose offset is 'spread': "
            "early and exact panes come from two queries, which would have windows of their own; "
            "give the windows an offset, such as tumbling('3 s', offset='0 s')"
        )
    if output.function is not None:
        check_names(bound_names(list(output.error.functions)), f"{place}, error=within(...)")
    else:
        check_sampled(place, output.aggregates, output.by)
