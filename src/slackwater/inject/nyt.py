"""New York taxi trips drawn from their distributions, as `slackwater.nyt` draws them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import pyarrow as pa

from slackwater.inject.workloads import (
    Columns,
    Hashes,
    InjectedWorkload,
    Numbers,
    chosen,
    lower,
    upper,
)
from slackwater.progress.arrivals import hash64, hash64_int
from slackwater.progress.tables import Floats, QuantileTable
from slackwater.spark.sources import nyt as trips


@dataclass(frozen=True)
class NytTrips(InjectedWorkload):
    """Trips, each an event of the moment it ended."""

    name: ClassVar[str] = "nyt"
    key: ClassVar[str] = "borough"

    def columns(self, numbers: Numbers, hashes: Hashes) -> Columns:
        """Draw the fields, each from 32 bits of its own."""
        more, other = hash64(hashes), hash64(~hashes)
        last = hash64_int(1, more)
        fare = _log_normal(trips.FARE_DOLLARS).draw(upper(more))
        payment = _choice(trips.PAYMENTS, upper(last))
        by_card = np.array(list(trips.PAYMENTS))[payment] == "1"
        tip = np.where(by_card, fare * (0.1 + 0.2 * lower(last)), 0.0)
        return {
            "trip_distance": pa.array(_log_normal(trips.DISTANCE_MILES).draw(lower(hashes))),
            "fare_amount": pa.array(fare),
            "trip_seconds": pa.array(_log_normal(trips.TRIP_SECONDS).draw(lower(more))),
            "passenger_count": _ints(trips.PASSENGERS, _choice(trips.PASSENGERS, lower(other))),
            "payment_type": _ints(trips.PAYMENTS, payment),
            "tip_amount": pa.array(tip),
            "borough": chosen(list(trips.BOROUGHS), _choice(trips.BOROUGHS, upper(other))),
        }


@lru_cache(maxsize=8)
def _log_normal(parameters: tuple[float, float]) -> QuantileTable:
    return trips.log_normal_table(parameters)


def _choice(shares: Mapping[str, float], u: Floats) -> Numbers:
    """Choose one of several outcomes, each with its share: the place of the first bound above."""
    bounds = np.round(np.cumsum(list(shares.values()))[:-1], 6)
    return np.searchsorted(bounds, u, side="right").astype(np.int64)


def _ints(outcomes: Mapping[str, float], places: Numbers) -> pa.Array:
    return pa.array(np.array([int(name) for name in outcomes], dtype=np.int32)[places])
