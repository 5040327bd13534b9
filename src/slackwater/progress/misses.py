"""How many misses an interval may allow itself: fewer after it missed, more while it holds.

An interval from the quantiles of the past misses too often when the future is another. So the share
of misses that it aims at is adapted: each miss lowers it, each hit raises it a little, such that it
stays where it is if misses are as frequent as they may be. Whatever changes, the share of misses
comes to what is allowed (I. Gibbs, E. Candès, "Adaptive Conformal Inference Under Distribution
Shift", NeurIPS 2021).

>>> allowed = AllowedMisses(0.05)
>>> allowed.observe(missed=True)
>>> round(allowed.share, 4)
0.0215
>>> for _ in range(19):
...     allowed.observe(missed=False)
>>> round(allowed.share, 4)
0.05
"""

from __future__ import annotations

# How much one miss counts, of what is allowed. Two misses on end bring the aim to none at all.
_GAIN = 0.6
# A long time without a miss says little about the next: the aim stays within this of the allowed.
_MOST = 1.4


class AllowedMisses:
    """Adapt the share of misses to aim at, so that as many come about as are allowed."""

    def __init__(self, allowed: float) -> None:
        self._allowed = allowed
        self._aim = allowed

    @property
    def share(self) -> float:
        """Return the share of misses that the next interval should aim at."""
        return max(self._aim, 0.0)

    def observe(self, *, missed: bool) -> None:
        """Take in whether an interval held."""
        gain = _GAIN * self._allowed
        self._aim += gain * (self._allowed - missed)
        self._aim = min(max(self._aim, -gain), _MOST * self._allowed)
