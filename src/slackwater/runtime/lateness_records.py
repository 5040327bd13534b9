"""How what is known of late events is written to the journal: compact JSON, exact when read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from typing import Any

from slackwater.lateness.cleanup import Cover
from slackwater.lateness.observed import ObservedLateness, Seen
from slackwater.lateness.state import Amendment, LatenessChange, LatenessState, LatenessWish
from slackwater.lateness.triggers import AmendTrigger, EveryEvents, EveryInterval, Staleness

Json = dict[str, Any]
_TRIGGERS: Mapping[str, Callable[..., AmendTrigger]] = {
    kind.__name__: kind for kind in (Staleness, EveryInterval, EveryEvents)
}


def lateness_change_to_json(change: LatenessChange) -> Json:
    """Write what a step changed, without what it left alone."""
    cells: Json = {"seen": _seen_to_json(change.seen)}
    if change.since_ms is not None:
        cells["since"] = change.since_ms
    if change.bounds is not None:
        cells["bounds"] = change.bounds
    if change.amendments:
        cells["amend"] = _amendments_to_json(change.amendments)
    if change.settled:
        cells["settled"] = change.settled
    return cells


def lateness_change_from_json(cells: Json) -> LatenessChange:
    """Read what a step changed."""
    bounds = cells.get("bounds")
    return LatenessChange(
        seen=_seen_from_json(cells["seen"]),
        since_ms=cells.get("since"),
        bounds=None if bounds is None else _pairs(bounds),
        amendments=_amendments_from_json(cells.get("amend", ())),
        settled=tuple(cells.get("settled", ())),
    )


def lateness_to_json(state: LatenessState) -> Json:
    """Write all that is known."""
    return {
        "observed": [_seen_to_json(each) for each in state.observed.generations],
        "growing": _seen_to_json(state.growing),
        "since": state.since_ms,
        "bounds": state.bounds,
        "amend": _amendments_to_json(state.amendments),
    }


def lateness_from_json(cells: Json) -> LatenessState:
    """Read all that is known."""
    return LatenessState(
        observed=ObservedLateness(tuple(map(_seen_from_json, cells["observed"]))),
        growing=_seen_from_json(cells["growing"]),
        since_ms=cells["since"],
        bounds=_pairs(cells["bounds"]),
        amendments=_amendments_from_json(cells["amend"]),
    )


def wish_to_json(wish: LatenessWish) -> Json:
    """Write a wish, so that a journal tells why its windows are kept."""
    trigger = wish.trigger
    return {
        "bound": astuple(wish.bound) if isinstance(wish.bound, Cover) else wish.bound,
        "cover": isinstance(wish.bound, Cover),
        "trigger": None if trigger is None else [type(trigger).__name__, *vars(trigger).values()],
    }


def wish_from_json(cells: Json) -> LatenessWish:
    """Read a wish."""
    trigger = None
    if cells["trigger"] is not None:
        name, *settings = cells["trigger"]
        trigger = _TRIGGERS[name](*settings)
    return LatenessWish(Cover(*cells["bound"]) if cells["cover"] else cells["bound"], trigger)


def _seen_to_json(seen: Seen) -> list[Any]:
    return [seen.on_time, seen.windows, [list(pair) for pair in seen.late.items()]]


def _seen_from_json(cells: Sequence[Any]) -> Seen:
    on_time, windows, late = cells
    return Seen(on_time, dict(_pairs(late)), windows)


def _amendments_to_json(amendments: Mapping[int, Amendment]) -> list[list[int]]:
    return [[w, each.executed_ms, each.waiting, each.late] for w, each in amendments.items()]


def _amendments_from_json(cells: Sequence[Sequence[int]]) -> dict[int, Amendment]:
    return {window_ms: Amendment(*numbers) for window_ms, *numbers in cells}


def _pairs(cells: Sequence[Sequence[int]]) -> tuple[tuple[int, int], ...]:
    return tuple((one, two) for one, two in cells)
