"""From a load to a rate: what steps cost on this machine, and which rate fills its slots so far.

A step costs `fixed_ms + per_event_ms * events`. A pass over a query reads what has come since its
last result, once in each slide. All passes together take the share of all slots' time

    sum over queries of (fixed_ms + per_event_ms * rate * slide) / slide / slots

as if no two queries shared a step. Solved for the rate, this says which one makes a given load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from slackwater.errors import SlackwaterError
from slackwater.progress.tables import Floats
from slackwater_lab.bench.options import LEAST_RATE


@dataclass(frozen=True)
class Sample:
    """Hold what one step read, and how long it took."""

    events: int
    took_ms: float
    queries: int = 1


@dataclass(frozen=True)
class TemplateCost:
    """Hold the cost of one pipeline's steps, and the steps that it was found from.

    `fixed_ms` is for one query; each further one that shares the step adds `per_query_ms`.
    """

    variant: int
    fixed_ms: float
    per_event_ms: float
    samples: tuple[Sample, ...]
    per_query_ms: float = 0.0

    @classmethod
    def of(cls, variant: int, samples: Sequence[Sample]) -> Self:
        """Fit a line to the steps of one query; what is left of others' falls to their number."""
        single = [sample for sample in samples if sample.queries == 1]
        events = np.array([sample.events for sample in single], dtype=np.float64)
        took_ms = np.array([sample.took_ms for sample in single], dtype=np.float64)
        fixed_ms, per_event_ms = robust_line(events, took_ms)
        left_ms = [
            (it.took_ms - fixed_ms - per_event_ms * it.events) / (it.queries - 1)
            for it in samples
            if it.queries > 1
        ]
        per_query_ms = round(max(0.0, float(np.median(left_ms))), 3) if left_ms else 0.0
        return cls(variant, fixed_ms, per_event_ms, tuple(samples), per_query_ms)

    def step_ms(self, events: float) -> float:
        """Return how long a step over so many events takes."""
        return self.fixed_ms + self.per_event_ms * events


@dataclass(frozen=True)
class Calibration:
    """Hold the costs of all pipelines that were measured, for queries with a result each slide."""

    slots: int
    slide_ms: int
    templates: tuple[TemplateCost, ...]

    def cost_of(self, variant: int) -> TemplateCost:
        """Return the cost of a pipeline; of one not measured, that of one that was, in turn."""
        return self.templates[variant % len(self.templates)]

    def fixed_load(self, queries: int, distinct: int) -> float:
        """Return the load that steps make before they have read an event."""
        fixed_ms = sum(self.cost_of(number % distinct).fixed_ms for number in range(queries))
        return fixed_ms / self.slide_ms / self.slots

    def rate_for(self, load: float, queries: int, distinct: int) -> float:
        """Return the events a second of each query that make a load, or say why none does."""
        fixed = self.fixed_load(queries, distinct)
        per_event_ms = sum(
            self.cost_of(number % distinct).per_event_ms for number in range(queries)
        )
        rate = (load - fixed) * self.slots * 1_000 / max(per_event_ms, 1e-12)
        if rate < LEAST_RATE:
            mean_ms = fixed * self.slots * self.slide_ms / queries
            raise SlackwaterError(
                f"load={load:g} cannot be had: one step for each of {queries} queries every "
                f"{self.slide_ms:,} ms, at {mean_ms:.1f} ms a step without any event, is a load of "
                f"{fixed:.2f} on {self.slots} slots: give a load above that, or fewer queries"
            )
        if per_event_ms <= 0:
            raise SlackwaterError(
                "no cost per event could be measured: give --rate instead of --load"
            )
        return rate

    def own_step_ms(self, rate: float, distinct: int) -> list[float]:
        """Return, for each pipeline, how long a pass takes at a rate."""
        events = rate * self.slide_ms / 1_000
        return [self.cost_of(variant).step_ms(events) for variant in range(distinct)]

    def to_dict(self) -> dict[str, Any]:
        """Write the costs as JSON values, each sample as [events, milliseconds, queries]."""
        values = asdict(self)
        for template in values["templates"]:
            template["samples"] = [list(it.values()) for it in template["samples"]]
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        templates = tuple(
            TemplateCost(
                **{**template, "samples": tuple(Sample(*pair) for pair in template["samples"])}
            )
            for template in values["templates"]
        )
        return cls(values["slots"], values["slide_ms"], templates)


def robust_line(events: Floats, took_ms: Floats) -> tuple[float, float]:
    """Fit `fixed + per_event * events` so that a few odd steps do not matter; neither is negative.

    The slope is the median of those between all pairs of steps (Theil and Sen), each pair weighted
    by how far apart its steps are; the fixed part is the median of what the slope leaves.

    >>> events = np.array([1_000.0, 1_000.0, 50_000.0, 100_000.0, 100_000.0])
    >>> robust_line(events, 30 + events * 0.001 + np.array([0, 0, 0, 0, 900]))
    (30.0, 0.001)
    """
    first, second = np.triu_indices(len(events), k=1)
    apart = np.abs(events[second] - events[first])
    pairs = apart > 0
    if not pairs.any():
        raise SlackwaterError(
            "all steps of the calibration were of one size: no cost per event follows from them"
        )
    slopes = ((took_ms[second] - took_ms[first])[pairs]) / (events[second] - events[first])[pairs]
    order = np.argsort(slopes)
    weight = np.cumsum(apart[pairs][order])
    per_event_ms = max(0.0, float(slopes[order][np.searchsorted(weight, weight[-1] / 2)]))
    fixed_ms = max(0.0, float(np.median(took_ms - per_event_ms * events)))
    return round(fixed_ms, 3), round(per_event_ms, 9)
