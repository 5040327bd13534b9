"""What must stay the same for a redeployed query to continue from its journaled state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from slackwater.app.aggregates import Aggregate
from slackwater.app.outputs import Output
from slackwater.app.windows import CountWindows, KeyedWindows, SessionWindows, Windows
from slackwater.errors import IncompatibleQueryError
from slackwater.spark.pipeline import CheckedPipeline
from slackwater.spark.sources.base import SourceReader


def fingerprint(
    output: Output, pipeline: CheckedPipeline, readers: Sequence[SourceReader]
) -> dict[str, Any]:
    """Describe everything that a query's state depends on. Code itself is not part of it."""
    found: dict[str, Any] = {
        "windows": _windows(output.windows),
        "keys": {
            key: pipeline.columns[key].dataType.simpleString()
            for key in (() if output.keeps_rows else output.by)
        },
        "aggregates": {} if output.keeps_rows else _aggregates(pipeline.aggregates),
        "rows": {
            field.name: field.dataType.simpleString()
            for field in (pipeline.columns.fields if output.keeps_rows else ())
        },
        "inputs": [
            {
                "source": type(reader).__name__,
                "event_time": reader.event_time,
                "schema": {f.name: f.dataType.simpleString() for f in reader.schema.fields},
            }
            for reader in readers
        ],
    }
    if output.join is not None:
        found["legs"] = [_aggregates(leg.aggregates) for leg in output.join.legs]
    if output.join is not None and output.stages:
        # How legs are joined is decided when a window closes, and a further stage keeps the result.
        found["hows"] = list(output.join.hows)
    if output.stages:
        found["stages"] = [
            {
                "windows": _windows(shape.windows),
                "keys": list(shape.by),
                "aggregates": _aggregates(shape.aggregates),
            }
            for shape in pipeline.shapes[1:]
        ]
    return found


def _windows(windows: Windows) -> dict[str, Any]:
    kind = {"kind": type(windows).__name__} if isinstance(windows, KeyedWindows) else {}
    return kind | asdict(windows)


def windows_of(journaled: dict[str, Any]) -> Windows:
    """Read a query's windows from its fingerprint."""
    cells = dict(journaled["windows"])
    kinds = {kind.__name__: kind for kind in (Windows, SessionWindows, CountWindows)}
    return kinds[cells.pop("kind", Windows.__name__)](**cells)


def _aggregates(aggregates: Mapping[str, Aggregate]) -> dict[str, str]:
    return {
        name: f"{aggregate.label} over {aggregate.type_name}{aggregate.state_note}"
        for name, aggregate in aggregates.items()
    }


def require_same(name: str, journaled: dict[str, Any], deployed: dict[str, Any]) -> None:
    """Refuse a query whose description changed in a way its state cannot follow."""
    differences = list(_differences("", journaled, deployed))
    if differences:
        raise IncompatibleQueryError(
            f"query {name!r} cannot continue from its journaled state: "
            + "; ".join(differences)
            + ". Undo the change, deploy it under another name, or give up the old state with "
            "deploy(..., reset=True)"
        )


def _differences(place: str, old: Any, new: Any) -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        found = []
        for key in {**old, **new}:
            where = f"{place}.{key}" if place else str(key)
            if key not in new:
                found.append(f"{where} was {_show(old[key])} and is gone")
            elif key not in old:
                found.append(f"{where} is new ({_show(new[key])})")
            else:
                found += _differences(where, old[key], new[key])
        return found
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return [d for i, (a, b) in pairs for d in _differences(f"{place}[{i}]", a, b)]
    return [] if old == new else [f"{place} was {_show(old)} and is now {_show(new)}"]


def _show(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)
