"""Whether promises are kept: results compared with the truth, and what follows from it.

Some windows are computed exactly, later, from all their records. Their early intervals either held
the truth or not. Where fewer do than the confidence says, by more than chance allows, the planner
grows *cautious*: it samples for a smaller error than was asked for, and intervals are widened by
the same factor. Kept promises let the caution fade.

Wider intervals need not be wide enough. Where misses are far more than chance allows, results are
*doubted*: no row says that it keeps the error asked for, until enough intervals hold again.

Stragglers that differ from the rest are another matter: no sample of what has arrived tells of
them. So audits also learn by how much results are off *for each share of the window that was
missing*; the planner waits until little enough is missing, and intervals allow for the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

Promise = tuple[float, float, float]  # a value and its bounds

RECENT = 40  # audits that caution looks at
_GROWTH = 1.15
_MOST_CAUTION = 4.0
_LITTLE_CHANCE = 0.01  # that so many miss where the confidence holds: from then on, doubt
_TO_TRUST = 20  # audited windows in a row, with as few misses as the confidence says, that end it
_LEAST_AUDITS = 5  # before results are said to be off for a reason
_LEAST_MISSING = 0.002  # of a window; less tells nothing of stragglers


@dataclass(frozen=True)
class Audits:
    """Count audited results; those whose interval held, and those within the error asked for."""

    audited: int = 0
    held: int = 0
    within: int = 0
    recent: tuple[bool, ...] = ()  # newest last
    caution: float = 1.0
    doubted: bool = False
    since: tuple[bool, ...] = ()  # a result of each window, for doubt; newest last
    # Of relative errors over missing shares: how many count, their mean and variance.
    off: tuple[float, float, float] = (0.0, 0.0, 0.0)

    @property
    def coverage(self) -> float | None:
        """Return the share of intervals that held the truth; None before the first audit."""
        return self.held / self.audited if self.audited else None

    @property
    def recent_coverage(self) -> float | None:
        """Return that share over the newest audits only."""
        return sum(self.recent) / len(self.recent) if self.recent else None

    @property
    def straggler_bias(self) -> float:
        """Return the relative error for each share that is missing; 0 unless it is beyond doubt."""
        count, mean, variance = self.off
        if count < _LEAST_AUDITS:
            return 0.0
        error = math.sqrt(variance / count)
        return abs(mean) + error if abs(mean) > 2.0 * error else 0.0

    def off_by(self, relative: float, missing: float) -> Audits:
        """Take in by how much a result was off, with its sign, and the share that was missing."""
        if missing < _LEAST_MISSING or not math.isfinite(relative):
            return self
        count, mean, variance = self.off
        count = min(count + 1.0, float(RECENT))
        change = relative / missing - mean
        mean += change / count
        variance += (change * (relative / missing - mean) - variance) / count
        return replace(self, off=(count, mean, max(variance, 0.0)))

    def after(self, *, held: bool, within: bool, confidence: float) -> Audits:
        """Take in one audited result."""
        return self.counted(held=held, within=within).taught(held=held, confidence=confidence)

    def counted(self, *, held: bool, within: bool) -> Audits:
        """Count one audited result."""
        return replace(
            self,
            audited=self.audited + 1,
            held=self.held + held,
            within=self.within + within,
        )

    def taught(self, *, held: bool, confidence: float) -> Audits:
        """Let one result make the planner more cautious, or less."""
        recent = (*self.recent, held)[-RECENT:]
        counted = replace(self, recent=recent)
        if not held and _too_few(recent, confidence):
            # What was seen before no longer tells of the new width.
            caution = min(self.caution * _GROWTH, _MOST_CAUTION)
            return replace(counted, caution=caution, recent=recent[-RECENT // 4 :])
        if held and len(recent) == RECENT and not _too_few(recent, confidence):
            caution = max(1.0, self.caution * (1.0 - 0.2 / RECENT))
            return replace(counted, caution=caution)
        return counted

    def of_window(self, *, held: bool, confidence: float) -> Audits:
        """Begin to doubt results that miss too often, or end it where they hold again.

        One result of each window counts: those of a window miss together, which is no evidence.
        """
        since = (*self.since, held)[-RECENT:]
        if not self.doubted:
            begins = not held and _too_few(since, confidence, _LITTLE_CHANCE)
            return replace(self, doubted=begins, since=() if begins else since)
        newest = since[-_TO_TRUST:]
        misses = len(newest) - sum(newest)
        ends = len(newest) == _TO_TRUST and misses <= (1.0 - confidence) * _TO_TRUST + 1e-9
        return replace(self, doubted=not ends, since=newest if ends else since)

    def to_json(self) -> list[Any]:
        """Write the counts as JSON values."""
        doubt = [self.doubted, _bits(self.since)]
        recent = _bits(self.recent)
        return [self.audited, self.held, self.within, recent, self.caution, list(self.off), *doubt]

    @classmethod
    def from_json(cls, cells: list[Any]) -> Audits:
        """Read what `to_json` wrote."""
        audited, held, within, bits, caution, off, *doubt = cells
        doubted, since = doubt or (False, "")  # older journals have none
        spread = (off[0], off[1], off[2])
        return cls(
            audited,
            held,
            within,
            _from_bits(bits),
            caution,
            doubted=doubted,
            since=_from_bits(since),
            off=spread,
        )


def _bits(held: tuple[bool, ...]) -> str:
    return "".join("1" if each else "0" for each in held)


def _from_bits(bits: str) -> tuple[bool, ...]:
    return tuple(bit == "1" for bit in bits)


def _too_few(recent: tuple[bool, ...], confidence: float, chance: float = 0.1) -> bool:
    """Tell whether so many misses are that unlikely where the confidence holds."""
    misses = len(recent) - sum(recent)
    return misses >= 2 and binomial_tail(len(recent), 1.0 - confidence, misses) < chance


def binomial_tail(tries: int, chance: float, least: int) -> float:
    """Return the probability of at least so many hits.

    >>> round(binomial_tail(100, 0.05, 10), 3)
    0.028
    """
    log_hit, log_miss, ways = math.log(chance), math.log1p(-chance), math.lgamma(tries + 1)
    below = sum(
        math.exp(
            ways
            - math.lgamma(hits + 1)
            - math.lgamma(tries - hits + 1)
            + hits * log_hit
            + (tries - hits) * log_miss
        )
        for hits in range(least)
    )
    return max(0.0, 1.0 - below)


def relative_error(estimate: float, truth: float) -> float:
    """Return how far off an estimate is, relative to the truth."""
    if truth == 0.0:
        return 0.0 if estimate == 0.0 else math.inf
    return abs(estimate - truth) / abs(truth)


def audited(
    audits: Audits,
    early: Mapping[str, Promise],
    truth: Mapping[str, float],
    *,
    missing: float,
    relative: float,
    confidence: float,
    counts: bool = True,
    teaches: bool = True,
) -> Audits:
    """Compare a window's early results (value, low, high), by name, with the exact ones.

    `missing` is the share of the window that had not arrived. A comparison with what later events
    may still change teaches, but does not count; one that has taught already only counts.
    """
    outcomes = []
    for name, (value, low, high) in early.items():
        if name in truth and not math.isnan(low) and not math.isnan(high):
            exact = truth[name]
            slip = 1e-9 * abs(exact)
            outcomes.append(bool(low - slip <= exact <= high + slip))
            if teaches:
                if exact:
                    audits = audits.off_by(float((value - exact) / exact), missing)
                audits = audits.taught(held=outcomes[-1], confidence=confidence)
            if counts:
                within = bool(relative_error(value, exact) <= relative)
                audits = audits.counted(held=outcomes[-1], within=within)
    if not outcomes or not counts:
        return audits
    turn = (audits.audited // len(outcomes)) % len(outcomes)  # another result each time
    return audits.of_window(held=outcomes[turn], confidence=confidence)
