from typing import Any

import pytest

from slackwater.bench.options import BenchOptions
from slackwater.bench.worker import Task, tasks_of
from slackwater.errors import DescriptionError


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("workload", "nexmark"),
        ("policies", ()),
        ("policies", ("deadline", "nobody")),
        ("policies", ("stock", "stock")),
        ("queries", 0),
        ("rate", 0.5),
        ("rate", float("nan")),
        ("seconds", 0),
        ("warmup", 9.9),
        ("delay", "sometimes"),
        ("distinct", 0),
        ("distinct", 21),
        ("phase", "random"),
        ("sink", "kafka"),
        ("slots", 0),
    ],
)
def test_an_option_that_cannot_be_is_named_with_its_value(field: str, value: Any) -> None:
    with pytest.raises(DescriptionError, match=f"{field}=.* cannot be: give "):
        BenchOptions(**{field: value})


def test_a_task_survives_its_journey_to_the_worker() -> None:
    options = BenchOptions(policies=("fcfs", "stock"), queries=8, delay="zipf", slots=1)
    for task in [task for tasks in tasks_of(options) for task in tasks]:
        assert Task.from_json(task.to_json()) == task


def test_structured_streaming_is_tried_with_both_triggers_and_others_once() -> None:
    plan = tasks_of(BenchOptions(policies=("stock", "deadline")))
    assert [[task.label for task in tasks] for tasks in plan] == [
        ["stock, trigger 0 seconds", "stock, trigger 3 seconds"],
        ["deadline"],
    ]


def test_flink_is_tried_with_both_watermark_intervals() -> None:
    plan = tasks_of(BenchOptions(policies=("flink", "flink_durable")))
    assert [[task.label for task in tasks] for tasks in plan] == [
        [f"{peer}, watermarks every {interval} ms" for interval in (50, 200)]
        for peer in ("flink", "flink_durable")
    ]
