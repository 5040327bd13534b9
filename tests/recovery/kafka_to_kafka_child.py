"""A process to be killed: from topics of Kafka into a topic of Kafka.

    python kafka_to_kafka_child.py SERVERS DIRECTORY

prints a line per committed step, and "finished" when all topics are read and all windows closed.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from pathlib import Path

import slackwater as sw
from slackwater.app.outputs import Output
from slackwater.runtime.reports import StepReport
from slackwater.scheduling.snapshot import Decision, FleetSnapshot
from slackwater.spark.sinks.base import Sink

TOPICS = ("in-0", "in-1")
OUT = "out"
SCHEMA = "user_id bigint, ad_type string, event_type string, event_time timestamp"


class SmallSteps:
    """Choose as round_robin does, a few hundred events at a time, so that there are many steps."""

    name = "small_steps"

    def decide(self, fleet: FleetSnapshot) -> Decision:
        """Limit every step."""
        decision = sw.round_robin().decide(fleet)
        return Decision(tuple(replace(step, max_events=600) for step in decision.steps))


class Progress:
    """Tell the parent of every committed step."""

    def step_committed(self, report: StepReport) -> None:
        """Print it."""
        print("step", report.step, flush=True)


def described(sink: Sink) -> tuple[sw.App, Output]:
    """Count views, with amendments for as long as it takes."""
    app = sw.App("views")
    output = (
        app.source("events")
        .transform(lambda df: df.where("event_type = 'view'"))
        .window(sw.tumbling("2 seconds"), by="ad_type")
        .aggregate(n=sw.count(), users=sw.sum("user_id"))
        .to(sink, lateness="1 hour")
    )
    return app, output


def main(servers: str, directory: Path) -> None:
    """Run to the end of all topics, or to the kill."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    spark = sw.session("local[2]")
    app, _ = described(sw.kafka_sink(servers, OUT, key="ad_type"))
    with sw.Runtime(spark, journal=directory / "state", policy=SmallSteps()) as runtime:
        for topic in TOPICS:
            events = sw.kafka(
                servers,
                topic,
                schema=SCHEMA,
                event_time="event_time",
                watermark=sw.bounded("100 ms"),
                follow=False,
            )
            runtime.deploy(app, topic, events=events)
        runtime.observe(Progress())
        runtime.run()
        for query in runtime.queries():
            assert query.quarantined is None, query.quarantined
    print("finished", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
