"""What a running runtime knows of its inputs and no journal holds: rates, lags, what is away.

It is written beside the journal every other second, for `slackwater status`.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from slackwater.disk import PRIVATE, Access
from slackwater.errors import SourceError
from slackwater.progress.arrival_rates import ArrivalRate
from slackwater.runtime.deployed import DeployedQuery
from slackwater.runtime.fleet import Fleet

logger = logging.getLogger("slackwater")

FILE: Final = "live.json"
_LOOK_MS: Final = 250.0
_WRITE_MS: Final = 2_000.0


@dataclass(frozen=True)
class LiveInput:
    """Tell how the input of one query stands; `lags` and `lost` are of sources that know them."""

    query: str
    queued: int
    arrivals_per_s: float | None
    lags: dict[str, int]
    lost: int
    waits_for: str | None


class LiveInputs:
    """Follow how fast each query's input arrives, and tell."""

    def __init__(
        self,
        fleet: Fleet,
        directory: Path,
        reasons: Callable[[int], str | None] = lambda query: None,
        access: Access = PRIVATE,
    ) -> None:
        """Write into a directory; `reasons` tells what a query waits for besides its input."""
        self._fleet = fleet
        self._opener = partial(os.open, mode=access.file_mode)
        self._file = directory / FILE
        self._rates: dict[int, ArrivalRate] = {}
        self._reasons = reasons
        self._look_ms = self._write_ms = -math.inf  # of the steady clock
        self._queued: dict[int, int] = {}

    def turn(
        self,
        now_ms: float,
        steady_ms: float,
        submit: Callable[[Callable[[], object]], object],
    ) -> None:
        """Look at all inputs if it is time; writing is given to `submit`, to be done elsewhere."""
        if steady_ms < self._look_ms:
            return
        self._look_ms = steady_ms + _LOOK_MS
        queued = self._fleet.queued(now_ms)
        self._queued = {query.number: int(queued[query.row]) for query in self._fleet.queries}
        for query in self._fleet.queries:
            rate = self._rates.setdefault(query.number, ArrivalRate())
            consumed = query.state.records_read
            rate.observe(steady_ms, consumed=consumed, lag=int(queued[query.row]))
        if steady_ms >= self._write_ms:
            self._write_ms = steady_ms + _WRITE_MS
            told = [self.tell(query, int(queued[query.row])) for query in self._fleet.queries]
            submit(lambda: self._write(now_ms, told))

    def queued(self, query: int) -> int:
        """Tell what waited for a query when it was looked at last; any thread may ask."""
        return self._queued.get(query, 0)

    def tell(self, query: DeployedQuery, queued: int) -> LiveInput:
        """Tell how one query's input stands."""
        rate = self._rates.get(query.number)
        lags: dict[str, int] = {}
        with suppress(SourceError):  # its next step will say so
            for index, reader in enumerate(query.readers):
                lags |= reader.lags(query.positions(index))
        waits = (self._reasons(query.number), *(reader.waits_for() for reader in query.readers))
        return LiveInput(
            query=query.state.name,
            queued=queued,
            arrivals_per_s=None if rate is None else rate.per_s,
            lags=lags,
            lost=sum(reader.lost for reader in query.readers),
            waits_for=next((reason for reason in waits if reason is not None), None),
        )

    def close(self) -> None:
        """Remove the file: nothing is running any more that it could tell of."""
        with suppress(OSError):
            self._file.unlink(missing_ok=True)

    def _write(self, now_ms: float, told: Sequence[LiveInput]) -> None:
        """Replace the file; it may be missed, so nothing waits for the disk."""
        content = {"at_ms": now_ms, "inputs": [asdict(each) for each in told]}
        scratch = self._file.with_suffix(".tmp")
        try:
            with open(scratch, "w", opener=self._opener) as file:
                file.write(json.dumps(content))
            os.replace(scratch, self._file)
        except OSError as error:
            logger.info("%s could not be written: %s", self._file, error)


def read_live(directory: Path) -> tuple[LiveInput, ...]:
    """Read what the process that uses a directory told last; empty where it told nothing."""
    try:
        content: dict[str, Any] = json.loads((directory / FILE).read_text())
        return tuple(LiveInput(**cells) for cells in content["inputs"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return ()
