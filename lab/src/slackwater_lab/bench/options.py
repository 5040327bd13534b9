"""What a benchmark run is asked to do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, Self

from slackwater.app.sizes import to_bytes
from slackwater.errors import DescriptionError
from slackwater.scheduling.policies import POLICIES
from slackwater_lab.workloads.late_wishes import DELAYS

STOCK: Final = "stock"
FLINK: Final = "flink"
FLINK_DURABLE: Final = "flink_durable"  # with checkpoints
PEERS: Final = (STOCK, FLINK, FLINK_DURABLE)
WORKLOADS: Final = ("ysb", "lrb", "nyt", "average", "bigrams", "stock_market", "lrb_minute")
LEAST_WARMUP_S: Final = 10.0
LEAST_RATE: Final = 10.0  # below, a window might hold no row, and could not be due
MOST_LOAD: Final = 4.0


@dataclass(frozen=True)
class BenchOptions:
    """Describe a comparison: the same events for each policy, one after the other.

    `rate` is records a second of each query; with `load`, it is found by measuring what steps cost,
    so that a pass over every query in each of its windows takes that share of all slots' time.
    `warmup` seconds run first and are left out of the figures. `distinct` is how many different
    pipelines the queries are made from. With `phase` "aligned" all windows close at the same
    instants. With `start` "random" the inputs start one by one, at moments drawn from the seed.
    `repeat` runs everything again with the following seeds. `memory` is the budget for window
    state. With `source` "kafka" the events go through a broker: that of `servers`, or one that is
    started for the run. `durable=False` does not wait for the disk. `data` is a directory of real
    trips for the workload nyt. `directory` takes journals, results and checkpoints (None: the
    system's temporary directory). `json` is where to write the results; `profile` keeps every
    single window in them, and the machine's use over time.
    """

    workload: str = "ysb"
    policies: tuple[str, ...] = ("klink",)
    queries: int = 20
    rate: float = 1_000.0
    load: float | None = None
    seconds: float = 60.0
    warmup: float = 20.0  # forty different templates keep the JIT compiler busy for that long
    delay: str = "none"
    seed: int = 7
    distinct: int = 1
    phase: Literal["spread", "aligned"] = "spread"
    start: Literal["together", "random"] = "together"
    repeat: int = 1
    durable: bool = True
    memory: str = "1 GB"
    sink: Literal["parquet", "memory"] = "parquet"
    source: Literal["generator", "kafka"] = "generator"
    servers: str | None = None
    slots: int | None = None
    data: str | None = None
    directory: str | None = None
    json: str | None = None
    profile: bool = False

    def __post_init__(self) -> None:
        _one_of("workload", self.workload, WORKLOADS)
        to_bytes(self.memory, "memory")
        object.__setattr__(self, "policies", tuple(self.policies))
        _require(len(self.policies) > 0, "policies", self.policies, "name at least one")
        for policy in self.policies:
            _one_of("policies", policy, (*POLICIES, *PEERS))
            _require(self.policies.count(policy) == 1, "policies", policy, "name each once")
            if policy in (FLINK, FLINK_DURABLE):
                wanted = f"another policy: {policy} is written for the workload ysb alone"
                _require(self.workload == "ysb", "policies", policy, wanted)
                wanted = f"together: {policy} cannot start its inputs one by one"
                _require(self.start == "together", "start", self.start, wanted)
        _require(self.queries >= 1, "queries", self.queries, "one or more")
        _number("rate", self.rate, LEAST_RATE, "records a second of each query")
        if self.load is not None:
            _number("load", self.load, 0.01, "a share of all slots' time")
            _require(self.load <= MOST_LOAD, "load", self.load, f"{MOST_LOAD:g} at most")
        _number("seconds", self.seconds, 1.0, "seconds to measure")
        _number("warmup", self.warmup, LEAST_WARMUP_S, "seconds to leave out")
        _one_of("delay", self.delay, DELAYS)
        _require(
            1 <= self.distinct <= self.queries,
            "distinct",
            self.distinct,
            f"one or more, and no more than there are queries ({self.queries})",
        )
        _one_of("phase", self.phase, ("spread", "aligned"))
        _one_of("start", self.start, ("together", "random"))
        _require(self.repeat >= 1, "repeat", self.repeat, "one or more")
        _require(self.data is None or self.workload == "nyt", "data", self.data, "it to nyt alone")
        _one_of("sink", self.sink, ("parquet", "memory"))
        _one_of("source", self.source, ("generator", "kafka"))
        _require(
            self.servers is None or self.source == "kafka",
            "servers",
            self.servers,
            "it with source kafka alone",
        )
        if self.source == "kafka":
            self._check_kafka()
        _require(self.slots is None or self.slots >= 1, "slots", self.slots, "one or more, or none")

    def _check_kafka(self) -> None:
        """Refuse what is not written for topics."""
        _require(self.workload == "ysb", "workload", self.workload, "ysb with source kafka")
        _require(self.start == "together", "start", self.start, "together with source kafka")
        _require(self.load is None, "load", self.load, "a rate with source kafka")
        for policy in self.policies:
            wanted = f"another source: {policy} is not written for kafka"
            _require(policy not in (FLINK, FLINK_DURABLE), "policies", policy, wanted)

    def to_dict(self) -> dict[str, Any]:
        """Write the options as JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote.

        >>> options = BenchOptions(policies=("deadline", "stock"), queries=8)
        >>> BenchOptions.from_dict(options.to_dict()) == options
        True
        """
        return cls(**values)


def variant_text(policy: str, variant: str) -> str:
    """Say with which setting a peer was run, of those that it is tried with.

    >>> variant_text("stock", "3 seconds"), variant_text("flink", "watermarks every 50 ms")
    ('trigger 3 seconds', 'watermarks every 50 ms')
    """
    return f"trigger {variant}" if policy == STOCK else variant


def _one_of(field: str, value: str, known: tuple[str, ...]) -> None:
    _require(value in known, field, value, f"one of {', '.join(known)}")


def _number(field: str, value: float, least: float, what: str) -> None:
    holds = math.isfinite(value) and value >= least
    _require(holds, field, value, f"{what}, {least:g} or more")


def _require(holds: bool, field: str, value: object, wanted: str) -> None:
    if not holds:
        raise DescriptionError(f"{field}={value!r} cannot be: give {wanted}")
