"""Averages per sensor, amended while late readings come in, and kept no longer than need be.

One reading in five is late, by 20 s more often than not, and now and then by minutes. Run it with

    slackwater run examples/late_sensors.py --journal state/sensors --seconds 300

and ask meanwhile, in another terminal, why its windows are kept:

    slackwater status state/sensors
"""

from __future__ import annotations

from pyspark.sql import SparkSession

import slackwater as sw
from slackwater.progress.distributions import LateDelay, LogNormalDelay


def describe() -> sw.App:
    """Describe the query: what late readings may cost, instead of how to handle them."""
    app = sw.App("sensors")
    (
        app.source("readings")
        .window(sw.tumbling("20 seconds"), by="sensor")
        .aggregate(readings=sw.count(), value=sw.mean("value"))
        .to(
            sw.parquet("out/sensors"),
            # 99 of 100 readings count; the first windows are kept for two minutes, to find out.
            lateness=sw.cover(0.99, start="2 minutes"),
            # No result is staler than this: a twentieth of the time, or of the late readings.
            staleness=0.05,
        )
    )
    return app


def deploy(rt: sw.Runtime, spark: SparkSession) -> None:
    """Deploy it over readings that are made up."""
    readings = sw.generator(
        rate=500,
        keys=20,
        delay=LateDelay(0.2, LogNormalDelay(20_000, 1.0)),
        columns={"sensor": "key", "value": "pmod(xxhash64(h), 1000) / 10D"},
    )
    rt.deploy(describe(), "hall", readings=readings)
