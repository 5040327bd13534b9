"""What users wish of a result besides its content: how exact it must be, and how surely."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from slackwater.errors import DescriptionError
from slackwater.sampling.applied import ResultErrorFunction

SamplingMethod = Literal["early", "patient", "slack"]
# For how many events of the window a row stands: a column that functions of a sample see.
WEIGHT = "_sw_weight"


@dataclass(frozen=True)
class ErrorWish:
    """Wish for results at their deadline, from as few events as keep the error small.

    `groups` None: the bound is that of the total over all groups. A share: it is that of every
    group with at least this share of a window's rows. `audit` is the share of windows that are
    computed exactly afterwards, to see whether the bounds hold. `functions` are the error functions
    of a result that `apply` makes, by the name of the number that each bounds.
    """

    relative: float
    confidence: float
    groups: float | None
    audit: float
    method: SamplingMethod
    functions: Mapping[str, ResultErrorFunction] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        """Refuse what is no share, and what no sample could ever hold."""
        _share("within", self.relative, 0.001, 0.5, "an error from 0.001 to 0.5, such as 0.05")
        _share("confidence", self.confidence, 0.5, 0.999, "a share from 0.5 to 0.999")
        if self.groups is not None:
            _share("groups", self.groups, 0.0001, 1.0, "a share of the rows, or None for the total")
        _share("audit", self.audit, 0.0, 1.0, "a share of the windows, from 0 to 1")
        if self.method not in get_args(SamplingMethod):
            known = ", ".join(map(repr, get_args(SamplingMethod)))
            raise DescriptionError(f"within(method={self.method!r}) is unknown: use one of {known}")
        for name, function in self.functions.items():
            if not callable(function):
                raise DescriptionError(
                    f"within(functions={{{name!r}: {function!r}}}): give a function from a "
                    "SampledWindow to its bounds, such as lambda window: window.mean(...)"
                )
        if self.functions and self.groups is not None:
            raise DescriptionError(
                f"within(groups={self.groups!r}, functions=...): groups are those of aggregates; "
                "bound each row of the result instead, with window.mean(values, of=...)"
            )


def within(
    relative: float,
    *,
    confidence: float = 0.95,
    groups: float | None = None,
    audit: float = 0.05,
    method: SamplingMethod = "early",
    functions: Mapping[str, ResultErrorFunction] | None = None,
) -> ErrorWish:
    """Ask for results within a relative error, with a confidence, from a sample of the events.

    `groups=0.01` asks it of every group with at least 1 % of the rows, else it is asked of the
    total. `method` is there to compare: "patient" samples but waits for the source's watermark,
    "slack" takes all events and waits until few enough are missing.

    `functions={"cost": f}` is for results of `apply(...)`: `f` gets a `SampledWindow`, with the
    sampled `rows` and the `result`, and returns the bounds of a number called `cost`, such as
    `window.mean(values)` with one value for each row.

    >>> within(0.05).confidence
    0.95
    """
    return ErrorWish(relative, confidence, groups, audit, method, dict(functions or {}))


def bound_names(names: Sequence[str]) -> list[str]:
    """Name the columns of results under an error wish, in order.

    >>> bound_names(["n"])
    ['n', 'n_low', 'n_high', 'confidence', 'sampled', 'population', 'met']
    """
    bounds = [column for name in names for column in (name, f"{name}_low", f"{name}_high")]
    return [*bounds, "confidence", "sampled", "population", "met"]


def _share(field: str, value: float, least: float, most: float, wanted: str) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not least <= value <= most:
        raise DescriptionError(f"within({field}={value!r}) cannot be: give {wanted}")
