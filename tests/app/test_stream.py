"""A description is refused when it is made, with the place and the remedy."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import slackwater as sw
from slackwater.app.durations import to_ms
from slackwater.app.nodes import leaves
from slackwater.errors import DescriptionError


def stream() -> Any:
    return sw.App("a").source("events")


def test_an_app_lists_its_outputs_and_inputs() -> None:
    app = sw.App("a")
    left, right = app.source("left"), app.source("right")
    both = left.union(right).window(sw.tumbling("1 s"))
    output = both.aggregate(n=sw.count()).to(sw.memory(), name="both", lateness="2 s")
    assert app.inputs == ("left", "right")
    assert app.outputs == (output,)
    assert [leaf.name for leaf in leaves(output.stream)] == ["left", "right"]
    assert output.lateness.bound == 2_000


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: sw.App(""), r"App\(name=''\).*give a name"),
        (lambda: sw.App("a").source("two words"), r"source\(name='two words'\).*Python name"),
        (lambda: stream().transform("x > 1"), r"transform\('x > 1'\).*function"),
        (lambda: stream().union(stream()), "same App"),
        (lambda: stream().window("3 seconds"), r"window\('3 seconds'\).*tumbling"),
        (lambda: stream().window(sw.tumbling("1 s"), by=["k", "k"]), "'k' is named twice"),
        (lambda: stream().window(sw.tumbling("1 s"), by="pane"), "'pane'.*rename"),
        (lambda: stream().window(sw.tumbling("1 s"), by="_sw_query"), "'_sw_query'.*rename"),
        (lambda: stream().window(sw.tumbling("1 s"), by=[3]), "3 is not a column name"),
        (lambda: stream().window(sw.tumbling("1 s")).aggregate(), "at least one"),
        (lambda: stream().window(sw.tumbling("1 s")).aggregate(n=3), r"n=3.*count"),
        (
            lambda: stream().window(sw.tumbling("1 s"), by="k").aggregate(k=sw.count()),
            "'k' is named twice",
        ),
        (lambda: stream().window(sw.tumbling("1 s"), by="k").apply(len), "leave out `by`"),
        (lambda: stream().window(sw.tumbling("1 s")).apply(None), r"apply\(None\)"),
        (lambda: sw.tumbling("0 s"), "size='0 s' is zero"),
        (lambda: sw.sliding("3 s", "0 s"), "slide='0 s' is zero"),
        (lambda: sw.sliding("3 s", "-1 s"), "slide='-1 s' is negative"),
        (lambda: sw.tumbling("3"), "size='3' is not a duration.*unit"),
        (lambda: sw.tumbling(3), "size=3 is not a duration"),  # type: ignore[arg-type]
        (lambda: sw.tumbling("3 s", offset="4 s"), "offset='4 s' is not smaller.*1000 ms"),
        (lambda: sw.tumbling(timedelta(microseconds=5)), "finer than a millisecond"),
        (lambda: sw.bounded("-1 s"), "negative"),
    ],
)
def test_a_wrong_description_names_the_place_and_the_remedy(make: Any, says: str) -> None:
    with pytest.raises(DescriptionError, match=says):
        make()


def test_an_output_described_twice_is_refused() -> None:
    counts = stream().window(sw.tumbling("1 s")).aggregate(n=sw.count())
    counts.to(sw.memory())
    with pytest.raises(DescriptionError, match=r"twice.*name="):
        counts.to(sw.memory())


@pytest.mark.parametrize(
    ("text", "ms"),
    [("200 ms", 200), ("3 seconds", 3_000), ("1.5 s", 1_500), ("1 hour 30 minutes", 5_400_000)],
)
def test_durations_are_read_as_people_write_them(text: str, ms: int) -> None:
    assert to_ms(text, "size") == ms
