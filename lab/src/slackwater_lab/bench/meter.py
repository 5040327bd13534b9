"""Watch from outside what a process and all its descendants use of the machine."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
import psutil

from slackwater_lab.workloads.due import Span

PERIOD_S = 0.5
_MB = 1024 * 1024


@dataclass(frozen=True)
class Sample:
    """Hold what a process tree had used at one moment."""

    moment_ms: float
    cpu_s: float
    resident_bytes: int


class TreeMeter:
    """Sample a process tree in the background, so that it is not disturbed by its own measuring."""

    def __init__(self, pid: int) -> None:
        """Watch the process with this id."""
        self._root = psutil.Process(pid)
        self._samples: list[Sample] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="bench-meter", daemon=True)

    def __enter__(self) -> Self:
        """Begin to sample."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop sampling."""
        self._stop.set()
        self._thread.join()

    def usage(self, span: Span) -> dict[str, float | None]:
        """Say what the tree used within a span, of all cores and of memory."""
        return usage_of(self._samples, span, psutil.cpu_count() or 1)

    def samples(self, span: Span) -> list[list[float]]:
        """List what was seen within a span: the moment, CPU seconds so far, megabytes held."""
        return [
            [round(it.moment_ms), round(it.cpu_s, 2), round(it.resident_bytes / _MB, 1)]
            for it in self._samples
            if it.moment_ms in span
        ]

    def _watch(self) -> None:
        while not self._stop.is_set():
            try:
                self._samples.append(sample_tree(self._root))
            except psutil.NoSuchProcess:
                return
            self._stop.wait(PERIOD_S)


def usage_of(samples: list[Sample], span: Span, cores: int) -> dict[str, float | None]:
    """Work out the share of all cores' time, and the peak of resident memory, within a span."""
    within = [sample for sample in samples if sample.moment_ms in span]
    if len(within) < 2:
        return {"cpu_share": None, "memory_peak_mb": None}
    moments = [sample.moment_ms for sample in samples]
    spent = np.interp([span.first_ms, span.until_ms], moments, [sample.cpu_s for sample in samples])
    cpu_s = float(spent[1] - spent[0])
    peak = max(sample.resident_bytes for sample in within)
    return {
        "cpu_share": round(cpu_s / (span.length_ms / 1_000 * cores), 4),
        "memory_peak_mb": round(peak / _MB, 1),
    }


def sample_tree(root: psutil.Process) -> Sample:
    """Add up what a process and its descendants have used so far."""
    cpu_s, resident = 0.0, 0
    moment_ms = time.time() * 1_000
    for process in [root, *root.children(recursive=True)]:
        try:
            with process.oneshot():
                times = process.cpu_times()
                cpu_s += times.user + times.system
                resident += process.memory_info().rss
        except psutil.NoSuchProcess:
            if process is root:
                raise
    return Sample(moment_ms, cpu_s, resident)
