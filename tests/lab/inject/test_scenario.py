from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from slackwater.errors import DescriptionError
from slackwater.progress.arrivals import stream_salt
from slackwater.progress.distributions import NAMED_DELAYS
from slackwater.testing.kafka_broker import USUAL_PORT, usual_port
from slackwater_lab.inject.rates import Phase
from slackwater_lab.inject.scenario import read_scenario, scenario_of
from slackwater_lab.workloads.ysb_events import YsbEvents

EXAMPLE = Path(__file__).parents[3] / "examples" / "rush_hour.toml"
TOPIC: dict[str, Any] = {
    "name": "t",
    "workload": "ysb",
    "phases": [{"seconds": 1, "rate": 10}],
}


def test_the_example_says_what_its_comments_say() -> None:
    scenario = read_scenario(EXAMPLE)
    names = [topic.name for topic in scenario.topics]
    assert names == ["ads-0", "ads-1", "ads-2", "cars", "trips", "points"]
    ads = scenario.topics[1]
    assert ads.workload == YsbEvents(skew=0.5)
    assert ads.delay == NAMED_DELAYS["uniform"]
    assert ads.rates.phases == (Phase(10, 500, 500), Phase(20, 500, 2_000), Phase(10, 2_000, 2_000))
    assert len({topic.seed for topic in scenario.topics}) == 6
    assert scenario.seconds == 40
    assert scenario.start_ms is None


def test_what_is_given_counts_instead_of_what_is_written() -> None:
    scenario = read_scenario(EXAMPLE, servers="other:1", start_ms=5)
    assert scenario.settings.servers == "other:1"
    assert scenario.start_ms == 5


def test_seeds_are_those_of_the_benchmarks_inputs() -> None:
    scenario = scenario_of(
        {"servers": "a:1", "seed": 7, "topics": [{**TOPIC, "name": "t{number}", "count": 3}]}, "f"
    )
    assert [topic.seed for topic in scenario.topics] == [stream_salt(7, n) for n in range(3)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"servers": None}, r"f: servers is missing: give"),
        ({"servers": "nowhere"}, r"f\(servers='nowhere'\).*host:port"),
        ({"rate": 3}, r"f: rate is unknown: a field is one of servers, "),
        ({"seed": "x"}, r"f: seed is 'x': give a whole number"),
        ({"start": "soon"}, r"f: start='soon' is no moment"),
        ({"paced": 1}, r"f: paced is 1: give true or false"),
        ({"options": {"bootstrap.servers": "x"}}, r"'bootstrap.servers' is set here"),
        ({"topics": []}, r"f: topics is empty"),
        ({"topics": [TOPIC, TOPIC]}, r"f: topics: 't' is named twice"),
        ({"topics": [{**TOPIC, "workload": "tpch"}]}, r"topics\[1\]: workload='tpch' is unknown"),
        ({"topics": [{**TOPIC, "delay": "long"}]}, r"delay='long' is unknown: write one of none"),
        ({"topics": [{**TOPIC, "cars": 3}]}, r"topics\[1\]: cars is unknown: .*, skew"),
        ({"topics": [{**TOPIC, "skew": 11}]}, r"topics\[1\]: skew=11 cannot be: give a Zipf"),
        ({"topics": [{**TOPIC, "skew": "much"}]}, r"skew='much' cannot be: give a number"),
        ({"topics": [{**TOPIC, "count": 2}]}, r"name='t' with count=2: several topics need"),
        ({"topics": [{**TOPIC, "count": 0}]}, r"count=0 cannot be: give 1 to"),
        ({"topics": [{**TOPIC, "partitions": 0}]}, r"partitions=0 cannot be"),
        ({"topics": [{**TOPIC, "name": "a b"}]}, r"name='a b' cannot name a topic"),
        ({"topics": [{**TOPIC, "phases": []}]}, r"topics\[1\]: phases=0 cannot be"),
        ({"topics": [{**TOPIC, "phases": None}]}, r"topics\[1\]: phases is missing"),
        (
            {"topics": [{**TOPIC, "phases": [{"seconds": 1}]}]},
            r"topics\[1\]: phases\[1\]: it has \['seconds'\]: write seconds and rate, or",
        ),
        (
            {"topics": [{**TOPIC, "phases": [{"seconds": 1, "rate": -5}]}]},
            r"phases\[1\]: from=-5.0 cannot be: give records a second",
        ),
        (
            {"topics": [{**TOPIC, "phases": [{"seconds": "1", "rate": 5}]}]},
            r"phases\[1\]: seconds='1' cannot be: give a number",
        ),
    ],
)
def test_errors_name_the_field(change: dict[str, Any], said: str) -> None:
    content = {"servers": "a:1", "topics": [TOPIC], **change}
    with pytest.raises(DescriptionError, match=said):
        scenario_of(content, "f")


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(DescriptionError, match=r"none\.toml cannot be read"):
        read_scenario(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("servers = ")
    with pytest.raises(DescriptionError, match=r"bad\.toml is not TOML .*Invalid value"):
        read_scenario(tmp_path / "bad.toml")


@pytest.mark.parametrize(
    "text",
    [
        "servers = " + "[" * 50_000,
        "servers" + ".a" * 5_000 + " = 1",
        "seed = " + "1" * 5_000,
        'servers = "a:1"\n[[topics]]\nname = "t"\nworkload = "ysb"\nphases = [{ seconds = 1'
        + "0" * 400
        + ", rate = 1 }]",
    ],
)
def test_a_file_made_to_break_its_reader_is_refused_in_a_short_line(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "bomb.toml").write_text(text)
    with pytest.raises(DescriptionError, match=r"bomb\.toml") as refused:
        read_scenario(tmp_path / "bomb.toml")
    assert len(str(refused.value)) < 500


def test_the_scenarios_that_we_show_name_the_broker_that_we_start() -> None:
    address = f'servers = "127.0.0.1:{USUAL_PORT}"'
    root = Path(__file__).parents[3]
    for shown in ("examples/rush_hour.toml", "docs/inject.md"):
        assert address in (root / shown).read_text()


def test_the_usual_port_is_taken_only_where_nobody_has_it() -> None:
    with socket.socket() as other:
        try:
            other.bind(("127.0.0.1", USUAL_PORT))
        except OSError:
            pass  # somebody else has it, which does as well
        else:
            other.listen()
        assert usual_port() is None
