"""Position reports of cars on expressways, after the Linear Road Benchmark.

A. Arasu et al., "Linear Road: A Stream Data Management Benchmark", VLDB 2004. Every car reports
each 30 s: where it is and how fast. Expressways have two directions, a hundred segments of a mile,
three travel lanes, and lanes to enter (0) and to leave (4).

The benchmark's own traffic comes from a simulator; here, report `i` of a car is a function of the
car and of `i`, so that any range of reports can be made on its own. A car moves along a curve of
place over time that is steep on the open road and flat in the last tenth of the expressway. So
traffic there is both slower (20 mph against 60) and three times as dense, as it would be in a jam.
Now and then two cars that drive in convoy collide, and stand at one place for ten minutes (twenty
reports, where Linear Road asks for four to call it an accident).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from slackwater.errors import DescriptionError
from slackwater.progress.arrivals import hash64, hash64_int
from slackwater.spark.sources.generated_rows import LOWER_HALF, UNIT
from slackwater.spark.sources.generator import Generator, generator
from slackwater_lab.workloads.injected import (
    LOWER_BITS,
    Columns,
    Hashes,
    InjectedWorkload,
    Numbers,
    digit,
    require,
    whole,
)

REPORT_S: Final = 30
CARS_PER_EXPRESSWAY: Final = 10_000
SEGMENTS: Final = 100
FEET_PER_SEGMENT: Final = 5_280

# The open road is nine tenths of the way and takes three quarters of the time.
_OPEN_WAY, _OPEN_TIME = 0.9, 0.75
_OPEN_MPH, _JAM_MPH = 60, 20
# 60 mph are half a segment in 30 s, where 0.9 / 0.75 of a way is made in a unit of time.
_STEP: Final = round(0.5 / SEGMENTS / (_OPEN_WAY / _OPEN_TIME), 12)
# One pair in 256 collides: every 240 reports (two hours), for 20 of them.
_PAIRS_PER_CONVOY, _BETWEEN, _STANDING = 256, 240, 20


def lrb(*, rate: float = 1_000, cars: int | None = None, **settings: Any) -> Generator:
    """Generate position reports of `cars` (by default as many as report each 30 s at that rate).

    There is an expressway for every 10,000 cars. Streams with as many cars tell of the same
    traffic, whatever their seeds: these decide how reports are delayed, and how far a speed is off.
    All other settings are those of `generator`, except `keys`, `columns`, `helpers`, `parameters`
    and `partitions`.
    """
    for taken in ("keys", "columns", "helpers", "parameters", "partitions"):
        if taken in settings:
            raise DescriptionError(
                f"lrb({taken}=...) is fixed by the benchmark: use generator() for other schemas"
            )
    cars = max(2, round(rate * REPORT_S)) if cars is None else cars
    if not 2 <= cars < 2**31:
        raise DescriptionError(f"cars={cars!r} cannot be: give two or more, below 2**31")
    # How many cars there are is not part of the plan, or each rate would have one of its own.
    parameters = {
        "cars": cars,
        "reports_per_record": 1 / cars,
        "expressways": max(1, round(cars / CARS_PER_EXPRESSWAY)),
    }
    return generator(
        rate=rate, columns=_columns(), helpers=_helpers(), parameters=parameters, **settings
    )


def _helpers() -> Mapping[str, str]:
    """Work out where a car is: record `n` is the report `n div cars` of car `n mod cars`."""
    expressway, rest = _digit(f"(bits & {LOWER_HALF})", "cast(expressways AS bigint)")
    direction, rest = _digit(rest, "2L")
    lane, rest = _digit(rest, "3L")
    moving = _BETWEEN - _STANDING
    # Multiplied, not divided: Spark takes a quotient for nullable, and would test each event.
    report = "cast((n + 0.5D) * reports_per_record AS bigint)"
    return {
        "report": report,
        "car": f"n - {report} * cast(cars AS bigint)",
        "fate": "xxhash64(shiftright(car, 1), 1)",
        "convoy": f"(fate & {_PAIRS_PER_CONVOY - 1}) = 0",
        # For a convoy, time stands still in the last reports of each round; rounds begin anywhere.
        "since": f"report + shiftright(shiftrightunsigned(fate, 32) * {_BETWEEN}, 32)",
        # A convoy is two cars with the same bits, and so with the same way.
        "bits": "xxhash64(if(convoy, shiftright(car, 1), -1 - car))",
        "round": f"cast((since + 0.5D) * {1 / _BETWEEN!r}D AS bigint)",
        "within": f"since - round * {_BETWEEN}",
        "expressway": f"cast({expressway} AS int)",
        "direction": f"cast({direction} AS int)",
        "lane": f"cast({lane} AS int) + 1",
        "pace": f"0.8D + {rest} * {0.4 * UNIT!r}D",
        "standing": f"convoy AND within >= {moving}",
        "moved": f"if(convoy, round * {moving} + least(within, {moving}L), report)",
        "step": f"pace * {_STEP!r}D",
        "way": f"shiftrightunsigned(bits, 32) * {UNIT!r}D + moved * step",
        "trip": "cast(way AS bigint)",
        "time": "way - cast(way AS bigint)",
        "is_open": f"time < {_OPEN_TIME!r}D",
        "feet": f"cast({SEGMENTS * FEET_PER_SEGMENT}D * if(time < {_OPEN_TIME!r}D, "
        f"time * {_OPEN_WAY / _OPEN_TIME!r}D, "
        f"1D - (1D - time) * {(1 - _OPEN_WAY) / (1 - _OPEN_TIME)!r}D) AS int)",
        "position": f"if(direction = 0, feet, {SEGMENTS * FEET_PER_SEGMENT - 1} - feet)",
    }


def _columns() -> Mapping[str, str]:
    off_mph = f"((h & {LOWER_HALF}) * {10 * UNIT!r}D - 5D)"
    return {
        # A new trip is another vehicle: the car has left, and one like it comes.
        "vehicle": "car + trip * cast(cars AS bigint)",
        "speed": "if(standing, 0, "
        f"cast(pace * if(is_open, {_OPEN_MPH}D, {_JAM_MPH}D) + {off_mph} AS int))",
        "expressway": "expressway",
        "lane": "if(time < step, 0, if(time + step >= 1D, 4, lane))",
        "direction": "direction",
        "segment": f"cast((position + 0.5D) * {1 / FEET_PER_SEGMENT!r}D AS int)",
        "position": "position",
    }


def _digit(bits: str, base: str) -> tuple[str, str]:
    """Split a uniform 32-bit number into a uniform digit and the rest, uniform again."""
    scaled = f"({bits} * {base})"
    return f"shiftright({scaled}, 32)", f"({scaled} & {LOWER_HALF})"


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
        convoy = (fate & np.uint64(_PAIRS_PER_CONVOY - 1)) == 0
        rounds, _ = digit(fate >> np.uint64(32), _BETWEEN)
        since = report + rounds
        bits = hash64(np.where(convoy, pair, -1 - car).view(np.uint64))
        expressways = max(1, round(self.cars / CARS_PER_EXPRESSWAY))
        expressway, rest = digit(bits & LOWER_BITS, expressways)
        direction, rest = digit(rest, 2)
        lane, rest = digit(rest, 3)
        moving = _BETWEEN - _STANDING
        turn = whole((since.astype(np.float64) + 0.5) * (1 / _BETWEEN))
        within = since - turn * _BETWEEN
        moved = np.where(convoy, turn * moving + np.minimum(within, moving), report)
        pace = 0.8 + rest.astype(np.float64) * (0.4 * UNIT)
        step = pace * _STEP
        way = (bits >> np.uint64(32)).astype(np.float64) * UNIT + moved * step
        trip = whole(way)
        time = way - trip
        is_open = time < _OPEN_TIME
        length = float(SEGMENTS * FEET_PER_SEGMENT)
        open_slope = _OPEN_WAY / _OPEN_TIME
        jam_slope = (1 - _OPEN_WAY) / (1 - _OPEN_TIME)
        feet = whole(length * np.where(is_open, time * open_slope, 1.0 - (1.0 - time) * jam_slope))
        position = np.where(direction == 0, feet, int(length) - 1 - feet)
        off_mph = (hashes & LOWER_BITS).astype(np.float64) * (10 * UNIT) - 5.0
        mph = whole(pace * np.where(is_open, float(_OPEN_MPH), float(_JAM_MPH)) + off_mph)
        standing = convoy & (within >= moving)
        entering, leaving = time < step, time + step >= 1.0
        return {
            "vehicle": pa.array(car + trip * self.cars),
            "speed": _ints(np.where(standing, 0, mph)),
            "expressway": _ints(expressway),
            "lane": _ints(np.where(entering, 0, np.where(leaving, 4, lane + 1))),
            "direction": _ints(direction),
            "segment": _ints(whole((position + 0.5) * (1 / FEET_PER_SEGMENT))),
            "position": _ints(position),
        }


def _ints(values: Numbers) -> pa.Array:
    return pa.array(values.astype(np.int32))
