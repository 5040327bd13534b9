"""Position reports of cars on expressways, as `slackwater.lrb` makes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from slackwater.inject.workloads import (
    LOWER_HALF,
    UNIT,
    Columns,
    Hashes,
    InjectedWorkload,
    Numbers,
    digit,
    require,
    whole,
)
from slackwater.progress.arrivals import hash64, hash64_int
from slackwater.spark.sources import lrb as road


@dataclass(frozen=True)
class LrbReports(InjectedWorkload):
    """Reports of `cars`: where each is, and how fast."""

    name: ClassVar[str] = "lrb"
    key: ClassVar[str] = "vehicle"
    settings: ClassVar[tuple[str, ...]] = ("cars",)
    cars: int = 30_000

    def __post_init__(self) -> None:
        require(2 <= self.cars < 2**31, "cars", self.cars, "two or more, below 2**31")

    def columns(self, numbers: Numbers, hashes: Hashes) -> Columns:
        """Work out where each car is: record `n` is the report `n div cars` of car `n mod cars`."""
        report = whole((numbers.astype(np.float64) + 0.5) * (1 / self.cars))
        car = numbers - report * self.cars
        pair = car >> 1
        fate = hash64_int(1, hash64(pair.view(np.uint64)))
        convoy = (fate & np.uint64(road._PAIRS_PER_CONVOY - 1)) == 0
        rounds, _ = digit(fate >> np.uint64(32), road._BETWEEN)
        since = report + rounds
        bits = hash64(np.where(convoy, pair, -1 - car).view(np.uint64))
        expressways = max(1, round(self.cars / road.CARS_PER_EXPRESSWAY))
        expressway, rest = digit(bits & LOWER_HALF, expressways)
        direction, rest = digit(rest, 2)
        lane, rest = digit(rest, 3)
        moving = road._BETWEEN - road._STANDING
        turn = whole((since.astype(np.float64) + 0.5) * (1 / road._BETWEEN))
        within = since - turn * road._BETWEEN
        moved = np.where(convoy, turn * moving + np.minimum(within, moving), report)
        pace = 0.8 + rest.astype(np.float64) * (0.4 * UNIT)
        step = pace * road._STEP
        way = (bits >> np.uint64(32)).astype(np.float64) * UNIT + moved * step
        trip = whole(way)
        time = way - trip
        is_open = time < road._OPEN_TIME
        length = float(road.SEGMENTS * road.FEET_PER_SEGMENT)
        open_slope = road._OPEN_WAY / road._OPEN_TIME
        jam_slope = (1 - road._OPEN_WAY) / (1 - road._OPEN_TIME)
        feet = whole(length * np.where(is_open, time * open_slope, 1.0 - (1.0 - time) * jam_slope))
        position = np.where(direction == 0, feet, int(length) - 1 - feet)
        off_mph = (hashes & LOWER_HALF).astype(np.float64) * (10 * UNIT) - 5.0
        mph = whole(pace * np.where(is_open, float(road._OPEN_MPH), float(road._JAM_MPH)) + off_mph)
        standing = convoy & (within >= moving)
        entering, leaving = time < step, time + step >= 1.0
        return {
            "vehicle": pa.array(car + trip * self.cars),
            "speed": _ints(np.where(standing, 0, mph)),
            "expressway": _ints(expressway),
            "lane": _ints(np.where(entering, 0, np.where(leaving, 4, lane + 1))),
            "direction": _ints(direction),
            "segment": _ints(whole((position + 0.5) * (1 / road.FEET_PER_SEGMENT))),
            "position": _ints(position),
        }


def _ints(values: Numbers) -> pa.Array:
    return pa.array(values.astype(np.int32))
