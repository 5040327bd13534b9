from __future__ import annotations

import numpy as np
import pytest

from slackwater.runtime.columns import Columns


def test_a_snapshot_stays_as_it_is_when_columns_change() -> None:
    columns = Columns(2)
    shown = columns.shown()
    columns.changed()
    columns.ready[1], columns.query[1], columns.read[1] = True, 4, 9
    assert shown["ready"].tolist() == [False, False]
    assert shown["query"].tolist() == [0, 0]
    assert columns.shown()["ready"].tolist() == [False, True]
    assert columns.shown()["query"].tolist() == [0, 4]
    assert columns.kept()["read"].tolist() == [0, 9]


def test_columns_that_do_not_change_are_not_copied() -> None:
    columns = Columns(2)
    assert columns.shown()["ready"] is columns.shown()["ready"]


def test_nobody_changes_what_a_snapshot_shows() -> None:
    with pytest.raises(ValueError, match="read-only"):
        Columns(2).shown()["last_step"][0] = 7


def test_a_row_more_keeps_the_others() -> None:
    columns = Columns(1)
    columns.query[0], columns.due_at_ms[0], columns.known[0] = 5, 7.0, True
    larger = columns.grown()
    assert larger.query.tolist() == [5, 0]
    assert larger.due_at_ms.tolist() == [7.0, 0.0]
    assert larger.known.tolist() == [True, False]
    assert larger.last_step.tolist() == [-1, -1]
    assert np.isinf(larger.amend_at_ms).all()
