"""Notice that a series has changed for good, whatever its distribution.

A number's rank among those before it is evenly spread and independent of all earlier ranks as long
as nothing changes, whatever the numbers' distribution: so one threshold suits all (D. McDonald,
"A CUSUM procedure based on sequential ranks", Naval Research Logistics 37, 1990). Ranks become
normal scores, and three sums of scores watch for a move up, a move down, and a wider spread.

>>> detector = ChangeDetector()
>>> [detector.observe(share) for share in (0.5, 0.2, 0.998, 0.998, 0.998)]
[None, None, None, None, 3]
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

# A sum gains what a score exceeds half a deviation by, and alarms above 6: numbers that do not
# change alarm about once in a thousand, a move by three deviations within three.
_ALLOWANCE = 0.5
_THRESHOLD = 6.0
_LEAST_SHARE = 1e-3

_score = NormalDist().inv_cdf


@dataclass
class _Sum:
    """Add up evidence in one direction, starting again whenever it is all gone."""

    evidence: float = 0.0
    length: int = 0

    def add(self, score: float) -> bool:
        self.evidence += score - _ALLOWANCE
        if self.evidence <= 0.0:
            self.evidence, self.length = 0.0, 0
            return False
        self.length += 1
        return self.evidence > _THRESHOLD


class ChangeDetector:
    """Watch where each new number stands among those before it."""

    def __init__(self) -> None:
        self._start()

    def observe(self, share_below: float) -> int | None:
        """Take in the share of earlier numbers below the new one.

        Return None, or, when there was a change, how many of the newest numbers came after it.
        Growing spread is watched, shrinking is not: it endangers no interval's coverage.
        """
        score = _score(share_below)
        off_centre = _score(max(abs(2.0 * share_below - 1.0), _LEAST_SHARE))
        alarms = [
            watched.length
            for watched, evidence in (
                (self._up, score),
                (self._down, -score),
                (self._spread, off_centre),
            )
            if watched.add(evidence)
        ]
        if not alarms:
            return None
        self._start()
        return min(alarms)

    def _start(self) -> None:
        self._up, self._down, self._spread = _Sum(), _Sum(), _Sum()
