from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from slackwater.errors import DescriptionError, SinkError
from slackwater.spark.sinks.callback import callback

Make = Callable[..., pa.Table]


def test_an_exception_becomes_a_sink_error_with_its_text_and_cause(make_panes: Make) -> None:
    def post(panes: pa.Table) -> None:
        raise ConnectionError("line is down")

    with pytest.raises(SinkError, match=r"post .*raised ConnectionError: line is down") as caught:
        callback(post).open().write(make_panes(), 0)
    assert isinstance(caught.value.__cause__, ConnectionError)


def test_a_batch_that_failed_comes_again_whole(make_panes: Make) -> None:
    batches: list[pa.Table] = []

    def fail_once(panes: pa.Table) -> None:
        batches.append(panes)
        if len(batches) == 1:
            raise ConnectionError

    writer = callback(fail_once).open()
    with pytest.raises(SinkError):
        writer.write(make_panes(), 0)
    writer.write(make_panes(), 0)
    assert batches[0].equals(batches[1])


def test_a_writer_of_a_new_process_sends_panes_again(make_panes: Make) -> None:
    batches: list[pa.Table] = []
    for _ in range(2):
        callback(batches.append).open().write(make_panes(), 0)
    assert len(batches) == 2


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(DescriptionError, match="fn='print'"):
        callback("print")  # type: ignore[arg-type]
