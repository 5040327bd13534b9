"""What must be known of a closing window to estimate it, and what its estimate teaches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from slackwater.sampling.audits import Promise
from slackwater.sampling.delays import DelayCounts
from slackwater.sampling.estimates import Spread
from slackwater.sampling.monitor import GroupShare, SubstreamCount
from slackwater.sampling.strata import Floats
from slackwater.sampling.targets import Target


@dataclass(frozen=True)
class SampleFacts:
    """Say how a window was sampled, and up to when its records were read.

    `as_of_ms` None: the source itself said that all have come. `extrapolates` False: what is
    missing is left out, as K-Slack does. Where bounds are not `trusted`, no row says that it keeps
    the error asked for.
    """

    target: Target
    caution: float
    bias: float
    delays: DelayCounts
    as_of_ms: float | None
    width_ms: int
    extrapolates: bool = True
    trusted: bool = True  # no: audits found that bounds hold too seldom

    @property
    def bounded(self) -> bool:
        """Tell whether bounds can be stated: not where what is missing is left out."""
        return self.extrapolates or self.as_of_ms is None

    def shares(self, substreams: Floats) -> Floats:
        """Return the share of each sub-stream, given by its start, that had arrived."""
        if self.as_of_ms is None or not self.extrapolates:
            return np.ones(len(substreams))
        found = [
            self.delays.arrived_share(start, start + self.width_ms, self.as_of_ms)
            for start in substreams.tolist()
        ]
        # What is here at all cannot be nothing of the whole.
        return np.array([max(share, 1e-3) for share in found])


@dataclass(frozen=True)
class WindowLesson:
    """Say what a closed window teaches: sizes of sub-streams, spreads, and what was promised.

    `promised` maps an aggregate (or, where groups count, aggregate and group) to its value and
    bounds; `missing` is the share of the window's records that had not arrived, and
    `sampled_share` that which was sampled. `groups` are those large enough for a rate of their own,
    by the hash of their keys. `result` is what a
    function made of the sample: its promises may be about these very rows.
    """

    substreams: tuple[SubstreamCount, ...]
    spreads: Mapping[str, Spread]
    promised: Mapping[str, Promise]
    missing: float = 0.0
    sampled_share: float = 1.0
    groups: Mapping[int, GroupShare] = field(default_factory=dict)
    result: pa.Table | None = None
