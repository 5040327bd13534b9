"""Results as `slackwater bench --json` writes them, for tests to read back."""

from typing import Any

from slackwater_lab.bench.figures import Measured, figures
from slackwater_lab.bench.options import BenchOptions
from slackwater_lab.workloads.due import Span


def result(policy: str, *, queries: int = 2, seed: int = 7, **changed: Any) -> dict[str, Any]:
    """Work out a result from four windows, and change or add what a test is about."""
    ends = (1_000, 2_000, 3_000, 4_000)
    seen = Measured(
        span=Span(0, 5_000),
        due={("q", end_ms): end_ms + 40.0 for end_ms in ends},
        out={("q", end_ms): end_ms + 100.0 + place for place, end_ms in enumerate(ends)},
        events=500,
        steps=4,
        served=8,
        decide_ms=[1.0, 2.0],
    )
    return figures(BenchOptions(queries=queries, seed=seed), policy, seen) | changed
