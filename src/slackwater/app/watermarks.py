"""How a query learns that event time has passed: the watermark strategies, as descriptions."""

from __future__ import annotations

from dataclasses import dataclass

from slackwater.app.durations import Duration, to_ms


@dataclass(frozen=True)
class BoundedLateness:
    """Trail the highest event time of a partition by a fixed bound."""

    bound_ms: int


@dataclass(frozen=True)
class FromSource:
    """Follow the watermarks that travel with the source's own data."""


@dataclass(frozen=True)
class Punctuated:
    """Follow records that announce a watermark: a SQL expression giving a timestamp, or null."""

    expression: str


@dataclass(frozen=True)
class KSlack:
    """Trail the highest event time of a partition by the largest delay seen so far."""


WatermarkStrategy = BoundedLateness | FromSource | Punctuated | KSlack


def bounded(bound: Duration) -> BoundedLateness:
    """Expect no event more than `bound` behind the newest one of its partition."""
    return BoundedLateness(to_ms(bound, "bounded(bound)", allow_zero=True))


def from_source() -> FromSource:
    """Use the periodic watermarks that the source sends with its data."""
    return FromSource()


def punctuated(expression: str) -> Punctuated:
    """Read the watermark from the records for which `expression` is not null."""
    return Punctuated(expression)


def k_slack() -> KSlack:
    """Wait as long as the slowest record has ever taken (K-Slack): safe, late, and never less."""
    return KSlack()
