from __future__ import annotations

from collections.abc import Callable

import pytest

import slackwater as sw
from slackwater.app.stream import App, Stream
from slackwater.errors import DescriptionError


def events() -> Stream:
    return App("shop").source("events")


def test_windows_say_what_they_are() -> None:
    assert sw.tumbling("3 s").text == "tumbling 3 s"
    assert sw.sliding("3 s", "500 ms").text == "sliding 3 s by 500 ms"
    assert sw.sessions("30 s").text == "sessions 30 s"
    assert sw.counted(1_000).text == "1,000 events"
    assert sw.counted(1_000, slide=10).text == "1,000 events every 10"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sw.sessions("0 s"), "gap='0 s' is zero"),
        (lambda: sw.counted(0), r"counted\(events=0\): give a whole number"),
        (lambda: sw.counted(2.5), r"counted\(events=2.5\): give a whole number"),  # type: ignore[arg-type]
        (lambda: sw.counted(True), r"counted\(events=True\): give a whole number"),
        (lambda: sw.counted(2, slide=3), r"events between two windows would be in none"),
        (lambda: sw.counted(2, pause="soon"), "pause='soon' is not a duration"),
    ],
)
def test_what_makes_no_windows_is_refused_by_name(make: Callable[[], object], message: str) -> None:
    with pytest.raises(DescriptionError, match=message):
        make()


@pytest.mark.parametrize("windows", [sw.sessions("3 s"), sw.counted(3)])
@pytest.mark.parametrize(
    ("use", "remedy"),
    [
        (lambda s, w: s.window(w).apply(lambda df: df), r"use aggregate\(\.\.\.\)"),
        (lambda s, w: s.window(w).join(s.window(w), on="k"), r"with union\(\.\.\.\) before"),
        (
            lambda s, w: (
                s.window(w, by="k")
                .aggregate(a=sw.count())
                .join(s.window(w, by="k").aggregate(b=sw.count()), on="k")
            ),
            r"with union\(\.\.\.\) before",
        ),
        (
            lambda s, w: s.window(w).aggregate(a=sw.count()).window(sw.tumbling("1 s")),
            "send them to a sink",
        ),
        (
            lambda s, w: s.window(sw.tumbling("1 s")).aggregate(a=sw.count()).window(w),
            "send the results to a sink",
        ),
    ],
)
def test_what_needs_common_windows_is_refused_with_the_remedy(
    windows: object, use: Callable[[Stream, object], object], remedy: str
) -> None:
    with pytest.raises(DescriptionError, match=remedy):
        use(events(), windows)


def test_who_takes_the_spark_session_for_windows_is_told() -> None:
    with pytest.raises(DescriptionError, match=r"for session windows use sessions\('30 s'\)"):
        sw.session("30 s")


def test_counted_windows_have_no_sketches() -> None:
    with pytest.raises(DescriptionError, match=r"aggregate\(u=approx_distinct\('x'\)\).*sketches"):
        events().window(sw.counted(3)).aggregate(u=sw.approx_distinct("x"))
