"""Slackwater: many event-time window queries on one Spark, each result on time."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from slackwater.app.aggregates import (
    approx_distinct,
    approx_quantile,
    count,
    max,
    mean,
    min,
    stddev,
    sum,
    variance,
)
from slackwater.app.bounds import within
from slackwater.app.stream import App
from slackwater.app.watermarks import bounded, from_source, k_slack, punctuated
from slackwater.app.windows import counted, sessions, sliding, tumbling
from slackwater.app.wishes import amend_every, cover
from slackwater.errors import MissingRequirementError, SlackwaterError
from slackwater.runtime.runtime import Runtime
from slackwater.scheduling.baselines import (
    deadline,
    default,
    fcfs,
    highest_rate,
    round_robin,
    streambox,
)
from slackwater.scheduling.klink import klink, klink_no_memory
from slackwater.spark.session import session
from slackwater.spark.sinks.callback import callback
from slackwater.spark.sinks.console import console
from slackwater.spark.sinks.memory import memory
from slackwater.spark.sinks.parquet import parquet
from slackwater.spark.sources.files import files
from slackwater.spark.sources.generator import generator
from slackwater.spark.sources.streaming import read_stream
from slackwater.spark.sources.ysb import ysb, ysb_ads

if TYPE_CHECKING:
    from slackwater.spark.sinks.kafka import kafka_sink
    from slackwater.spark.sources.kafka import kafka

__all__ = [
    "App",
    "Runtime",
    "SlackwaterError",
    "amend_every",
    "approx_distinct",
    "approx_quantile",
    "bounded",
    "callback",
    "console",
    "count",
    "counted",
    "cover",
    "deadline",
    "default",
    "fcfs",
    "files",
    "from_source",
    "generator",
    "highest_rate",
    "k_slack",
    "kafka",
    "kafka_sink",
    "klink",
    "klink_no_memory",
    "max",
    "mean",
    "memory",
    "min",
    "parquet",
    "punctuated",
    "read_stream",
    "round_robin",
    "session",
    "sessions",
    "sliding",
    "stddev",
    "streambox",
    "sum",
    "tumbling",
    "variance",
    "within",
    "ysb",
    "ysb_ads",
]

# Names whose libraries not everybody installs: the module, and what to install for it.
_OF_EXTRAS = {
    "kafka": ("slackwater.spark.sources.kafka", "slackwater[kafka]"),
    "kafka_sink": ("slackwater.spark.sinks.kafka", "slackwater[kafka]"),
    "lrb": ("slackwater_lab.workloads.lrb_reports", "slackwater-lab"),
    "nyt": ("slackwater_lab.workloads.nyt_trips", "slackwater-lab"),
}


def __getattr__(name: str) -> Any:
    """Import what needs an extra when it is first asked for."""
    if name not in _OF_EXTRAS:
        raise AttributeError(f"module 'slackwater' has no attribute {name!r}")
    module, package = _OF_EXTRAS[name]
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as missing:
        raise MissingRequirementError(
            f"slackwater.{name} needs {missing.name}: pip install '{package}'"
        ) from missing
