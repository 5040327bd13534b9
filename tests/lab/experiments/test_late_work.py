"""What late work costs: how figures of several turns become one."""

from __future__ import annotations

import argparse

import pytest
from late_work import START_MS, Findings, source


def test_turns_are_put_together() -> None:
    found = Findings([1_000.0, 2_000.0], [float(n) for n in range(101)], 7, 3 << 20)
    assert found.rate == pytest.approx(1_500)
    assert found.percentile_ms(99) == pytest.approx(99)
    row = "| tiered | 1,500 (1,000, 2,000) | 101 | 50 ms | 99 ms | 7 | 3 MB |"
    assert found.row("tiered") == row


def test_backlog_has_arrived_and_ends() -> None:
    given = argparse.Namespace(rate=50.0, payload=256)
    backlog, paced = source(given, 1, 10.0), source(given, 1, None)
    assert (backlog.start_ms, backlog.limit) == (START_MS, 500)
    assert (paced.start_ms, paced.limit) == (None, None)
