from __future__ import annotations

import pytest

from slackwater.errors import SinkUnavailableError
from slackwater.spark.kafka import absence, client_calls
from slackwater.spark.kafka.absence import Absence


class Watch:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


def test_one_at_a_time_asks_a_broker_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, away = Watch(), Absence()
    monkeypatch.setattr(absence, "time", watch)
    away.admit()
    away.begins(SinkUnavailableError("no answer"))
    with pytest.raises(SinkUnavailableError, match="no answer"):
        away.admit()
    watch.now += client_calls.PAUSE_S
    away.admit()  # this one asks
    watch.now += client_calls.CALL_S
    with pytest.raises(SinkUnavailableError, match="no answer"):
        away.admit()
    away.ends()
    away.admit()
    away.admit()
