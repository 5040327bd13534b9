"""Print the tables of docs/estimators.md: `python lab/experiments/forecast_tables.py`."""

from __future__ import annotations

import math

import numpy as np
from forecasts import (
    DELAYS,
    ESTIMATORS,
    measure,
    measure_joined,
    measure_shift,
    measure_wandering,
    stream_of,
)

from slackwater.progress.coverage import Coverage
from slackwater.progress.estimators import QuantileEstimator

SEEDS = range(4)
JOINS = (
    ("exp", "exp"),
    ("zipf", "zipf"),
    ("uniform", "gamma"),
    ("lognormal", "exp", "uniform"),
    ("gamma", "gamma", "gamma"),
)


def coverage_table(period_ms: int) -> str:
    """Write coverage and mean width of every estimator over every delay, as Markdown."""
    lines = [
        "| delay | " + " | ".join(ESTIMATORS) + " |",
        "|---" * (len(ESTIMATORS) + 1) + "|",
    ]
    for name in DELAYS:
        cells = []
        for make in ESTIMATORS.values():
            stream = stream_of(name, period_ms)
            total = Coverage.total(measure(make, stream, seed) for seed in SEEDS)
            cells.append(_cell(total))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def recovery_table(period_ms: int, runs: int = 100) -> str:
    """Write how the quantile estimator takes a threefold delay, as Markdown."""
    lines = [
        "| delay | noticed after (median) | epochs 1-20 | epochs 21-60 |",
        "|---|---|---|---|",
    ]
    for name in DELAYS:
        seen = [measure_shift(QuantileEstimator, name, period_ms, seed) for seed in range(runs)]
        noticed = np.median(
            [math.inf if s.noticed_after is None else s.noticed_after for s in seen]
        )
        first = Coverage.total(s.first_20 for s in seen)
        following = Coverage.total(s.next_40 for s in seen)
        shown = f"{noticed:.0f}" if math.isfinite(noticed) else "more than 60"
        lines.append(f"| {name} | {shown} | {_percent(first)} | {_percent(following)} |")
    return "\n".join(lines)


def joined_table(period_ms: int) -> str:
    """Write how well the last of several inputs is forecast, as Markdown."""
    lines = ["| inputs | combined |", "|---|---|"]
    for names in JOINS:
        total = Coverage.total(measure_joined(names, period_ms, seed) for seed in SEEDS)
        lines.append(f"| {', '.join(names)} | {_cell(total)} |")
    return "\n".join(lines)


def wandering_table() -> str:
    """Write how lags that are not independent are held, as Markdown."""
    lines = ["| lags | quantile |", "|---|---|"]
    for correlation in (0.0, 0.3, 0.6, 0.9):
        total = Coverage.total(measure_wandering(correlation, 0.0, seed) for seed in SEEDS)
        lines.append(f"| correlated at {correlation:g} with the one before | {_cell(total)} |")
    for windows in (400, 100, 50):
        total = Coverage.total(measure_wandering(0.0, 1 / windows, seed) for seed in SEEDS)
        lines.append(f"| drifting by a deviation in {windows} windows | {_cell(total)} |")
    return "\n".join(lines)


def _cell(coverage: Coverage) -> str:
    return f"{_percent(coverage)}, {coverage.mean_width_ms:,.0f} ms"


def _percent(coverage: Coverage) -> str:
    return "-" if coverage.share is None else f"{100 * coverage.share:.1f} %"


def main() -> None:
    """Print all tables."""
    for period_ms in (100, 3_000):
        print(f"Watermarks every {period_ms} ms: coverage at 95 %, mean width\n")
        print(coverage_table(period_ms), end="\n\n")
        print(f"Delays grow threefold, watermarks every {period_ms} ms: coverage\n")
        print(recovery_table(period_ms), end="\n\n")
        print(f"Several inputs, watermarks every {period_ms} ms: coverage at 95 %, mean width\n")
        print(joined_table(period_ms), end="\n\n")
    print("Lags that are not independent: coverage at 95 %, mean width\n")
    print(wandering_table())


if __name__ == "__main__":
    main()
