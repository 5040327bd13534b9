"""The Yahoo Streaming Benchmark's input: advertisement events, and the table of advertisements.

S. Chintapalli et al., "Benchmarking Streaming Computation Engines: Storm, Flink and Spark
Streaming", IPDPS workshops, 2016. Identifiers are numbers here, not UUIDs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from slackwater.errors import DescriptionError
from slackwater.progress.tables import AliasTable, zipf_shares
from slackwater.spark.sources.generated_rows import LOWER_HALF, UNIT
from slackwater.spark.sources.generator import Generator, generator

CAMPAIGNS = 100
ADS_PER_CAMPAIGN = 10


def ysb(*, rate: float = 1_000, skew: float = 0.0, **settings: Any) -> Generator:
    """Generate YSB events: a third each of views, clicks and purchases of 1,000 advertisements.

    `skew` is the Zipf exponent of the campaigns, 0 for all alike. All other settings are those of
    `generator`, except `keys` and `columns`.
    """
    for taken in ("keys", "columns"):
        if taken in settings:
            raise DescriptionError(
                f"ysb({taken}=...) is fixed by the benchmark: use generator() for other schemas"
            )
    return generator(rate=rate, columns=_columns(skew), **settings)


def ysb_ads(spark: SparkSession) -> DataFrame:
    """Return the static table of advertisements: `ad_id`, `campaign_id`."""
    return spark.range(0, CAMPAIGNS * ADS_PER_CAMPAIGN, 1, 1).selectExpr(
        "id AS ad_id", f"id div {ADS_PER_CAMPAIGN} AS campaign_id"
    )


def _columns(skew: float) -> Mapping[str, str]:
    """Take the fields out of the lower half of `h`, as the digits of one number."""
    kind, rest = _digit(f"(h & {LOWER_HALF})", 3)
    # No remainder is taken: Spark takes it for nullable, and would test each event for that.
    if skew == 0:
        ad, _ = _digit(rest, CAMPAIGNS * ADS_PER_CAMPAIGN)
    else:
        place, rest = _digit(rest, ADS_PER_CAMPAIGN)
        campaign = AliasTable.of(zipf_shares(CAMPAIGNS, skew)).sql(f"({rest} * {UNIT}D)")
        ad = f"{campaign} * {ADS_PER_CAMPAIGN} + {place}"
    more = "xxhash64(h)"
    return {
        "user_id": f"{more} & 1048575",
        "page_id": f"shiftright({more}, 20) & 1048575",
        "ad_id": ad,
        "ad_type": f"elt(cast(pmod({more}, 5) AS int) + 1, "
        "'banner', 'modal', 'sponsored-search', 'mail', 'mobile')",
        # Nested ifs, not a CASE: Spark reduces a comparison with a constant to one of numbers.
        "event_type": f"if({kind} = 0, 'view', if({kind} = 1, 'click', 'purchase'))",
        "ip_address": f"concat('10.', shiftright({more}, 40) & 255, '.', "
        f"shiftright({more}, 48) & 255, '.', shiftright({more}, 56) & 255)",
    }


def _digit(bits: str, base: int) -> tuple[str, str]:
    """Split a uniform 32-bit number into a uniform digit and the rest, uniform again."""
    scaled = f"({bits} * {base})"
    return f"shiftright({scaled}, 32)", f"({scaled} & {LOWER_HALF})"
