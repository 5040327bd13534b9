"""Joins and chains are refused when they are written, with the place and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from operator import and_, or_
from typing import Any

import pytest

import slackwater as sw
from slackwater.app.nodes import joined, leaves
from slackwater.app.results import Result
from slackwater.app.stream import WindowedStream
from slackwater.errors import DescriptionError

SECOND = sw.tumbling("1 s")


class Sketch:
    """Write the streams that the tests below put together."""

    def __init__(self) -> None:
        self.app = sw.App("a")

    def rows(self, by: str | tuple[str, ...] = (), windows: Any = SECOND) -> WindowedStream:
        return self.app.source("events").window(windows, by=by)

    def result(self, name: str = "n", by: str | tuple[str, ...] = "k", **kwargs: Any) -> Result:
        return self.rows(by, **kwargs).aggregate(**{name: sw.count()})


def test_a_join_lists_the_inputs_of_all_its_sides() -> None:
    app = sw.App("a")
    results = [
        app.source(name).window(SECOND, by="k").aggregate(**{name: sw.count()})
        for name in ("one", "two", "three")
    ]
    output = results[0].join(results[1], results[2], on="k", how="full").to(sw.memory())
    assert app.inputs == ("one", "two", "three")
    assert [leaf.name for leaf in leaves(output.stream)] == ["one", "two", "three"]
    assert output.by == ("k",)
    assert output.join is not None
    assert output.join.hows == ("full", "full")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda s: s.result().join(s.result("m"), on="k", how="right"), "how='right'.*turn"),
        (lambda s: s.result().join(s.result("m"), on="k", how="outer"), "'inner', 'left' or 'full"),
        (lambda s: s.result().join(s.result("m"), on="j"), r"on=\['j'\].*grouped by \['k'\]"),
        (lambda s: s.result().join(s.result("m", by=("k", "j")), on="k"), "exactly the keys"),
        (lambda s: s.result().join(s.result(), on="k"), r"'n' is a column of two.*other_n="),
        (lambda s: s.result().join(s.rows("k"), on="k"), r"join\(WindowedStream\): give a result"),
        (lambda s: s.result().join(Sketch().result("m"), on="k"), "same App"),
        (
            lambda s: s.result().join(s.result("m", windows=sw.tumbling("2 s")), on="k"),
            "different windows",
        ),
        (
            lambda s: s.result().join(s.result("m").join(s.result("o"), on="k"), on="k"),
            r"one after the other.*a\.join\(b, on=\.\.\.\)\.join",
        ),
        (
            lambda s: s.result().derive(x=len).join(s.result("m"), on="k"),
            "derive after the join",
        ),
        (
            lambda s: (
                s.result()
                .window(SECOND, by="k")
                .aggregate(m=sw.count())
                .join(s.result("o"), on="k")
            ),
            "windowed twice",
        ),
        (lambda s: s.result(by=()).join(s.rows().apply(lambda df: df), on=()), r"before apply"),
        (lambda s: s.rows("k").join(s.rows(), on="k"), r"leave out `by`.*aggregate\(by="),
        (lambda s: s.rows().join(s.rows(), on=()), "at least one column"),
        (lambda s: s.rows().join(s.rows(windows=sw.tumbling("2 s")), on="k"), "different windows"),
        (lambda s: s.rows().join(Sketch().rows(), on="k"), "same App"),
        (lambda s: s.rows().join(s.result(), on="k"), "give a windowed stream"),
        (
            lambda s: s.rows().join(s.rows(), on="k").join(s.rows(), on="j"),
            r"joined on \['k'\].*same columns",
        ),
        (lambda s: s.rows().join(s.rows(), on="k").aggregate(), "at least one"),
        (lambda s: s.rows().join(s.rows(), on="k").apply(None), r"apply\(None\)"),
        (lambda s: s.result().derive(), "at least one column"),
        (lambda s: s.result().derive(x=3), r"derive\(x=3\).*function"),
        (lambda s: s.result().derive(n=len), "'n' is named twice"),
        (lambda s: s.result().derive(k=len), "'k' is named twice"),
        (lambda s: s.result().derive(pane=len), "'pane'.*rename"),
        (lambda s: s.rows().apply(lambda df: df).derive(x=len), "inside the function"),
        (lambda s: s.result().window("1 s"), "tumbling"),
        (lambda s: s.result().window(SECOND, by="pane"), "'pane'.*rename"),
        (lambda s: s.result().window(SECOND).aggregate(), "at least one"),
        (
            lambda s: s.result().window(SECOND).aggregate(d=sw.approx_distinct("n")),
            "no sketches; use count",
        ),
        (
            lambda s: s.result().window(SECOND).aggregate(d=sw.approx_quantile("n", 0.5)),
            "take the sketch in the first stage",
        ),
    ],
)
def test_a_wrong_join_or_chain_names_the_remedy(make: Callable[[Sketch], Any], says: str) -> None:
    with pytest.raises(DescriptionError, match=says):
        make(Sketch())


@pytest.mark.parametrize("hows", list(product(["inner", "left", "full"], repeat=2)))
@pytest.mark.parametrize("present", list(product([False, True], repeat=3)))
def test_what_a_join_keeps_and_shows_is_what_joining_rows_one_by_one_gives(
    hows: tuple[str, ...], present: tuple[bool, ...]
) -> None:
    """One group, up to one row of it on each side: join them as tuples with None for absent."""
    rows: list[tuple[str | None, ...]] = [("a",)] if present[0] else []
    for how, here, name in zip(hows, present[1:], "bc", strict=True):
        right = [name] if here else []
        matched: list[tuple[str | None, ...]] = [(*row, each) for row in rows for each in right]
        if how in ("left", "full") and not right:
            matched += [(*row, None) for row in rows]
        if how == "full" and not rows:
            width = "abc".index(name)
            matched += [(*(None,) * width, each) for each in right]
        rows = matched
    kept, shown = joined(hows, present, and_, or_)
    assert kept == bool(rows)
    if rows:
        assert shown == [cell is not None for cell in rows[0]]
