from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from slackwater.errors import DescriptionError
from slackwater.spark.sinks.console import console

Make = Callable[..., pa.Table]


def test_one_line_is_printed_for_each_row_up_to_the_limit(
    make_panes: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    console(rows=3).open().write(make_panes(rows=1_005), 0)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:4] == ["query", "window_start", "window_end", "pane"]
    assert [line.split()[0] for line in lines[1:4]] == ["ads"] * 3
    assert lines[4:] == ["... and 1,002 more rows"]


def test_text_is_printed_as_it_is_on_one_line(
    make_panes: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    panes = make_panes(rows=2)
    panes = panes.set_column(6, "campaign", pa.array(["[red]\nhot[/red]", None]))
    console().open().write(panes, 0)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert "[red] hot[/red]" in lines[1]
    assert " - " in lines[2]


def test_showing_no_rows_is_refused() -> None:
    with pytest.raises(DescriptionError, match="rows=0"):
        console(rows=0)
