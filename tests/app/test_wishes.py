from __future__ import annotations

from typing import Any

import pytest

import slackwater as sw
from slackwater.app.outputs import Output
from slackwater.errors import DescriptionError
from slackwater.lateness.cleanup import Cover
from slackwater.lateness.triggers import EveryEvents, EveryInterval, Staleness


def wished(windows: Any = None, **wishes: Any) -> Output:
    stream = sw.App("wishes").source("events")
    windowed = stream.window(windows or sw.tumbling("3 s"), by="k")
    return windowed.aggregate(n=sw.count()).to(None, **wishes)


def test_plain_lateness_is_kept_as_it_is() -> None:
    assert wished(lateness="30 s").lateness.bound == 30_000
    assert not wished(lateness="30 s").lateness.learns
    assert wished().lateness.bound == 0


def test_wishes_about_late_events_are_taken_in() -> None:
    wish = wished(staleness=0.05, lateness=sw.cover(0.99)).lateness
    assert wish.bound == Cover(0.99, 0.95, 3_600_000)
    assert wish.trigger == Staleness(0.05)
    every = wished(lateness="1 min", staleness=sw.amend_every(interval="10 s")).lateness
    assert every.trigger == EveryInterval(10_000)
    assert wished(lateness="1 min", staleness=sw.amend_every(events=9)).lateness.trigger == (
        EveryEvents(9)
    )


@pytest.mark.parametrize(
    ("wishes", "said"),
    [
        ({"staleness": 0.05}, "how late they may be"),
        ({"staleness": 2, "lateness": "1 s"}, "staleness=2"),
        ({"staleness": "often", "lateness": "1 s"}, "staleness='often'"),
        ({"lateness": 5}, "lateness=5"),
        ({"windows": sw.sessions("1 min"), "lateness": sw.cover(0.9)}, "sessions 60 s"),
        (
            {"windows": sw.sessions("1 min"), "lateness": "1 s", "staleness": 0.1},
            "sessions 60 s",
        ),
    ],
)
def test_wishes_that_cannot_be_are_refused(wishes: dict[str, Any], said: str) -> None:
    with pytest.raises(DescriptionError, match=said):
        wished(**wishes)


def test_amending_needs_one_measure() -> None:
    for given in ({}, {"interval": "1 s", "events": 3}):
        with pytest.raises(DescriptionError, match=r"either interval=... or events=..."):
            sw.amend_every(**given)  # type: ignore[arg-type]
    with pytest.raises(DescriptionError, match="events=0"):
        sw.amend_every(events=0)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"share": 1.0}, "share=1.0"),
        ({"confidence": 0}, "confidence=0"),
        ({"start": "0 s"}, "start"),
    ],
)
def test_covers_that_cannot_be_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(DescriptionError, match=said):
        sw.cover(**{"share": 0.9, **settings})
