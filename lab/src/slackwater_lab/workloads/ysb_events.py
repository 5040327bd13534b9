"""The Yahoo Streaming Benchmark's advertisement events, as `slackwater.ysb` makes them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.progress.arrivals import hash64
from slackwater.progress.tables import AliasTable, zipf_shares
from slackwater.spark.sources.ysb import ADS_PER_CAMPAIGN, CAMPAIGNS
from slackwater_lab.workloads.injected import (
    LOWER_BITS,
    UNIT,
    Columns,
    Hashes,
    InjectedWorkload,
    Numbers,
    chosen,
    digit,
    require,
)

_TYPES = ["banner", "modal", "sponsored-search", "mail", "mobile"]
_KINDS = ["view", "click", "purchase"]


@dataclass(frozen=True)
class YsbEvents(InjectedWorkload):
    """Views, clicks and purchases of advertisements; `skew` is the Zipf exponent of campaigns."""

    name: ClassVar[str] = "ysb"
    key: ClassVar[str] = "user_id"
    settings: ClassVar[tuple[str, ...]] = ("skew",)
    skew: float = 0.0

    def __post_init__(self) -> None:
        require(0 <= self.skew <= 10, "skew", self.skew, "a Zipf exponent from 0 to 10")

    @cached_property
    def _campaigns(self) -> AliasTable:
        return AliasTable.of(zipf_shares(CAMPAIGNS, self.skew))

    def columns(self, numbers: Numbers, hashes: Hashes) -> Columns:
        """Take the fields out of the lower half of the bits, and out of their hash."""
        kind, rest = digit(hashes & LOWER_BITS, 3)
        if self.skew == 0:
            ad, _ = digit(rest, CAMPAIGNS * ADS_PER_CAMPAIGN)
        else:
            place, rest = digit(rest, ADS_PER_CAMPAIGN)
            ad = self._campaigns.draw(rest.astype(np.float64) * UNIT) * ADS_PER_CAMPAIGN + place
        more = hash64(hashes)
        address = [pa.array(_bits(more, shift, 255)).cast(pa.string()) for shift in (40, 48, 56)]
        return {
            "user_id": pa.array(_bits(more, 0, 1_048_575)),
            "page_id": pa.array(_bits(more, 20, 1_048_575)),
            "ad_id": pa.array(ad),
            "ad_type": chosen(_TYPES, more.view(np.int64) % 5),
            "event_type": chosen(_KINDS, kind),
            "ip_address": pc.binary_join_element_wise("10", *address, "."),
        }


def _bits(hashes: Hashes, shift: int, mask: int) -> Numbers:
    # A mask of 20 bits or fewer does not see how the sign is shifted in.
    return ((hashes >> np.uint64(shift)) & np.uint64(mask)).astype(np.int64)
