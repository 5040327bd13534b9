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
from slackwater.spark.sampled import ARRIVED, SUBSTREAM, TAKEN

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

    def summed(self, column: str) -> Floats:
        """Add a column up by group and stratum."""
        values = pc.fill_null(self.rows[column].cast(pa.float64()), 0.0).to_numpy()
        return self.placed(values)

    def placed(self, values: Floats) -> Floats:
        """Add values up by group and stratum."""
        width = len(self.strata.arrived)
        flat = np.bincount(self.group * width + self.stratum, values, self.groups * width)
        return flat.reshape(self.groups, width).astype(np.float64, copy=False)


def gathered(table: pa.Table, keys: Sequence[str], facts: SampleFacts) -> WindowSample:
    """Tell strata from rows of the sample, and find the stratum of each row."""
    counts = pc.is_valid(table[ARRIVED])
    counted, rows = table.filter(counts), table.filter(pc.invert(counts))
    strata = counted.group_by([SUBSTREAM, STEP]).aggregate([(ARRIVED, "sum"), (TAKEN, "sum")])
    strata = strata.sort_by([(SUBSTREAM, "ascending"), (STEP, "ascending")])
    starts, steps = strata[SUBSTREAM].to_numpy(), strata[STEP].to_numpy()
    arrived = strata[f"{ARRIVED}_sum"].to_numpy().astype(np.float64)
    places = {pair: i for i, pair in enumerate(zip(starts.tolist(), steps.tolist(), strict=True))}
    shares = facts.shares(starts)
    known = max(facts.delays.records, 1.0)
    whole = Strata(
        arrived,
        strata[f"{TAKEN}_sum"].to_numpy().astype(np.float64),
        shares,
        np.sqrt((1.0 - shares) / (shares * known)),
    )
    folded, labels = whole.collapsed()
    pairs = zip(rows[SUBSTREAM].to_pylist(), rows[STEP].to_pylist(), strict=True)
    try:
        stratum = labels[np.array([places[pair] for pair in pairs], dtype=np.intp)]
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
    return WindowSample(folded, tuple(sizes), rows, group, stratum, heads, groups)
