"""What became of a composition, and whether two outcomes are the same."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
from tests.fuzz.compositions import Composition, Plan

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Outcome:
    """Tell what became of a composition: refused with a reason, or rows for each tenant.

    `error` is what has failed a tenant's query, or anything that is not a refusal.
    """

    refused: str | None = None
    error: str | None = None
    rows: Mapping[int, Rows] | None = None
    types: Mapping[str, pa.DataType] | None = None
    failed: frozenset[int] = frozenset()  # tenants whose rows cannot be computed
    rebuilt: bool = False


def essence(error: BaseException) -> str:
    """Say in a line what went wrong."""
    text = str(error).strip() or repr(error)
    return f"{type(error).__name__}: {text.splitlines()[0]}"


def difference(composition: Composition, plan: Plan, ours: Outcome, true: Outcome) -> str:
    """Say how a composition's outcome is not what it should be; empty where it is."""
    if ours.refused is not None:
        if "app 'app" not in ours.refused:
            return f"refused without naming the place: {ours.refused}"
        accepted = composition.stateless and true.refused is None and not true.failed
        if accepted and not _about_windows(ours.refused):
            return f"refused, though stateless: {ours.refused}"
        return ""
    if ours.rows is None:
        return f"neither refused nor run: {ours.error}"
    if true.rows is None:
        return "" if ours.error else f"a batch fails ({true.refused}), a stream does not"
    if ours.failed != true.failed:
        return f"failed for tenants {sorted(ours.failed)}, not {sorted(true.failed)}: {ours.error}"
    for tenant in sorted(true.rows.keys() - true.failed):
        compare = _unlike_rows if composition.applied else _unlike_groups
        if found := compare(plan, ours.rows[tenant], true.rows[tenant]):
            return f"tenant {tenant}: {found}"
    if any(ours.rows.values()) and ours.types and true.types:
        for name, kind in true.types.items():
            if ours.types.get(name, kind) != kind and not pa.types.is_timestamp(kind):
                return f"{name!r} is {ours.types[name]}, not {kind}"
    return ""


def _about_windows(reason: str) -> bool:
    """Tell whether it was not the transform that was refused, but a key or an aggregate."""
    return "by=" in reason or "aggregate(" in reason


def _unlike_groups(plan: Plan, ours: Rows, true: Rows) -> str:
    found, wanted = _by_group(plan, ours), _by_group(plan, true)
    if len(found) < len(ours):
        return f"a group twice: {ours}"
    if found.keys() != wanted.keys():
        return f"groups {sorted(found)}, not {sorted(wanted)}"
    for key, row in wanted.items():
        if not all(_same(found[key].get(name), value) for name, value in row.items()):
            return f"{found[key]}, not {row}"
    return ""


def _by_group(plan: Plan, rows: Rows) -> dict[str, dict[str, Any]]:
    return {
        repr([_plain(row["start"]), *(_plain(row[key]) for key in plan.by)]): row for row in rows
    }


def _unlike_rows(plan: Plan, ours: Rows, true: Rows) -> str:
    found, wanted = (sorted(repr(_plain(row)) for row in rows) for rows in (ours, true))
    return "" if found == wanted else f"rows {found}, not {wanted}"


def _plain(value: Any) -> Any:
    """Write a value so that equal ones look the same."""
    match value:
        case float():
            return "NaN" if math.isnan(value) else f"{value + 0.0:.9g}"
        case datetime():
            return value.isoformat()
        case dict():
            return sorted((name, _plain(each)) for name, each in value.items())
        case list() | tuple():
            return [_plain(each) for each in value]
    return value


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        both_nan = math.isnan(one) and math.isnan(other)
        return both_nan or math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(one, str) and isinstance(other, str):
        return (
            one.casefold() == other.casefold()
        )  # some collations call these equal: either may show
    return bool(one == other)
