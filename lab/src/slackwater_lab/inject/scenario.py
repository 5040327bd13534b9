"""What a scenario file says: which topics are driven with which records, how fast, and when."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from slackwater.errors import DescriptionError
from slackwater.parsing import brief, read_toml
from slackwater.progress.arrivals import stream_salt
from slackwater.progress.distributions import NAMED_DELAYS, DelayDistribution
from slackwater.spark.kafka.settings import KafkaSettings
from slackwater_lab.inject.rates import Phase, RateProfile
from slackwater_lab.workloads.injected import InjectedWorkload
from slackwater_lab.workloads.knn import KnnPoints
from slackwater_lab.workloads.lrb_reports import LrbReports
from slackwater_lab.workloads.nyt_trips import NytTrips
from slackwater_lab.workloads.ysb_events import YsbEvents

WORKLOADS: Final[Mapping[str, type[InjectedWorkload]]] = {
    kind.name: kind for kind in (YsbEvents, LrbReports, NytTrips, KnnPoints)
}
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_MOST_TOPICS: Final = 10_000
_TOP_FIELDS: Final = ("servers", "options", "seed", "start", "paced", "topics")
_TOPIC_FIELDS: Final = ("name", "count", "workload", "partitions", "delay", "phases", "seed")


@dataclass(frozen=True)
class TopicPlan:
    """Say what one topic gets."""

    name: str
    workload: InjectedWorkload
    rates: RateProfile
    delay: DelayDistribution
    seed: int
    partitions: int


@dataclass(frozen=True)
class Scenario:
    """Say what all topics get. Without `start_ms` it starts when it is run.

    Where it is not `paced`, records are written as fast as the broker takes them, with the same
    content.
    """

    settings: KafkaSettings
    topics: tuple[TopicPlan, ...]
    start_ms: int | None = None
    paced: bool = True

    @property
    def seconds(self) -> float:
        """Return how long it lasts when it is paced."""
        return max(topic.rates.seconds for topic in self.topics)

    @property
    def records(self) -> int:
        """Count the records of all topics."""
        return sum(topic.rates.records for topic in self.topics)


def read_scenario(
    path: str | Path, servers: str | None = None, start_ms: int | None = None
) -> Scenario:
    """Read a scenario file; `servers` and `start_ms`, where given, count instead of the file's."""
    try:
        content = read_toml(Path(path))
    except OSError as failure:
        raise DescriptionError(
            f"{path} cannot be read ({failure.strerror}): name a scenario file; docs/inject.md "
            "tells its fields"
        ) from failure
    except ValueError as failure:
        raise DescriptionError(
            f"{path} is not TOML that can be read ({failure}): mend it; docs/inject.md tells its "
            "fields"
        ) from failure
    if servers is not None:
        content["servers"] = servers
    if start_ms is not None:
        content["start"] = start_ms
    return scenario_of(content, str(path))


def scenario_of(content: Mapping[str, Any], place: str) -> Scenario:
    """Check what was written; messages name the field, its value and what to write instead."""
    _known(content, _TOP_FIELDS, place)
    if "servers" not in content:
        raise DescriptionError(f'{place}: servers is missing: write servers = "host:port"')
    servers, options = content["servers"], content.get("options", {})
    _typed(servers, str, f"{place}: servers", "a text such as 'host:port'")
    _typed(options, dict, f"{place}: options", "a table of librdkafka's settings")
    seed = _typed(content.get("seed", 0), int, f"{place}: seed", "a whole number")
    tables = _typed(content.get("topics", []), list, f"{place}: topics", "[[topics]] tables")
    if not tables:
        raise DescriptionError(f"{place}: topics is empty: write at least one [[topics]] table")
    topics: list[TopicPlan] = []
    for number, table in enumerate(tables, start=1):
        there = f"{place}: topics[{number}]"
        _typed(table, dict, there, "a table")
        topics += _topics(table, seed, len(topics), there)
    names = [topic.name for topic in topics]
    twice = next((name for name, times in Counter(names).items() if times > 1), None)
    if twice is not None:
        raise DescriptionError(f"{place}: topics: {twice!r} is named twice: give each its own name")
    paced = _typed(content.get("paced", True), bool, f"{place}: paced", "true or false")
    return Scenario(
        KafkaSettings.of(servers, options, place), tuple(topics), _start(content, place), paced
    )


def _start(content: Mapping[str, Any], place: str) -> int | None:
    start = content.get("start", "now")
    if isinstance(start, datetime):
        start = start if start.tzinfo else start.replace(tzinfo=UTC)
        return round(start.timestamp() * 1_000)
    if start == "now":
        return None
    if isinstance(start, int) and not isinstance(start, bool) and 0 <= start < 2**52:
        return start
    raise DescriptionError(
        f"{place}: start={brief(start)} is no moment: write 'now', 2024-01-01T00:00:00Z (without "
        "quotes), or milliseconds since 1970"
    )


def _topics(table: Mapping[str, Any], seed: int, before: int, place: str) -> list[TopicPlan]:
    """Read one table, which may stand for many topics that differ in name and seed."""
    kind = _one_of(table, "workload", WORKLOADS, place)
    _known(table, (*_TOPIC_FIELDS, *kind.settings), place)
    settings = {name: table[name] for name in kind.settings if name in table}
    for name, value in settings.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise DescriptionError(f"{place}: {name}={brief(value)} cannot be: give a number")
    delay = _one_of({"delay": "none", **table}, "delay", NAMED_DELAYS, place)
    count = _typed(table.get("count", 1), int, f"{place}: count", "how many topics")
    partitions = _typed(table.get("partitions", 1), int, f"{place}: partitions", "how many")
    for field, value, most in (("count", count, _MOST_TOPICS), ("partitions", partitions, 1_000)):
        if not 1 <= value <= most:
            raise DescriptionError(f"{place}: {field}={brief(value)} cannot be: give 1 to {most}")
    names = _names(table, count, place)
    with _located(place):
        workload = kind(**settings)
        rates = RateProfile(tuple(_phases(table, place)))
    own = table.get("seed")
    if own is not None:
        _typed(own, int, f"{place}: seed", "a whole number")
    return [
        TopicPlan(
            name=name,
            workload=workload,
            rates=rates,
            delay=delay,
            # Topics of one table differ, whatever its seed; tables differ by their place.
            seed=stream_salt(seed, before + number) if own is None else stream_salt(own, number),
            partitions=partitions,
        )
        for number, name in enumerate(names)
    ]


def _names(table: Mapping[str, Any], count: int, place: str) -> list[str]:
    name = _typed(table.get("name"), str, f"{place}: name", "the name of a topic")
    if (count > 1) != ("{number}" in name):
        raise DescriptionError(
            f"{place}: name={brief(name)} with count={count}: several topics need {{number}} in "
            "their name, and only they"
        )
    names = [name.replace("{number}", str(number)) for number in range(count)]
    if not _TOPIC.fullmatch(names[-1]):
        raise DescriptionError(
            f"{place}: name={brief(name)} cannot name a topic: use letters, digits, '.', '_' and "
            "'-'"
        )
    return names


def _phases(table: Mapping[str, Any], place: str) -> list[Phase]:
    written = _typed(table.get("phases"), list, f"{place}: phases", "a list of phases")
    phases = []
    for number, phase in enumerate(written, start=1):
        there = f"{place}: phases[{number}]"
        _typed(phase, dict, there, "a table such as { seconds = 10, rate = 1000 }")
        with _located(there):
            if set(phase) == {"seconds", "rate"}:
                phases.append(Phase(*_numbers(phase, ("seconds", "rate", "rate"))))
            elif set(phase) == {"seconds", "from", "to"}:
                phases.append(Phase(*_numbers(phase, ("seconds", "from", "to"))))
            else:
                raise DescriptionError(
                    f"it has {sorted(phase)}: write seconds and rate, or seconds, from and to"
                )
    return phases


def _numbers(table: Mapping[str, Any], fields: tuple[str, ...]) -> list[float]:
    for field in fields:
        if isinstance(table[field], bool) or not isinstance(table[field], int | float):
            raise DescriptionError(f"{field}={brief(table[field])} cannot be: give a number")
    try:
        return [float(table[field]) for field in fields]
    except OverflowError:
        raise DescriptionError("a number in it is too large to count with: give less") from None


@contextmanager
def _located(place: str) -> Iterator[None]:
    """Put the place before the message of a field."""
    try:
        yield
    except DescriptionError as error:
        if str(error).startswith(place):
            raise
        raise DescriptionError(f"{place}: {error}") from None


def _one_of(table: Mapping[str, Any], field: str, known: Mapping[str, Any], place: str) -> Any:
    value = table.get(field)
    if not isinstance(value, str) or value not in known:
        raise DescriptionError(
            f"{place}: {field}={brief(value)} is unknown: write one of {', '.join(known)}"
        )
    return known[value]


def _known(table: Mapping[str, Any], fields: tuple[str, ...], place: str) -> None:
    for name in table:
        if name not in fields:
            raise DescriptionError(
                f"{place}: {name} is unknown: a field is one of {', '.join(fields)}"
            )


def _typed(value: Any, kind: type, field: str, wanted: str) -> Any:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        what = "is missing" if value is None else f"is {brief(value)}"
        raise DescriptionError(f"{field} {what}: give {wanted}")
    return value
