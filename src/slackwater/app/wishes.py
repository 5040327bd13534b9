"""Wishes about late events: how long windows are kept for them, and when they are amended."""

from __future__ import annotations

from slackwater.app.durations import Duration, to_ms
from slackwater.app.windows import KeyedWindows, Windows
from slackwater.errors import DescriptionError
from slackwater.lateness.cleanup import Cover
from slackwater.lateness.state import LatenessWish
from slackwater.lateness.triggers import AmendTrigger, EveryEvents, EveryInterval, Staleness


def cover(share: float, *, confidence: float = 0.95, start: Duration = "1 hour") -> Cover:
    """Keep windows until a share of their events has come, as learned from the stream.

    The bound for new windows is the lateness that `share` of all events stays within, raised so
    that it is long enough with the confidence given. The first windows are kept for `start`: give
    the latest that you expect events to be. Until that time has passed nothing shorter is tried.

    >>> cover(0.99).start_ms
    3600000
    """
    return Cover(share, confidence, to_ms(start, "start"))


def amend_every(*, interval: Duration | None = None, events: int | None = None) -> AmendTrigger:
    """Amend a past window at even intervals of event time, or after so many late events.

    It is given in place of a staleness, which usually needs fewer panes.

    >>> amend_every(events=500)
    EveryEvents(events=500)
    """
    if (interval is None) == (events is None):
        raise DescriptionError(
            "amend_every(): give either interval=... or events=..., such as interval='10 s'"
        )
    if events is not None:
        return EveryEvents(events)
    return EveryInterval(to_ms(interval or "", "interval"))


def lateness_wish(
    lateness: Duration | Cover, staleness: float | AmendTrigger | None, windows: Windows
) -> LatenessWish:
    """Take in what `to(...)` was given for results of these windows."""
    bound = (
        lateness if isinstance(lateness, Cover) else to_ms(lateness, "lateness", allow_zero=True)
    )
    trigger = None
    if staleness is not None:
        trigger = staleness if isinstance(staleness, AmendTrigger) else Staleness(staleness)
        if bound == 0:
            raise DescriptionError(
                f"to(staleness={staleness!r}): no window accepts late events, so none grows stale; "
                "say how late they may be, such as lateness='1 minute' or lateness=cover(0.99)"
            )
    wish = LatenessWish(bound, trigger)
    if wish.learns and isinstance(windows, KeyedWindows):
        asked = "staleness=..." if trigger is not None else "lateness=cover(...)"
        raise DescriptionError(
            f"to({asked}): {windows.text} end when their events say, not at known times; they are "
            "amended with every late event, so give a plain lateness, such as lateness='1 minute'"
        )
    return wish
