"""Each aggregate's estimate from a window's sample, for every group and for all together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasketches import kll_doubles_sketch
from numpy.typing import NDArray

from slackwater.app.aggregates import (
    Aggregate,
    ApproxQuantile,
    Count,
    Max,
    Mean,
    Min,
    StdDev,
    Sum,
    Variance,
)
from slackwater.app.sampled import sampled_partials
from slackwater.runtime.sample_facts import SampleFacts
from slackwater.runtime.samples import WindowSample
from slackwater.sampling.estimates import (
    ErrorFunction,
    Intervals,
    Linearised,
    MeanError,
    TotalError,
    VarianceError,
    intervals,
)
from slackwater.sampling.ranks import extreme, quantile
from slackwater.sampling.strata import Floats

_SKETCH_RANK_ERROR = 0.0133  # of a KLL sketch with k=200; it shrinks as k grows
_POINTS = 200


def each_group(
    name: str, aggregate: Aggregate, sample: WindowSample, facts: SampleFacts, counted: Floats
) -> tuple[Intervals, Linearised | None]:
    """Estimate one aggregate for every group."""
    if isinstance(aggregate, Min | Max):
        column = sample.rows[f"{name}__{aggregate.function}"].cast(pa.float64())
        return _extremes(aggregate, pc.fill_null(column, np.nan).to_numpy(), sample), None
    if isinstance(aggregate, ApproxQuantile):
        each = [
            _quantile(name, aggregate, sample, facts, np.flatnonzero(sample.group == group))
            for group in range(sample.groups)
        ]
        return _stacked(each, len(sample.strata.arrived))
    sums = _sums(name, aggregate, sample, counted)
    lin = _function(aggregate).linearise(sample.strata, sums)
    return intervals(sample.strata, lin, facts.target, caution=facts.caution, bias=facts.bias), lin


def all_groups(
    name: str, aggregate: Aggregate, sample: WindowSample, facts: SampleFacts, counted: Floats
) -> tuple[Intervals, Linearised]:
    """Estimate one aggregate over all groups together."""
    if isinstance(aggregate, ApproxQuantile):
        return _quantile(name, aggregate, sample, facts, np.arange(sample.rows.num_rows))
    sums = _sums(name, aggregate, sample, counted)
    if isinstance(aggregate, Variance):
        whole = _moments_together(sums)
    else:
        whole = {each: values.sum(axis=0, keepdims=True) for each, values in sums.items()}
    lin = _function(aggregate).linearise(sample.strata, whole)
    return intervals(sample.strata, lin, facts.target, caution=facts.caution, bias=facts.bias), lin


def _sums(
    name: str, aggregate: Aggregate, sample: WindowSample, counted: Floats
) -> dict[str, Floats]:
    columns = [partial.column for partial in sampled_partials(name, aggregate)]
    if not columns:
        return {"n": counted}
    if not isinstance(aggregate, Variance):
        return {column.rpartition("__")[2]: sample.summed(column) for column in columns}
    # Strata may have been put together: moments of their parts move to the common mean first.
    raw = {
        column.rpartition("__")[2]: pc.fill_null(
            sample.rows[column].cast(pa.float64()), 0.0
        ).to_numpy()
        for column in columns
    }
    n = sample.placed(raw["n"])
    mean = sample.placed(raw["n"] * raw["mean"]) / np.maximum(n, 1.0)
    return _moved(raw, mean[sample.group, sample.stratum], sample.placed) | {"n": n, "mean": mean}


def _moved(
    raw: Mapping[str, Floats], to: Floats, placed: Callable[[Floats], Floats]
) -> dict[str, Floats]:
    """Move central moments to other means, and add them up."""
    n, m2, m3, m4 = raw["n"], raw["m2"], raw["m3"], raw["m4"]
    off = np.where(n > 0, raw["mean"] - to, 0.0)
    return {
        "m2": placed(m2 + n * off**2),
        "m3": placed(m3 + 3 * off * m2 + n * off**3),
        "m4": placed(m4 + 4 * off * m3 + 6 * off**2 * m2 + n * off**4),
    }


def _moments_together(sums: Mapping[str, Floats]) -> dict[str, Floats]:
    """Put the moments of all groups together, stratum by stratum."""
    n = sums["n"].sum(axis=0, keepdims=True)
    mean = (sums["n"] * sums["mean"]).sum(axis=0, keepdims=True) / np.maximum(n, 1.0)

    def over_groups(values: Floats) -> Floats:
        added: Floats = values.sum(axis=0, keepdims=True)
        return added

    return _moved(sums, np.broadcast_to(mean, sums["n"].shape), over_groups) | {
        "n": n,
        "mean": mean,
    }


def _function(aggregate: Aggregate) -> ErrorFunction:
    match aggregate:
        case Count():
            return TotalError(counts=True)
        case Sum():
            return TotalError()
        case Mean():
            return MeanError()
        case Variance():
            return VarianceError(root=isinstance(aggregate, StdDev))
    raise TypeError(f"{aggregate.label} has no error function")


def _extremes(aggregate: Aggregate, values: Floats, sample: WindowSample) -> Intervals:
    largest = isinstance(aggregate, Max)
    found = np.full(sample.groups, -np.inf if largest else np.inf)
    there = ~np.isnan(values)
    (np.maximum if largest else np.minimum).at(found, sample.group[there], values[there])
    found[np.isinf(found)] = np.nan
    strata = sample.strata
    complete = bool((strata.sampled >= strata.arrived).all() and (strata.share >= 1.0).all())
    return extreme(found, largest=largest, complete=complete)


def _quantile(
    name: str,
    aggregate: ApproxQuantile,
    sample: WindowSample,
    facts: SampleFacts,
    rows: NDArray[np.intp],
) -> tuple[Intervals, Linearised]:
    """Estimate a quantile from the sketches of some rows, each evenly spread over its ranks."""
    points: list[list[Floats]] = [[] for _ in sample.strata.arrived]
    weights: list[list[Floats]] = [[] for _ in sample.strata.arrived]
    sketches = sample.rows[f"{name}__kll"]
    for row in rows.tolist():
        text = sketches[row].as_py()
        sketch = None if text is None else kll_doubles_sketch.deserialize(text)
        if sketch is None or sketch.is_empty():
            continue
        held = min(int(sketch.n), _POINTS)
        ranks = (np.arange(held) + 0.5) / held
        points[sample.stratum[row]].append(np.array([sketch.get_quantile(r, True) for r in ranks]))
        weights[sample.stratum[row]].append(np.full(held, sketch.n / held))
    assert not isinstance(aggregate.p, tuple)
    exact = all(len(w) == 0 or (np.concatenate(w) == 1.0).all() for w in weights)
    return quantile(
        sample.strata,
        [np.concatenate(each) if each else np.zeros(0) for each in points],
        [np.concatenate(each) if each else np.zeros(0) for each in weights],
        float(aggregate.p),
        facts.target,
        rank_error=0.0 if exact else _SKETCH_RANK_ERROR * 200 / aggregate.k,
        caution=facts.caution,
        bias=facts.bias,
    )


def _stacked(
    each: Sequence[tuple[Intervals, Linearised]], strata: int
) -> tuple[Intervals, Linearised]:
    def joined(parts: list[Floats], width: int | None = None) -> Floats:
        return np.concatenate(parts) if parts else np.zeros(0 if width is None else (0, width))

    found = [one for one, _ in each]
    lins = [lin for _, lin in each]
    return (
        Intervals(
            joined([one.value for one in found]),
            joined([one.low for one in found]),
            joined([one.high for one in found]),
        ),
        Linearised(
            joined([lin.value for lin in lins]),
            joined([lin.sums for lin in lins], strata),
            joined([lin.squares for lin in lins], strata),
            joined([lin.rows for lin in lins]),
        ),
    )
