"""The streams that sampling is measured on: what records hold, as numpy draws it.

YSB counts the views among views, clicks and purchases of campaigns; NYT takes the mean of trip
distances, which have a long tail; k-means takes the mean squared distance of points to the nearest
of k centres, which is what it makes small. Two more are hard on purpose: values that change
fourfold in mid-run, and stragglers that differ from the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slackwater.sampling.estimates import ErrorFunction, MeanError, TotalError
from slackwater.sampling.planner import Method, Planner
from slackwater.sampling.strata import Floats
from slackwater.sampling.targets import Target
from slackwater_lab.simulate.sampled import Draw, SampledStream, SamplingReplay

Drawn = tuple[NDArray[np.int64], Floats]
CAMPAIGNS = 20  # so that a campaign has one row in twenty
_CENTRES = np.array([(0.0, 0.0), (6.0, 1.0), (2.0, 7.0), (-5.0, 4.0)])


@dataclass(frozen=True, eq=False)
class SampledWorkload:
    """Say what records hold, and which aggregate is taken of them."""

    name: str
    draw: Draw
    function: ErrorFunction
    groups: int = 1
    group_share: float | None = None

    def replay(
        self,
        kind: str,
        rate: float,
        *,
        relative: float = 0.05,
        confidence: float = 0.95,
        method: Method = "early",
        seed: int = 7,
        audit_every: int = 10,
    ) -> SamplingReplay:
        """Prepare a run over one of the paper's streams."""
        target = Target(relative, confidence, self.group_share)
        return SamplingReplay(
            SampledStream(kind, rate, self.draw),
            Planner(target, 600, 1, method),
            self.function,
            groups=self.groups,
            seed=seed,
            audit_every=audit_every,
        )


def _views(rng: np.random.Generator, at: Floats, delays: Floats, window: int) -> Drawn:
    return np.where(rng.random(len(at)) < 1 / 3, 0, -1), np.ones(len(at))


def _campaign_views(rng: np.random.Generator, at: Floats, delays: Floats, window: int) -> Drawn:
    campaign = rng.integers(0, CAMPAIGNS, len(at))
    return np.where(rng.random(len(at)) < 1 / 3, campaign, -1), np.ones(len(at))


def _distances(rng: np.random.Generator, at: Floats, delays: Floats, window: int) -> Drawn:
    return np.zeros(len(at), dtype=np.int64), rng.lognormal(0.7, 0.9, len(at))


def _cluster_costs(rng: np.random.Generator, at: Floats, delays: Floats, window: int) -> Drawn:
    spread = np.array([1.0, 0.5, 2.0, 1.0])
    which = rng.integers(0, len(_CENTRES), len(at))
    points = _CENTRES[which] + rng.normal(size=(len(at), 2)) * spread[which, None]
    away = ((points[:, None, :] - _CENTRES[None, :, :]) ** 2).sum(axis=2)
    return np.zeros(len(at), dtype=np.int64), away.min(axis=1)


def _shifting(rng: np.random.Generator, at: Floats, delays: Floats, window: int) -> Drawn:
    """Multiply mean and variance by four, a hundred windows in every two hundred."""
    shape, scale = (4.0, 2.5) if window // 100 % 2 == 0 else (16.0, 2.5)
    return np.zeros(len(at), dtype=np.int64), rng.gamma(shape, scale, len(at))


def _stragglers_differ(rng: np.random.Generator, at: Floats, delays: Floats, window: int) -> Drawn:
    """Let what comes late be worth up to four times as much."""
    return (
        np.zeros(len(at), dtype=np.int64),
        rng.gamma(4.0, 2.5, len(at)) * (1.0 + 3.0 * np.minimum(delays / 1_000.0, 1.0)),
    )


SAMPLED_WORKLOADS = {
    workload.name: workload
    for workload in (
        SampledWorkload("ysb", _views, TotalError(counts=True)),
        SampledWorkload("nyt", _distances, MeanError()),
        SampledWorkload("kmeans", _cluster_costs, MeanError()),
        SampledWorkload(
            "ysb by group",
            _campaign_views,
            TotalError(counts=True),
            groups=CAMPAIGNS,
            group_share=0.03,
        ),
        SampledWorkload("shifting", _shifting, MeanError()),
        SampledWorkload("stragglers differ", _stragglers_differ, TotalError()),
    )
}
