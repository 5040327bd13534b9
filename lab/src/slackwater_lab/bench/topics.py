"""The events of a benchmark through topics of Kafka: one for each query, driven by the injector.

The records are those that the generator makes for the same query and seed, as JSON. Nobody tells
how far event time has come: watermarks trail the newest event by a bound, for every engine alike.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import tomllib
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from pyspark.sql import DataFrame, SparkSession

import slackwater as sw
from slackwater.errors import SlackwaterError
from slackwater.spark.kafka.settings import KafkaSettings
from slackwater.spark.kafka.topics import require_topic
from slackwater.spark.sources.base import SourceDescription
from slackwater_lab.bench.inputs import inputs_of, query_name, workload_of
from slackwater_lab.bench.options import BenchOptions
from slackwater_lab.inject.rates import Phase, RateProfile
from slackwater_lab.inject.scenario import scenario_of
from slackwater_lab.inject.sending import inject
from slackwater_lab.workloads.due import Span, WindowKey, due_ends
from slackwater_lab.workloads.injected import event_times_us

SCHEMA: Final = (
    "user_id bigint, page_id bigint, ad_id bigint, ad_type string, event_type string, "
    "ip_address string, event_time timestamp"
)
# The injector takes so long to start, and goes on while the last windows may still fire.
LEAD_MS: Final = 8_000
DRAIN_S: Final = 12.0


@dataclass
class TopicFeed:
    """Drive one topic for each query of a run."""

    options: BenchOptions
    prefix: str
    lag_ms: int
    start_ms: int = 0
    _process: subprocess.Popen[str] | None = field(default=None, repr=False)

    @classmethod
    def of(cls, options: BenchOptions, policy: str) -> TopicFeed:
        """Make the topics, which nobody has written to."""
        assert options.servers is not None
        lag_ms = inputs_of(options, 0)[0]["events"].watermark_lag_ms
        feed = cls(options, f"bench-{policy}-{uuid.uuid4().hex[:8]}", lag_ms)
        settings = KafkaSettings(options.servers)
        for number in range(options.queries):
            require_topic(settings, feed.topic(number), partitions=1)
        return feed

    def topic(self, number: int) -> str:
        """Name the topic of a query."""
        return f"{self.prefix}-{number}"

    def fill(self, records: int) -> None:
        """Write so many records into each topic, at once."""
        self.start_ms = int(time.time() * 1_000)
        phase = Phase(records / self.options.rate, self.options.rate, self.options.rate)
        text = f"paced = false\n{self._scenario(phase)}"
        inject(scenario_of(tomllib.loads(text), "warm-up"))

    def source(self, number: int, *, follow: bool = True) -> SourceDescription:
        """Describe the topic of a query for Slackwater."""
        assert self.options.servers is not None
        return sw.kafka(
            self.options.servers,
            self.topic(number),
            schema=SCHEMA,
            event_time="event_time",
            watermark=sw.bounded(f"{self.lag_ms} ms"),
            follow=follow,
        )

    def frame(self, spark: SparkSession, number: int) -> DataFrame:
        """Read the topic of a query with Spark's own connector."""
        records = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.options.servers or "")
            .option("subscribe", self.topic(number))
            .option("startingOffsets", "earliest")
            .load()
        )
        return records.selectExpr(f"from_json(CAST(value AS string), '{SCHEMA}') AS r").select(
            "r.*"
        )

    def start(self, directory: Path) -> int:
        """Start the injector in a process of its own; return when its first records arrive."""
        self.start_ms = int(time.time() * 1_000) + LEAD_MS
        file = directory / "scenario.toml"
        file.write_text(self._scenario(self._rates.phases[0]))
        command = "from slackwater.cli.main import app; app()"
        with (directory / "inject.log").open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", command, "inject", str(file), "--json"],
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
            )
        self._log = directory / "inject.log"
        return self.start_ms

    def due(self, span: Span) -> dict[WindowKey, float]:
        """Find the windows that the injected records make due within a span, and when."""
        rates, workload = self._rates, workload_of(self.options)
        arrivals_us = self.start_ms * 1_000 + rates.arrivals_us(0, rates.records)
        due: dict[WindowKey, float] = {}
        for number, sources in enumerate(inputs_of(self.options, self.start_ms)):
            source = sources["events"]
            events_us = event_times_us(source.delay, source.seed, arrivals_us)
            newest_ms = np.maximum.accumulate(events_us) // 1_000
            swept_at = partial(_arrival_ms, newest_ms, arrivals_us, self.lag_ms)
            grid = workload.grids(self.options.phase, number)[0]
            for end_ms, due_ms in due_ends(grid, swept_at, span):
                due[query_name(number), end_ms] = due_ms
        return due

    def check(self) -> None:
        """Raise where the injector has ended with an error."""
        if self._process is not None and self._process.poll() not in (None, 0):
            raise SlackwaterError(f"the injector ended: {self._log.read_text()[-2_000:]}")

    def checked(self, condition: Callable[[], bool]) -> Callable[[], bool]:
        """Look after the injector each time a condition is asked."""

        def ask() -> bool:
            self.check()
            return condition()

        return ask

    def close(self) -> dict[str, Any] | None:
        """End the injector; return what it sent, where it had finished by itself."""
        process, self._process = self._process, None
        if process is None:
            return None
        finished = process.poll() is not None
        process.terminate()
        process.wait(10)
        sent: dict[str, Any] | None = json.loads(self._log.read_text()) if finished else None
        return sent

    @property
    def _rates(self) -> RateProfile:
        seconds = self.options.warmup + self.options.seconds + DRAIN_S
        return RateProfile((Phase(seconds, self.options.rate, self.options.rate),))

    def _scenario(self, phase: Phase) -> str:
        options = self.options
        name = self.prefix + ("-{number}" if options.queries > 1 else "-0")
        lines = [
            f"servers = {json.dumps(options.servers)}",
            f"seed = {options.seed}",
            f"start = {self.start_ms}",
            "[[topics]]",
            f"name = {json.dumps(name)}",
            f"count = {options.queries}",
            'workload = "ysb"',
            f"delay = {json.dumps(options.delay)}",
            f"phases = [{{ seconds = {phase.seconds}, rate = {phase.from_rate} }}]",
        ]
        return "\n".join(lines) + "\n"


def _arrival_ms(newest_ms: Any, arrivals_us: Any, lag_ms: int, end_ms: int) -> float:
    """Tell when the record arrives that moves the watermark past a window's end."""
    place = int(np.searchsorted(newest_ms, end_ms + lag_ms, side="left"))
    if place == len(newest_ms):
        return float("inf")
    return float(-(-int(arrivals_us[place]) // 1_000))
