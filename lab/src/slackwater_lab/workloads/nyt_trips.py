"""New York taxi trips, drawn from their distributions or from the city's own records.

The distributions were fitted to the trip records of the Taxi and Limousine Commission (TLC): miles,
dollars and seconds of a trip are each log-normal, and four in five trips start in Manhattan. Drawn
trips have these independently of one another; real ones (`data=`) as they were.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from slackwater.errors import DescriptionError
from slackwater.progress.arrivals import UPPER_UNIFORM_SQL, hash64, hash64_int
from slackwater.progress.tables import Floats, QuantileTable, array_sql
from slackwater.spark.sources.generated_rows import LOWER_HALF, UNIT
from slackwater.spark.sources.generator import Generator, generator
from slackwater_lab.workloads.injected import (
    Columns,
    Hashes,
    InjectedWorkload,
    Numbers,
    chosen,
    lower,
    upper,
)
from slackwater_lab.workloads.tlc_trips import Trips, sample_trips

# The mean and the deviation of the logarithm.
DISTANCE_MILES: Final = (0.63, 0.94)
FARE_DOLLARS: Final = (2.33, 0.65)
TRIP_SECONDS: Final = (6.46, 0.85)
BOROUGHS: Final = {"Manhattan": 0.82, "Queens": 0.10, "Brooklyn": 0.06, "Bronx": 0.02}
PASSENGERS: Final = {"1": 0.72, "2": 0.14, "3": 0.05, "4": 0.03, "5": 0.04, "6": 0.02}
PAYMENTS: Final = {"1": 0.69, "2": 0.30, "3": 0.01}  # by card, in cash, not charged


def nyt(
    *, rate: float = 1_000, data: str | os.PathLike[str] | Trips | None = None, **settings: Any
) -> Generator:
    """Generate taxi trips, each an event of the moment it ended.

    With `data`, a directory of the TLC's Parquet files, each event repeats a trip from a sample
    of them, drawn at random; else all is drawn from distributions. Many streams can share a sample
    that was taken once, by `sample_trips`. All other settings are those of `generator`, except
    `keys`, `columns` and `helpers`.
    """
    for taken in ("keys", "columns", "helpers"):
        if taken in settings:
            raise DescriptionError(
                f"nyt({taken}=...) is fixed by what a trip is: use generator() for other schemas"
            )
    if data is None:
        return generator(rate=rate, columns=_drawn_columns(), helpers=_draws(), **settings)
    trips = data if isinstance(data, Trips) else sample_trips(data)
    # All fields of an event are those of the trip at one place of the sample.
    place = f"cast(shiftright((h & {LOWER_HALF}) * {len(trips)}, 32) AS int)"
    columns = _real_columns(trips)
    return generator(rate=rate, columns=columns, helpers={"place": place}, **settings)


def log_normal_sql(parameters: tuple[float, float], u: str) -> str:
    """Draw from a log-normal distribution in Spark SQL, from a uniform double in [0, 1)."""
    return log_normal_table(parameters).sql(u)


def log_normal_table(parameters: tuple[float, float]) -> QuantileTable:
    """Tabulate a log-normal distribution, from the mean and the deviation of the logarithm."""
    mean, deviation = parameters

    def quantiles(p: Floats) -> Floats:
        normal = np.array([NormalDist().inv_cdf(share) for share in p.tolist()])
        found: Floats = np.exp(mean + deviation * normal)
        return found

    return QuantileTable.of(quantiles)


def _draws() -> Mapping[str, str]:
    """Take 32 random bits for each field; those of the upper half of `h` have decided the delay."""
    return {
        "distance_u": _lower("h"),
        "fare_u": _upper("xxhash64(h)"),
        "seconds_u": _lower("xxhash64(h)"),
        "borough_u": _upper("xxhash64(~h)"),
        "passengers_u": _lower("xxhash64(~h)"),
        "payment_u": _upper("xxhash64(h, 1)"),
        "tip_u": _lower("xxhash64(h, 1)"),
        "fare": log_normal_sql(FARE_DOLLARS, "fare_u"),
        "payment": _choice_sql(PAYMENTS, "payment_u"),
    }


def _drawn_columns() -> Mapping[str, str]:
    return {
        "trip_distance": log_normal_sql(DISTANCE_MILES, "distance_u"),
        "fare_amount": "fare",
        "trip_seconds": log_normal_sql(TRIP_SECONDS, "seconds_u"),
        "passenger_count": _choice_sql(PASSENGERS, "passengers_u"),
        "payment_type": "payment",
        # Only tips by card are known: 10 to 30 percent.
        "tip_amount": "if(payment = 1, fare * (0.1D + 0.2D * tip_u), 0D)",
        "borough": _choice_sql(
            {f"'{name}'": share for name, share in BOROUGHS.items()}, "borough_u"
        ),
    }


def _real_columns(trips: Trips) -> Mapping[str, str]:
    names = ", ".join(_text_sql(name) for name in trips.boroughs)
    return {
        "trip_distance": f"{array_sql(trips.miles)}[place]",
        "fare_amount": f"{array_sql(trips.fare_dollars)}[place]",
        "trip_seconds": f"{array_sql(trips.seconds)}[place]",
        "passenger_count": f"{array_sql(trips.passengers, 'int')}[place]",
        "payment_type": f"{array_sql(trips.payments, 'int')}[place]",
        "tip_amount": f"{array_sql(trips.tip_dollars)}[place]",
        "borough": f"array({names})[{array_sql(trips.borough_codes, 'int')}[place]]",
    }


def _choice_sql(shares: Mapping[str, float], u: str) -> str:
    """Choose one of several literals, each with its share."""
    *others, chosen = shares
    below = sum(shares[literal] for literal in others)
    for literal in reversed(others):
        # From the last bound down to the first: the innermost choice is between the last two.
        chosen = f"if({u} < {round(below, 6)!r}D, {literal}, {chosen})"
        below -= shares[literal]
    return chosen


def _text_sql(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _upper(bits: str) -> str:
    return UPPER_UNIFORM_SQL.format(h=bits)


def _lower(bits: str) -> str:
    return f"(({bits} & {LOWER_HALF}) * {UNIT}D)"


@dataclass(frozen=True)
class NytTrips(InjectedWorkload):
    """Trips, each an event of the moment it ended."""

    name: ClassVar[str] = "nyt"
    key: ClassVar[str] = "borough"

    def columns(self, numbers: Numbers, hashes: Hashes) -> Columns:
        """Draw the fields, each from 32 bits of its own."""
        more, other = hash64(hashes), hash64(~hashes)
        last = hash64_int(1, more)
        fare = _log_normal(FARE_DOLLARS).draw(upper(more))
        payment = _choice(PAYMENTS, upper(last))
        by_card = np.array(list(PAYMENTS))[payment] == "1"
        tip = np.where(by_card, fare * (0.1 + 0.2 * lower(last)), 0.0)
        return {
            "trip_distance": pa.array(_log_normal(DISTANCE_MILES).draw(lower(hashes))),
            "fare_amount": pa.array(fare),
            "trip_seconds": pa.array(_log_normal(TRIP_SECONDS).draw(lower(more))),
            "passenger_count": _ints(PASSENGERS, _choice(PASSENGERS, lower(other))),
            "payment_type": _ints(PAYMENTS, payment),
            "tip_amount": pa.array(tip),
            "borough": chosen(list(BOROUGHS), _choice(BOROUGHS, upper(other))),
        }


@lru_cache(maxsize=8)
def _log_normal(parameters: tuple[float, float]) -> QuantileTable:
    return log_normal_table(parameters)


def _choice(shares: Mapping[str, float], u: Floats) -> Numbers:
    """Choose one of several outcomes, each with its share: the place of the first bound above."""
    bounds = np.round(np.cumsum(list(shares.values()))[:-1], 6)
    return np.searchsorted(bounds, u, side="right").astype(np.int64)


def _ints(outcomes: Mapping[str, float], places: Numbers) -> pa.Array:
    return pa.array(np.array([int(name) for name in outcomes], dtype=np.int32)[places])
