"""Costs as they were measured: a benchmark's calibration, for the replay.

A benchmark with `--load` keeps the steps that it calibrated with. Their line becomes the cost, and
how far steps lie off it becomes the noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from slackwater.errors import DescriptionError
from slackwater.scheduling.costs import StepCost
from slackwater_lab.simulate.model import StepNoise

_MANY = 10**7
_PAUSE_FACTOR = 1.5  # a step that took half as long again as usual was held up by something


def recorded_costs(calibration: Mapping[str, Any]) -> tuple[tuple[StepCost, ...], StepNoise]:
    """Read the costs of all templates, and how much steps vary.

    >>> template = {"fixed_ms": 40.0, "per_event_ms": 0.001, "per_query_ms": 2.0, "samples": []}
    >>> costs, noise = recorded_costs({"templates": [template]})
    >>> costs[0].duration_ms(10_000), costs[0].duration_ms(10_000, queries=3), noise.spread
    (50.0, 54.0, 0.15)
    """
    try:
        templates = calibration["templates"]
        costs = tuple(
            StepCost(
                max(float(one["fixed_ms"]) - float(one.get("per_query_ms", 0.0)), 0.0),
                float(one["per_event_ms"]),
                observations=100,
                most_events=_MANY,
                per_query_ms=float(one.get("per_query_ms", 0.0)),
            )
            for one in templates
        )
        if not costs:
            raise ValueError("it has no templates")
        ratios = _ratios(costs, templates)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise DescriptionError(
            f"this is not a benchmark's calibration ({type(error).__name__}: {error}); "
            "run 'slackwater bench ... --load 0.9 --json FILE' and give that file"
        ) from error
    return costs, _noise(ratios, costs)


def _ratios(costs: Sequence[StepCost], templates: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """Return how long each step took, as a share of what its line says."""
    found = []
    for cost, template in zip(costs, templates, strict=True):
        for sample in template["samples"]:
            events, took_ms, *queries = sample.values() if isinstance(sample, Mapping) else sample
            expected_ms = cost.duration_ms(int(events), int(queries[0]) if queries else 1)
            found.append(float(took_ms) / expected_ms)
    return np.array(found)


def _noise(ratios: np.ndarray, costs: Sequence[StepCost]) -> StepNoise:
    usual = ratios[(ratios < _PAUSE_FACTOR) & (ratios > 0)]
    if usual.size < 10:
        return StepNoise()
    held_up = ratios[ratios >= _PAUSE_FACTOR]
    spread = float(np.std(np.log(usual)))
    if held_up.size == 0:
        return StepNoise(spread, one_in=_MANY, pause_ms=0.0)
    typical_ms = float(np.mean([cost.fixed_ms for cost in costs]))
    pause_ms = float(np.mean(held_up) - 1) * typical_ms
    return StepNoise(spread, one_in=max(1, round(ratios.size / held_up.size)), pause_ms=pause_ms)
