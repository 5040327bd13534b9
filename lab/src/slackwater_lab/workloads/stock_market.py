"""Rolling prices, alerts and correlations of a stock market, window by window.

The workload *stock market* of S. Esteves et al., "Aion: Better Late than Never in Event-Time
Streams": trades with a payload of 1.5 to 3.5 KB, windows of 30 s. For each symbol comes

- the volume-weighted price, and the highest mean of ten trades in a row (rolling aggregates),
- how many trades were more than three deviations off the twenty before them (alerts),
- how its prices, second by second, move with those of the whole market (correlation).

Written to be read as an example of `apply` with functions over ordered rows, which Structured
Streaming does not have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

import slackwater as sw
from slackwater.app.windows import Windows
from slackwater.errors import DescriptionError
from slackwater.progress.grid import WindowGrid
from slackwater.spark.sinks.base import Sink
from slackwater.spark.sources.generator import Generator
from slackwater_lab.workloads.late_wishes import STALENESS, kept_for
from slackwater_lab.workloads.payloads import payload_sql
from slackwater_lab.workloads.workload import Feed, Phase, Workload, varied, windows_of

WINDOW_MS: Final = 30_000
SYMBOLS: Final = 50


def market_app(sink: Sink, *, phase: Phase = "spread", variant: int = 0) -> sw.App:
    """Watch the market; late trades amend the window that they belong to."""
    app = sw.App("stock_market" if variant == 0 else f"stock_market-{variant}")
    (
        app.source("trades")
        .transform(lambda trades: varied(trades, "symbol", variant))
        .window(windows_of(WINDOW_MS, phase))
        .apply(watched)
        .to(sink, lateness=kept_for(WINDOW_MS), staleness=STALENESS)
    )
    return app


def watched(trades: DataFrame) -> DataFrame:
    """Compute what is told of each symbol from one window's trades."""
    rolled = rolling(trades)
    prices = rolled.groupBy("symbol").agg(
        F.count("*").alias("trades"),
        F.expr("sum(price * volume) / sum(volume)").alias("weighted_price"),
        F.max("mean_of_ten").alias("highest_mean"),
        F.expr("count_if(abs(price - mean_before) > 3 * deviation_before)").alias("alerts"),
    )
    return prices.join(with_market(trades), "symbol", "left")


def rolling(trades: DataFrame) -> DataFrame:
    """Add to each trade the mean of ten up to it, and mean and deviation of twenty before it."""
    in_order = Window.partitionBy("symbol").orderBy("event_time", "trade")
    before = in_order.rowsBetween(-20, -1)
    return trades.select(
        "symbol",
        "price",
        "volume",
        F.avg("price").over(in_order.rowsBetween(-9, 0)).alias("mean_of_ten"),
        F.avg("price").over(before).alias("mean_before"),
        F.stddev_samp("price").over(before).alias("deviation_before"),
    )


def with_market(trades: DataFrame) -> DataFrame:
    """Correlate each symbol's mean price of each second with that of all symbols."""
    second = F.date_trunc("second", "event_time").alias("second")
    market = trades.groupBy(second).agg(F.avg("price").alias("market"))
    own = trades.groupBy("symbol", second).agg(F.avg("price").alias("own"))
    joined = own.join(market, "second")
    return joined.groupBy("symbol").agg(F.corr("own", "market").alias("with_market"))


@dataclass(frozen=True)
class StockMarket(Workload):
    """Watch prices of symbols."""

    name: ClassVar[str] = "stock_market"

    def stages(self, phase: Phase) -> tuple[Windows, ...]:
        """Return windows of 30 s."""
        return (windows_of(WINDOW_MS, phase),)

    def sources(self, feed: Feed) -> dict[str, Generator]:
        """Generate trades: prices swing slowly, each symbol about its own, with some noise."""
        trades = sw.generator(
            rate=feed.rate,
            delay=feed.delay,
            seed=feed.salt(),
            start_ms=feed.start_ms,
            keys=SYMBOLS,
            helpers={"noise": "(pmod(xxhash64(h), 1000003) / 1000003D - 0.5D)"},
            columns={
                "trade": "n",
                "symbol": "key",
                "price": "round(20D + key + 5D * sin(arrival_us / 1e7 + key) "
                "+ noise + if(pmod(h, 997) = 0, 8D, 0D), 4)",
                "volume": "1 + pmod(xxhash64(h), 500)",
                "payload": payload_sql(),
            },
        )
        return {"trades": trades}

    def app(self, spark: SparkSession, sink: Sink, *, phase: Phase, variant: int) -> sw.App:
        """Write the query."""
        return market_app(sink, phase=phase, variant=variant)

    def streaming_frame(
        self,
        inputs: Mapping[str, DataFrame],
        lag_ms: int,
        *,
        grids: Sequence[WindowGrid],
        variant: int,
    ) -> DataFrame:
        """Refuse: Structured Streaming has no functions over ordered rows of a window."""
        raise DescriptionError(
            "policies=stock cannot run stock_market: Structured Streaming has no functions over "
            "the ordered rows of a window; leave stock out, or take another workload"
        )
