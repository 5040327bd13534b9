"""Print the tables of docs/sampling.md: `python lab/experiments/sampling_tables.py [windows]`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from slackwater.sampling.audits import binomial_tail
from slackwater.sampling.planner import Method
from slackwater_lab.simulate.sampled import ReplayedWindow
from slackwater_lab.simulate.sampled_workloads import SAMPLED_WORKLOADS

WINDOWS = 400
STREAMS = ("CC", "GG", "EC", "EG")
RATES = (5_000.0, 25_000.0)


@dataclass(frozen=True)
class Kept:
    """Count the results that stayed within the error, and those whose bounds held the truth."""

    results: int
    within: int
    held: int
    sampled_share: float
    wait_ms: float

    @classmethod
    def of(cls, windows: Iterable[ReplayedWindow], least_share: float = 0.0) -> Kept:
        """Count over windows, and in them over groups with at least a share of the rows."""
        seen = list(windows)
        errors = np.concatenate([w.errors[w.shares >= least_share] for w in seen])
        held = np.concatenate([w.covered[w.shares >= least_share] for w in seen])
        return cls(
            len(errors),
            int((errors <= 0.05).sum()),
            int(held.sum()),
            float(np.mean([w.sampled_share for w in seen])),
            float(np.mean([w.wait_ms for w in seen])),
        )

    @property
    def doubt(self) -> float:
        """Return how likely so many misses are if 95 % of results stay within the error."""
        return binomial_tail(self.results, 0.05, self.results - self.within)


def kept_table(windows: int, method: Method = "early") -> str:
    """Write how often errors and bounds are kept, as Markdown."""
    lines = [
        "| workload | stream | ev/s | within 5 % | binomial p | bounds hold | sampled | wait |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in ("ysb", "nyt", "kmeans", "ysb by group"):
        workload = SAMPLED_WORKLOADS[name]
        for rate in RATES:
            for stream in STREAMS:
                replay = workload.replay(stream, rate, method=method)
                kept = Kept.of(replay.run(windows), workload.group_share or 0.0)
                lines.append(
                    f"| {name} | {stream} | {rate:,.0f} | {kept.within / kept.results:.1%} | "
                    f"{kept.doubt:.2f} | {kept.held / kept.results:.1%} | "
                    f"{kept.sampled_share:.1%} | {kept.wait_ms:.0f} ms |"
                )
    return "\n".join(lines)


def hard_table(windows: int) -> str:
    """Write how promises fare where the stream breaks what they rest on, as Markdown."""
    lines = [
        "| stream | audited | windows | within 5 % | bounds hold | sampled | caution |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in ("shifting", "stragglers differ"):
        for every in (10_000, 10, 1):
            replay = SAMPLED_WORKLOADS[name].replay("EG", 5_000.0, audit_every=every)
            seen = list(replay.run(windows))
            audited = "never" if every > windows else f"1 in {every}"
            for first in range(0, windows, windows // 4):
                kept = Kept.of(seen[first : first + windows // 4])
                lines.append(
                    f"| {name} | {audited} | {first + 1}-{first + windows // 4} | "
                    f"{kept.within / kept.results:.1%} | {kept.held / kept.results:.1%} | "
                    f"{kept.sampled_share:.1%} | {replay.audits.caution:.2f} at the end |"
                )
    return "\n".join(lines)


def main(windows: int = WINDOWS) -> None:
    """Print all tables."""
    print(kept_table(windows), hard_table(windows), sep="\n\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else WINDOWS)
