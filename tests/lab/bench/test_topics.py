from __future__ import annotations

import tomllib

import numpy as np
import pytest

from slackwater.errors import DescriptionError
from slackwater_lab.bench.inputs import inputs_of, query_name, workload_of
from slackwater_lab.bench.options import BenchOptions
from slackwater_lab.bench.stock_topics import _lag
from slackwater_lab.bench.topics import TopicFeed
from slackwater_lab.inject.scenario import Scenario, scenario_of
from slackwater_lab.workloads.due import Span
from slackwater_lab.workloads.injected import make_records

START_MS = 1_700_000_000_000
OPTIONS = BenchOptions(
    source="kafka", servers="127.0.0.1:1", queries=3, rate=50, seconds=9, warmup=10, delay="zipf"
)


def feed() -> TopicFeed:
    lag_ms = inputs_of(OPTIONS, 0)[0]["events"].watermark_lag_ms
    return TopicFeed(OPTIONS, "bench", lag_ms, START_MS)


def scenario(topics: TopicFeed) -> Scenario:
    text = topics._scenario(topics._rates.phases[0])
    return scenario_of(tomllib.loads(text), "bench")


def test_each_topic_gets_the_events_of_its_query() -> None:
    found = scenario(feed())
    assert found.start_ms == START_MS
    assert [topic.name for topic in found.topics] == ["bench-0", "bench-1", "bench-2"]
    for topic, inputs in zip(found.topics, inputs_of(OPTIONS, START_MS), strict=True):
        source = inputs["events"]
        assert (topic.seed, topic.delay) == (source.seed, source.delay)
        assert topic.rates.phases[0].from_rate == source.rate


def test_a_window_is_due_when_a_record_has_passed_it_by_the_bound() -> None:
    topics = feed()
    span = Span(START_MS + 10_000, START_MS + 19_000)
    due = topics.due(span)
    found = scenario(topics)
    for number, topic in enumerate(found.topics):
        (grid,) = workload_of(OPTIONS).grids(OPTIONS.phase, number)
        arrivals_us = START_MS * 1_000 + topic.rates.arrivals_us(0, topic.rates.records)
        made = make_records(topic.workload, topic.delay, topic.seed, 0, arrivals_us)
        events_ms = made.table["event_time"].cast("int64").to_numpy() // 1_000
        ends = [end_ms for query, end_ms in due if query == query_name(number)]
        assert len(ends) == 3
        for end_ms in ends:
            passing = np.flatnonzero(events_ms >= end_ms + topics.lag_ms)
            assert due[query_name(number), end_ms] == -(-int(arrivals_us[passing[0]]) // 1_000)
            assert (end_ms - grid.offset_ms) % grid.slide_ms == 0


@pytest.mark.parametrize(
    "change",
    [
        {"workload": "nyt"},
        {"start": "random"},
        {"load": 0.5},
        {"policies": ("klink", "flink")},
    ],
)
def test_what_is_not_written_for_topics_is_refused(change: dict[str, object]) -> None:
    (field,) = change
    with pytest.raises(DescriptionError, match=rf"{field}=.*kafka"):
        BenchOptions(source="kafka", **change)  # type: ignore[arg-type]


def test_servers_need_the_source_kafka() -> None:
    with pytest.raises(DescriptionError, match=r"servers='b:1' cannot be"):
        BenchOptions(servers="b:1")


def test_the_lag_of_a_batch_is_what_it_left_unread() -> None:
    source = {"latestOffset": '{"t":{"0":90,"1":7}}', "endOffset": '{"t":{"0":80,"1":7}}'}
    assert _lag({"sources": [source]}) == 10
