from __future__ import annotations

import pytest

from slackwater.runtime.columns import Columns


def test_a_snapshot_stays_as_it_is_when_columns_change() -> None:
    columns = Columns(2)
    shown = columns.shown()
    columns.changeable()
    columns.ready[1] = True
    assert shown["ready"].tolist() == [False, False]
    assert columns.shown()["ready"].tolist() == [False, True]


def test_columns_that_do_not_change_are_not_copied() -> None:
    columns = Columns(2)
    assert columns.shown()["ready"] is columns.shown()["ready"]


def test_nobody_changes_what_a_snapshot_shows() -> None:
    with pytest.raises(ValueError, match="read-only"):
        Columns(2).shown()["last_step"][0] = 7


def test_a_row_more_keeps_the_others() -> None:
    columns = Columns(1)
    columns.query[0] = 5
    assert columns.grown().query.tolist() == [5, 0]
