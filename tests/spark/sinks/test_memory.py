from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from slackwater.errors import SinkError
from slackwater.spark.sinks.memory import memory

Make = Callable[..., pa.Table]


def test_the_last_pane_of_each_window_can_be_read(make_panes: Make) -> None:
    sink = memory()
    writer = sink.open()
    writer.write(make_panes("ads", 0), 0)
    writer.write(pa.concat_tables([make_panes("ads", 1), make_panes("ads", 0, pane=1)]), 0)
    assert sink.table().num_rows == len(sink.rows()) == 15
    assert [row["views"] for row in sink.rows()[:2]] == [0, 1]
    expected = pa.concat_tables([make_panes("ads", 1), make_panes("ads", 0, pane=1)])
    assert sink.last_panes().equals(expected)


def test_opening_again_goes_on_with_the_same_panes(make_panes: Make) -> None:
    sink = memory()
    sink.open().write(make_panes("ads", 0), 0)
    sink.open().write(pa.concat_tables([make_panes("ads", 0), make_panes("ads", 1)]), 0)
    assert sink.table().num_rows == 10


def test_nothing_written_reads_as_no_rows() -> None:
    assert memory().rows() == []
    assert memory().last_panes().num_rows == 0


def test_other_columns_are_refused_by_name(make_panes: Make) -> None:
    sink = memory()
    sink.open().write(make_panes(), 0)
    with pytest.raises(SinkError, match="memory sink: no column 'views'"):
        sink.open().write(make_panes("ads", 1).drop_columns("views"), 0)
    assert sink.table().num_rows == 5
