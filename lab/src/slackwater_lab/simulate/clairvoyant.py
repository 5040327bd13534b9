"""How well a schedule could do that knows the future: when watermarks come, and what steps cost.

No formula gives the optimum of steps that share fixed costs and cannot be interrupted. So this
looks ahead: at each decision it tries what could be done now, plays each alternative out on the
true future for a while, and takes the one that keeps due windows waiting least. What it finds is a
schedule, hence an upper bound of the optimum; no schedule can be below `least_ms`.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Final

import numpy as np

from slackwater.scheduling.groups import Costs, Group, bounded, groups
from slackwater.scheduling.klink import Klink
from slackwater.scheduling.snapshot import Decision, FleetSnapshot
from slackwater_lab.simulate.model import Scenario
from slackwater_lab.simulate.replay import Outcome, Replay

_HORIZON_MS: Final = 1_200.0
_TRIED: Final = 4  # groups of each kind


class _Foreseeing(Replay):
    """Show policies the true moments of the watermarks instead of forecasts."""

    def _forecast(self, row: int) -> None:
        super()._forecast(row)
        self._expected[row] = self._sweep_at[row]
        self._deviation[row] = 0.0

    def fork(self) -> _Foreseeing:
        """Return a copy that can be played out by itself, by least slack first."""
        other = _Foreseeing.__new__(_Foreseeing)
        for name, value in vars(self).items():
            setattr(other, name, value.copy() if isinstance(value, np.ndarray) else value)
        other._running = list(self._running)
        other._use = copy(self._use)
        other._policy = Klink()
        other._estimators = []
        other.outcome = Outcome()
        return other

    def _close(self, row: int, watermark: int | None, ended_ms: float) -> None:
        if self._estimators:
            super()._close(row, watermark, ended_ms)
            return
        query = self._scenario.queries[row]
        while watermark is not None and self._deadline[row] <= watermark:
            self._deadline[row] += query.grid.slide_ms
            swept_ms = query.watermarks.sweep_arrival_ms(int(self._deadline[row]))
            self._sweep_at[row] = self._expected[row] = swept_ms


class Clairvoyant(_Foreseeing):
    """Decide by trying."""

    def __init__(self, scenario: Scenario) -> None:
        """Start at time zero."""
        super().__init__(scenario, Klink())

    def _decide(self) -> float | None:
        free = self._scenario.slots - len(self._running)
        if free == 0:
            return None
        snapshot = self.snapshot(free)
        best: tuple[float, Decision] | None = None
        for decision in _alternatives(snapshot):
            waited_ms = self._played_out(snapshot, decision)
            if best is None or waited_ms < best[0] - 1e-6:
                best = waited_ms, decision
        assert best is not None
        for choice in best[1].steps:
            self._begin(choice, snapshot)
        return best[1].wake_ms

    def _played_out(self, snapshot: FleetSnapshot, decision: Decision) -> float:
        """Return how long due windows wait if this is done now, and least slack first after."""
        other = self.fork()
        until_ms = self.now_ms + _HORIZON_MS
        for choice in decision.steps:
            other._begin(choice, snapshot)
        other._advance(decision.wake_ms, until_ms)
        other.run_until(until_ms)
        return other.waited_ms - self.waited_ms


def _alternatives(fleet: FleetSnapshot) -> Iterator[Decision]:
    """List what could be done now: one step, or to wait until something happens."""
    yield Klink().decide(fleet)
    yield Decision()
    for group in _by_sweep(fleet, fleet.ready & fleet.due)[:_TRIED]:
        yield _one(fleet, bounded(fleet, group))
        if len(group.rows) > 1:
            yield _one(fleet, group.part(slice(1)))
    for group in _by_sweep(fleet, fleet.ready & ~fleet.due & (fleet.queued > 0))[:_TRIED]:
        for count in {1, len(group.rows)}:
            yield _one(fleet, group.part(slice(count)))


def _by_sweep(fleet: FleetSnapshot, among: np.ndarray) -> list[Group]:
    """List groups, and their members, in the order in which their watermarks come."""
    rows = np.flatnonzero(among)
    rows = rows[np.argsort(fleet.sweep_ms[rows], kind="stable")]
    each_ms = Costs(fleet).all_queued_ms[rows]
    return groups(fleet, rows.tolist(), each_ms.tolist(), singles=_TRIED)


def _one(fleet: FleetSnapshot, group: Group) -> Decision:
    return Decision((group.choice(fleet),))


def clairvoyant(scenario: Scenario) -> Outcome:
    """Replay a scenario with foresight."""
    return Clairvoyant(scenario).run()


def least_ms(scenario: Scenario) -> float:
    """Return what no schedule can be below, noise apart: the fixed cost of a step."""
    costs = [scenario.costs[query.template].fixed_ms for query in scenario.queries]
    return float(np.mean(costs))
