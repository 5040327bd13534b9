"""What is summed up of a sample, so that an aggregate can be estimated with its bounds.

Per stratum and group, an aggregate needs other partials than when every event counts: squares,
for the spread. All are doubles: an estimate has no more digits than its error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slackwater.app.aggregates import (
    Aggregate,
    ApproxDistinct,
    ApproxQuantile,
    Count,
    Max,
    Mean,
    MergeKind,
    Min,
    Partial,
    Sum,
    Variance,
)
from slackwater.app.bounds import bound_names
from slackwater.app.checks import check_names
from slackwater.app.types import is_number
from slackwater.errors import DescriptionError


def sampled_partials(name: str, aggregate: Aggregate) -> tuple[Partial, ...]:
    """List the state columns from which one aggregate is estimated."""
    x = "" if aggregate.column is None else f"CAST({aggregate.argument} AS DOUBLE)"
    match aggregate:
        case Count(column=None):
            return ()
        case Count():
            return (_sum(f"{name}__n", f"count({aggregate.argument})"),)
        case Sum() | Mean():
            return (
                _sum(f"{name}__n", f"count({x})"),
                _sum(f"{name}__s1", f"coalesce(sum({x}), 0D)"),
                _sum(f"{name}__s2", f"coalesce(sum({x} * {x}), 0D)"),
            )
        case Variance():
            n, m2 = f"count({x})", f"(var_pop({x}) * count({x}))"
            third = f"if({m2} > 0, skewness({x}) * power({m2}, 1.5D) / sqrt({n}), 0D)"
            fourth = f"if({m2} > 0, (kurtosis({x}) + 3D) * {m2} * {m2} / {n}, 0D)"
            return (
                _sum(f"{name}__n", n),
                _sum(f"{name}__mean", f"coalesce(avg({x}), 0D)"),
                _sum(f"{name}__m2", f"coalesce({m2}, 0D)"),
                _sum(f"{name}__m3", f"coalesce({third}, 0D)"),
                _sum(f"{name}__m4", f"coalesce({fourth}, 0D)"),
            )
        case ApproxQuantile():
            return aggregate.partials(name)
        case _:
            kind = MergeKind.MIN if isinstance(aggregate, Min) else MergeKind.MAX
            return (Partial(f"{name}__{aggregate.function}", f"{aggregate.function}({x})", kind),)


def check_sampled(place: str, aggregates: Mapping[str, Aggregate], keys: Sequence[str]) -> None:
    """Refuse aggregates that no sample can bound, and names that the bounds need."""
    for name, aggregate in aggregates.items():
        if isinstance(aggregate, ApproxDistinct):
            raise DescriptionError(
                f"{place}: error=within(...) with {name}={aggregate.label}: no sample tells how "
                "many different values there are; give it an output of its own, without error="
            )
        if isinstance(aggregate, ApproxQuantile) and isinstance(aggregate.p, tuple):
            raise DescriptionError(
                f"{place}: error=within(...) with {name}={aggregate.label}: bounds are those of "
                "one number; write one approx_quantile for each rank"
            )
    if all(isinstance(each, Min | Max) for each in aggregates.values()):
        raise DescriptionError(
            f"{place}: error=within(...) over minima and maxima only: a sample bounds neither; "
            "leave error= away, or ask for approx_quantile(x, 0.999)"
        )
    check_names((*keys, *bound_names(list(aggregates))), f"{place}, error=within(...)")


def check_sampled_types(place: str, aggregates: Mapping[str, Aggregate]) -> None:
    """Refuse minima and maxima of what is no number: bounds are numbers."""
    for name, each in aggregates.items():
        if isinstance(each, Min | Max) and not is_number(each.type_name or ""):
            raise DescriptionError(
                f"{place}: error=within(...) with {name}={each.label} over {each.type_name}: "
                "bounds are numbers; cast it, or give it an output of its own without error="
            )


def _sum(column: str, sql: str) -> Partial:
    return Partial(column, sql, MergeKind.SUM)
