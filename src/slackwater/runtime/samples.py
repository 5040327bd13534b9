"""A closing window's sample: its strata, and the group and stratum of each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from slackwater.errors import SlackwaterError
from slackwater.runtime.merge import group_ids
from slackwater.runtime.sample_facts import SampleFacts
from slackwater.sampling.monitor import SubstreamCount
from slackwater.sampling.strata import Floats, Strata
from slackwater.spark.sampled import ARRIVED, GROUP, SUBSTREAM, TAKEN

STEP = "_sw_step"  # which step read a row: strata of different steps have different rates


@dataclass(frozen=True, eq=False)
class WindowSample:
    """Hold one window's sample: strata, and each row's group and stratum."""

    strata: Strata
    substreams: tuple[SubstreamCount, ...]
    rows: pa.Table
    group: NDArray[np.int64]
    stratum: NDArray[np.intp]
    keys: pa.Table
    groups: int
    places: NDArray[np.int64]  # of each group: the hash that names it in plans; 0: none does
    family: NDArray[np.int64]  # of each stratum: the group that it is of, by that hash

    def summed(self, column: str) -> Floats:
        """Add a column up by group and stratum."""
        values = pc.fill_null(self.rows[column].cast(pa.float64()), 0.0).to_numpy()
        return self.placed(values)

    def populations(self, counted: Floats) -> Floats:
        """Estimate how many records each group has, those under way included.

        `counted` are the sampled rows by group and stratum. In strata of the group's own, records
        are counted; in the others, filters are taken to let through the same share of each group.
        """
        coming, rest = self.strata.arrived / self.strata.share, self.family == 0
        among = (counted * self.strata.weights)[:, rest].sum(axis=1)
        found: Floats = among * (coming[rest].sum() / max(float(among.sum()), 1e-300))
        for index, place in enumerate(self.places.tolist()):
            found[index] += coming[self.family == place].sum() if place else 0.0
        return found

    def placed(self, values: Floats) -> Floats:
        """Add values up by group and stratum."""
        width = len(self.strata.arrived)
        flat = np.bincount(self.group * width + self.stratum, values, self.groups * width)
        return flat.reshape(self.groups, width).astype(np.float64, copy=False)


def gathered(table: pa.Table, keys: Sequence[str], facts: SampleFacts) -> WindowSample:
    """Tell strata from rows of the sample, and find the stratum of each row."""
    counts = pc.is_valid(table[ARRIVED])
    counted, rows = table.filter(counts), table.filter(pc.invert(counts))
    counted = _with_lost_groups(counted)
    by = [GROUP, SUBSTREAM, STEP]
    strata = counted.group_by(by).aggregate([(ARRIVED, "sum"), (TAKEN, "sum")])
    strata = strata.sort_by([(name, "ascending") for name in by])
    family, starts, steps = (strata[name].to_numpy() for name in by)
    arrived = strata[f"{ARRIVED}_sum"].to_numpy().astype(np.float64)
    cells = zip(family.tolist(), starts.tolist(), steps.tolist(), strict=True)
    places = {cell: i for i, cell in enumerate(cells)}
    shares = facts.shares(starts)
    known = max(facts.delays.records, 1.0)
    whole = Strata(
        arrived,
        strata[f"{TAKEN}_sum"].to_numpy().astype(np.float64),
        shares,
        np.sqrt((1.0 - shares) / (shares * known)),
    )
    folded, labels = whole.collapsed(family)
    named = zip(*(rows[name].to_pylist() for name in by), strict=True)
    try:
        found = [
            places[(0, *when)] if (own := places.get((name, *when))) is None else own
            for name, *when in named
        ]
        stratum = labels[np.array(found, dtype=np.intp)]
    except KeyError as error:
        raise SlackwaterError(
            "a sampled row lies in a stretch of time that no record was read from: a transform "
            "changes the event time; change it in the source, or leave error= away"
        ) from error
    group, heads = group_ids(rows, keys)
    sizes = [
        SubstreamCount(int(start), facts.width_ms, float((arrived / shares)[starts == start].sum()))
        for start in np.unique(starts).tolist()
    ]
    groups = heads.num_rows if keys else min(rows.num_rows, 1)
    names = np.zeros(groups, dtype=np.int64)
    names[group] = rows[GROUP].to_numpy()
    families = np.zeros(len(folded.arrived), dtype=np.int64)
    families[labels] = family
    return WindowSample(folded, tuple(sizes), rows, group, stratum, heads, groups, names, families)


def _with_lost_groups(counted: pa.Table) -> pa.Table:
    """Count groups with too small a sample to tell a spread among those without a rate."""
    taken = counted.group_by([GROUP]).aggregate([(TAKEN, "sum")])
    few = taken.filter(pc.less(taken[f"{TAKEN}_sum"], 2))[GROUP]
    named = pc.if_else(pc.is_in(counted[GROUP], few.combine_chunks()), 0, counted[GROUP])
    return counted.set_column(counted.schema.get_field_index(GROUP), GROUP, named)
