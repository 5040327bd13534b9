from typing import Any

import pytest

from slackwater.errors import DescriptionError
from slackwater_lab.bench.options import BenchOptions
from slackwater_lab.bench.worker import Task, tasks_of


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
        ("load", 0.0),
        ("load", 4.5),
        ("load", float("nan")),
        ("seconds", 0),
        ("warmup", 9.9),
        ("delay", "sometimes"),
        ("distinct", 0),
        ("distinct", 21),
        ("phase", "random"),
        ("start", "never"),
        ("repeat", 0),
        ("data", "trips/"),
        ("sink", "kafka"),
        ("slots", 0),
    ],
)
def test_an_option_that_cannot_be_is_named_with_its_value(field: str, value: Any) -> None:
    with pytest.raises(DescriptionError, match=f"{field}=.* cannot be: give "):
        BenchOptions(**{field: value})


def test_a_task_survives_its_journey_to_the_worker() -> None:
    options = BenchOptions(policies=("fcfs", "stock"), queries=8, delay="zipf", slots=1)
    for own_step_ms in (None, (60.5,)):
        for task in [task for tasks in tasks_of(options, own_step_ms) for task in tasks]:
            assert Task.from_json(task.to_json()) == task
            assert task.own_step_ms == own_step_ms


def test_repeats_have_seeds_of_their_own_and_begin_with_each_policy_in_turn() -> None:
    plan = tasks_of(BenchOptions(policies=("deadline", "fcfs", "default"), repeat=4, seed=5))
    assert [(task.policy, task.options.seed) for [task] in plan] == [
        *(("deadline", 5), ("fcfs", 5), ("default", 5)),
        *(("fcfs", 6), ("default", 6), ("deadline", 6)),
        *(("default", 7), ("deadline", 7), ("fcfs", 7)),
        *(("deadline", 8), ("fcfs", 8), ("default", 8)),
    ]
    labels = [task.label for [task] in plan]
    assert labels[0] == "deadline, seed 5"
    assert len(set(labels)) == len(labels)


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
