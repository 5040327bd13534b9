"""Describe the benchmark's queries to the Flink job: the same events, windows and conditions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from slackwater.progress.arrivals import Arrivals, stream_salt
from slackwater.progress.distributions import (
    ConstantDelay,
    DelayDistribution,
    TabulatedDelay,
    UniformDelay,
    ZipfDelay,
)
from slackwater.progress.grid import WindowGrid
from slackwater.spark.sources.generator import Generator
from slackwater_lab.bench.flink.closing import BoundedStream
from slackwater_lab.bench.inputs import inputs_of, query_name
from slackwater_lab.bench.options import BenchOptions
from slackwater_lab.workloads import ysb
from slackwater_lab.workloads.due import Span, WindowKey, due_ends

CHECKPOINT_MS: Final = 1_000
_LOCAL: Final = "127.0.0.1"
_SETTINGS: Final = {
    "jobmanager.bind-host": _LOCAL,
    "taskmanager.bind-host": _LOCAL,
    "rest.address": _LOCAL,
    "rest.bind-address": _LOCAL,
    "rest.bind-port": "0",
    "restart-strategy.type": "none",  # a benchmark that starts again has failed
    # Each query is one task: nothing goes over the network, and state is on the heap.
    "taskmanager.memory.network.min": "8m",
    "taskmanager.memory.network.max": "8m",
    "taskmanager.memory.managed.size": "8m",
}


@dataclass(frozen=True)
class FlinkJob:
    """Describe a run on Flink, with a watermark every `interval_ms`."""

    options: BenchOptions
    interval_ms: int
    checkpoints: bool = False

    @property
    def tick_ms(self) -> float:
        """Return how often readers look for arrivals: to wake many more often costs more CPU."""
        return min(10.0, max(1.0, self.options.queries / 16))

    def spec(self, directory: Path) -> dict[str, Any]:
        """Write everything that the job must know; streams count time from its start."""
        streams = self.streams(start_ms=0)
        settings = dict(_SETTINGS)
        if self.checkpoints:
            settings["execution.checkpointing.storage"] = "filesystem"
            settings["execution.checkpointing.dir"] = (directory / "checkpoints").as_uri()
        return {
            "queries": [
                {
                    "salt": _signed(stream.arrivals.salt),
                    "start_after_ms": stream.arrivals.start_us // 1_000,
                    "offset_ms": self._grid(number).offset_ms % self._grid(number).slide_ms,
                    "variant": number % self.options.distinct,
                }
                for number, stream in enumerate(streams)
            ],
            "gap_us": streams[0].arrivals.gap_us,
            "delay": delay_spec(streams[0].delay),
            "lag_ms": streams[0].lag_ms,
            "window_ms": self._grid(0).size_ms,
            "watermark_interval_ms": self.interval_ms,
            "checkpoint_ms": CHECKPOINT_MS if self.checkpoints else None,
            "tick_ms": self.tick_ms,
            "settings": settings,
        }

    def streams(self, start_ms: int) -> list[BoundedStream]:
        """Describe the events of all queries, if the run starts at a moment."""
        return [_stream(inputs["events"]) for inputs in inputs_of(self.options, start_ms)]

    def due(self, start_ms: int, span: Span) -> dict[WindowKey, float]:
        """Find the windows that Flink can close within a span, and from when on it can."""
        return {
            (query_name(number), end_ms): closing_ms
            for number, stream in enumerate(self.streams(start_ms))
            for end_ms, closing_ms in due_ends(self._grid(number), stream.closing_arrival_ms, span)
        }

    def _grid(self, number: int) -> WindowGrid:
        return ysb.windows(self.options.phase).grid(number)


def delay_spec(delay: DelayDistribution) -> dict[str, Any]:
    """Write a delay so that the job draws the same milliseconds.

    >>> delay_spec(UniformDelay(0, 500))
    {'kind': 'line', 'low_ms': 0.0, 'span_ms': 500.0}
    """
    match delay:
        case ConstantDelay():
            return {"kind": "line", "low_ms": float(delay.delay_ms), "span_ms": 0.0}
        case UniformDelay():
            low_ms, high_ms = float(delay.low_ms), float(delay.high_ms)
            return {"kind": "line", "low_ms": low_ms, "span_ms": high_ms - low_ms}
        case ZipfDelay():
            chances, others = delay.table.chances, delay.table.others
            return {"kind": "alias", "chances": chances.tolist(), "others": others.tolist()}
        case TabulatedDelay():
            intercepts, slopes = delay.table.intercepts, delay.table.slopes
            return {
                "kind": "quantiles",
                "intercepts": intercepts.tolist(),
                "slopes": slopes.tolist(),
            }
    raise TypeError(f"the Flink job cannot draw from {delay!r}: say how, here and in Delay.java")


def _stream(source: Generator) -> BoundedStream:
    assert source.start_ms is not None
    arrivals = Arrivals(
        salt=stream_salt(source.seed, 0),
        start_us=source.start_ms * 1_000,
        gap_us=1e6 / source.rate,
    )
    return BoundedStream(arrivals, source.delay, source.watermark_lag_ms)


def _signed(bits: int) -> int:
    return bits - (1 << 64) if bits >> 63 else bits
