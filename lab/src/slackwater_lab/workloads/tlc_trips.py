"""A sample of real taxi trips, from the Parquet files of New York's Taxi and Limousine Commission.

The TLC publishes a file for each month and kind of taxi, and beside them `taxi_zone_lookup.csv`,
which says which borough a zone is in. A sample small enough to travel in a plan is taken at equal
distances over all files.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from slackwater.errors import DescriptionError

MOST_TRIPS: Final = 4_096
ZONES: Final = "taxi_zone_lookup.csv"
_PICKUPS: Final = ("tpep_pickup_datetime", "lpep_pickup_datetime", "pickup_datetime")
_DROPOFFS: Final = ("tpep_dropoff_datetime", "lpep_dropoff_datetime", "dropoff_datetime")
_BOROUGHS: Final = ("borough", "PULocationID")


@dataclass(frozen=True)
class Trips:
    """Hold trips, column by column; `borough_codes` are places in `boroughs`."""

    miles: Sequence[float]
    fare_dollars: Sequence[float]
    seconds: Sequence[float]
    passengers: Sequence[int]
    payments: Sequence[int]
    tip_dollars: Sequence[float]
    borough_codes: Sequence[int]
    boroughs: Sequence[str]

    def __len__(self) -> int:
        return len(self.miles)


def sample_trips(directory: str | os.PathLike[str], most: int = MOST_TRIPS) -> Trips:
    """Take at most so many trips, at equal distances, from all Parquet files of a directory."""
    root = Path(directory)
    files = sorted(root.glob("*.parquet"))
    if not files:
        raise DescriptionError(
            f"data={str(root)!r} holds no Parquet file: download trip records of the TLC into it"
        )
    sizes = [pq.ParquetFile(file).metadata.num_rows for file in files]
    total = sum(sizes)
    wanted = np.unique(np.linspace(0, max(total - 1, 0), min(most, total)).astype(np.int64))
    tables, before = [], 0
    for file, size in zip(files, sizes, strict=True):
        places = wanted[(wanted >= before) & (wanted < before + size)] - before
        tables.append(_read(file, places, root))
        before += size
    table = pa.concat_tables(tables).drop_null()
    if table.num_rows == 0:
        raise DescriptionError(f"data={str(root)!r} holds no trip with all its fields")
    boroughs = sorted(set(table["borough"].to_pylist()))
    codes = {name: code for code, name in enumerate(boroughs)}
    return Trips(
        miles=table["miles"].to_pylist(),
        fare_dollars=table["fare_dollars"].to_pylist(),
        seconds=table["seconds"].to_pylist(),
        passengers=table["passengers"].to_pylist(),
        payments=table["payments"].to_pylist(),
        tip_dollars=table["tip_dollars"].to_pylist(),
        borough_codes=[codes[name] for name in table["borough"].to_pylist()],
        boroughs=boroughs,
    )


def _read(file: Path, places: np.ndarray[Any, np.dtype[np.int64]], root: Path) -> pa.Table:
    """Read some rows of one file, a row group at a time, with the names and types used here."""
    parquet = pq.ParquetFile(file)
    names = parquet.schema_arrow.names
    pickup, dropoff = _column(names, _PICKUPS, file), _column(names, _DROPOFFS, file)
    place = _column(names, _BOROUGHS, file)
    miles, fare = _column(names, ("trip_distance",), file), _column(names, ("fare_amount",), file)
    optional = [n for n in ("passenger_count", "payment_type", "tip_amount") if n in names]
    rows, before = [], 0
    for group in range(parquet.num_row_groups):
        size = parquet.metadata.row_group(group).num_rows
        inside = places[(places >= before) & (places < before + size)] - before
        before += size
        if len(inside):
            read = parquet.read_row_group(group, [pickup, dropoff, place, miles, fare, *optional])
            rows.append(read.take(pa.array(inside)))
    if not rows:
        rows.append(parquet.schema_arrow.empty_table())
    table = pa.concat_tables(rows)
    elapsed = pc.microseconds_between(
        table[pickup].cast(pa.timestamp("us")), table[dropoff].cast(pa.timestamp("us"))
    )
    return pa.table(
        {
            "miles": table[miles].cast(pa.float64()),
            "fare_dollars": table[fare].cast(pa.float64()),
            "seconds": pc.divide(elapsed.cast(pa.float64()), 1e6),
            "passengers": _or(table, "passenger_count", 1, pa.int32()),
            "payments": _or(table, "payment_type", 0, pa.int32()),
            "tip_dollars": _or(table, "tip_amount", 0.0, pa.float64()),
            "borough": table[place].cast(pa.string())
            if place == "borough"
            else _boroughs(table[place], root),
        }
    )


def _column(names: Sequence[str], known: Sequence[str], file: Path) -> str:
    for name in known:
        if name in names:
            return name
    raise DescriptionError(
        f"{file} has no column {' or '.join(known)}: give trip records in the TLC's layout "
        f"(it has {', '.join(names)})"
    )


def _or(table: pa.Table, name: str, default: float, kind: pa.DataType) -> pa.Array:
    """Take a column, or a default where it is missing or null."""
    if name not in table.column_names:
        return pa.array([default] * table.num_rows, kind)
    return pc.fill_null(table[name].cast(kind, safe=False), pa.scalar(default, kind))


def _boroughs(zones: pa.ChunkedArray, root: Path) -> pa.Array:
    """Find the borough of each zone in the TLC's own list."""
    path = root / ZONES
    if not path.is_file():
        raise DescriptionError(
            f"{path} is missing: download it beside the trips, for they name zones, not boroughs"
        )
    listed = pyarrow.csv.read_csv(path)
    known = dict(zip(listed["LocationID"].to_pylist(), listed["Borough"].to_pylist(), strict=True))
    return pa.array([known.get(zone, "Unknown") for zone in zones.to_pylist()], pa.string())
