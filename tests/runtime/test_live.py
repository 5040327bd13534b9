from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from slackwater.errors import SourceError
from slackwater.runtime.fleet import Fleet
from slackwater.runtime.live import LiveInputs, read_live


class Reader:
    """What a source tells of itself."""

    lost = 3

    def __init__(self) -> None:
        self.away: str | None = None
        self.gone = False

    def lags(self, positions: dict[int, int]) -> dict[str, int]:
        if self.gone:
            raise SourceError("gone")
        return {"clicks/0": 40 - positions[0]}

    def waits_for(self) -> str | None:
        return self.away


class Queries:
    """A fleet of one query, whose input grows by 500 records a second, half of them read."""

    def __init__(self) -> None:
        self.reader = Reader()
        state = SimpleNamespace(name="q", records_read=0)
        query = SimpleNamespace(number=4, row=0, state=state, readers=(self.reader,))
        query.positions = lambda index: {0: 30}
        self.queries = [query]

    def queued(self, now_ms: float) -> Any:
        self.queries[0].state.records_read = int(now_ms / 4)
        return np.array([int(now_ms / 4)])


def run_now(work: Callable[[], object]) -> object:
    return work()


def test_what_is_seen_of_inputs_is_written_beside_the_journal(tmp_path: Path) -> None:
    fleet = Queries()
    live = LiveInputs(cast(Fleet, fleet), tmp_path)
    assert read_live(tmp_path) == ()
    for now_ms in range(0, 8_000, 20):
        live.turn(float(now_ms), float(now_ms), run_now)
    fleet.reader.away = "Kafka at x:1 does not answer"
    live.turn(9_000.0, 9_000.0, run_now)
    (told,) = read_live(tmp_path)
    assert told.arrivals_per_s == pytest.approx(500, rel=0.01)
    assert (told.query, told.lags, told.lost) == ("q", {"clicks/0": 10}, 3)
    assert told.waits_for == "Kafka at x:1 does not answer"


def test_input_that_is_gone_does_not_keep_others_from_being_told(tmp_path: Path) -> None:
    fleet = Queries()
    fleet.reader.gone = True
    live = LiveInputs(cast(Fleet, fleet), tmp_path)
    live.turn(0.0, 0.0, run_now)
    (told,) = read_live(tmp_path)
    assert told.lags == {}


def test_unreadable_file_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / "live.json").write_text("{")
    assert read_live(tmp_path) == ()
    live = LiveInputs(cast(Fleet, Queries()), tmp_path / "nowhere")
    live.turn(0.0, 0.0, run_now)
