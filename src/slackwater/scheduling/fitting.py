"""Fit a step's cost to steps of several sizes: fixed, per event and per query.

>>> events = np.array([1_000.0, 1_000.0, 8_000.0, 8_000.0])
>>> queries = np.array([1.0, 8.0, 2.0, 8.0])
>>> cost = fitted(events, queries, 20 + 0.01 * events + 3 * queries, np.ones(4))
>>> [round(part, 3) for part in cost]
[20.0, 0.01, 3.0]
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Where events and queries go together more closely than this, nobody can tell whose the cost is.
_MOST_CORRELATION = 0.98
# Queries explain what events do not only if they do so clearly better.
_CLEARLY = 0.8


def fitted(
    events: Floats, queries: Floats, took_ms: Floats, weights: Floats
) -> tuple[float, float, float]:
    """Return the fixed cost, that per event and that per query; none is negative.

    Errors count relative to what steps took, or a few long ones would decide for all. A cost that
    would be negative is left out. Where all steps have as many events for each query, the events
    get it all.
    """
    weights = weights / np.maximum(took_ms, 1e-3) ** 2
    best = _level(took_ms, weights)
    for columns, gain in (((True, False), 1.0), ((False, True), _CLEARLY), ((True, True), 1.0)):
        features = [f for f, used in zip((events, queries), columns, strict=True) if used]
        if len(features) == 2 and not _apart(events, queries, weights):
            continue
        found = _solved(features, took_ms, weights)
        if found is None:
            continue
        error, (fixed_ms, *slopes) = found
        if error < gain * best[0]:
            parts = iter(slopes)
            per_event_ms, per_query_ms = (next(parts) if used else 0.0 for used in columns)
            best = error, (fixed_ms, per_event_ms, per_query_ms)
    return best[1]


def _level(took_ms: Floats, weights: Floats) -> tuple[float, tuple[float, float, float]]:
    """Take all steps to cost the same."""
    level = float(np.average(took_ms, weights=weights))
    error = float((weights * (took_ms - level) ** 2).sum())
    return error, (level, 0.0, 0.0)


def _solved(
    features: list[Floats], took_ms: Floats, weights: Floats
) -> tuple[float, list[float]] | None:
    """Fit by least squares: the error, the fixed cost and the slopes; None if one is negative."""
    roots = np.sqrt(weights)
    matrix = np.column_stack([np.ones_like(took_ms), *features])
    scale = np.maximum(matrix.max(axis=0), 1e-12)
    solution, _, rank, _ = np.linalg.lstsq(
        matrix / scale * roots[:, None], took_ms * roots, rcond=1e-9
    )
    if rank < matrix.shape[1]:
        return None
    if solution[0] < 0:  # through the origin, then
        slope = matrix[:, 1:] / scale[1:]
        solution[1:] = np.linalg.lstsq(slope * roots[:, None], took_ms * roots, rcond=1e-9)[0]
        solution[0] = 0.0
    if (solution < 0).any():
        return None
    error = float((weights * (took_ms - matrix / scale @ solution) ** 2).sum())
    return error, (solution / scale).tolist()


def _apart(events: Floats, queries: Floats, weights: Floats) -> bool:
    """Tell whether events and queries vary independently enough."""
    centred = [f - np.average(f, weights=weights) for f in (events, queries)]
    spread = [float((weights * f**2).sum()) for f in centred]
    together = float((weights * centred[0] * centred[1]).sum())
    product = spread[0] * spread[1]
    return product > 0 and together**2 < _MOST_CORRELATION**2 * product
