"""What the journal's records mean: plans, commits, snapshots, and how they are written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from slackwater.progress.watermarks import PartitionId, Watermarks
from slackwater.runtime.lateness_records import (
    lateness_change_from_json,
    lateness_change_to_json,
    lateness_from_json,
    lateness_to_json,
    wish_from_json,
    wish_to_json,
)
from slackwater.runtime.state import (
    Block,
    Counters,
    KeyedChange,
    KeyedState,
    Move,
    PlannedRange,
    QueryChange,
    QueryState,
    SliceState,
    StageChange,
    StageState,
)
from slackwater.spark.frames import SLICE
from slackwater.spark.sources.base import QUERY, Range

Json = dict[str, Any]
KEYED = -1  # the "stage" of windows that each key has for itself: all their rows stand at 0
# State rows by stage (0: of the first windows, by slice; then by window of the stage before).
StageRows = Mapping[int, Mapping[int, pa.Table]]


class StoredRows(NamedTuple):
    """Hold state rows with their place: stage, query, and slice or window."""

    stage: int
    query: int
    start_ms: int
    table: pa.Table


def range_to_json(planned: PlannedRange) -> list[Any]:
    """Write a planned range compactly."""
    index, piece = planned
    sampled = [] if piece.sample is None else [piece.sample]
    return [
        index,
        piece.partition,
        piece.first,
        piece.until,
        piece.events,
        piece.watermark_ms,
        int(piece.idle),
        piece.detail,
        *sampled,
    ]


def range_from_json(cells: Sequence[Any]) -> PlannedRange:
    """Read a planned range."""
    index, partition, first, until, events, watermark_ms, idle, detail, *sampled = cells
    sample = sampled[0] if sampled else None
    return index, Range(partition, first, until, events, watermark_ms, bool(idle), detail, sample)


def plan_record(
    step: int, plans: Mapping[int, Sequence[PlannedRange]], amending: Iterable[int]
) -> Json:
    """Write what a step is going to read, and for whom it amends past windows that are due."""
    ranges = [[query, [range_to_json(r) for r in ranges]] for query, ranges in plans.items()]
    return {"kind": "plan", "step": step, "plans": ranges, "amending": sorted(amending)}


def plans_of(header: Json) -> dict[int, tuple[PlannedRange, ...]]:
    """Read what a step was going to read."""
    return {query: tuple(map(range_from_json, ranges)) for query, ranges in header["plans"]}


def move_record(move: Move) -> Json:
    """Write that rows changed their place."""
    return {
        "kind": "move",
        "q": move.query,
        "slice": move.start_ms,
        "rows": move.rows,
        "blocks": [block_to_json(block) for block in move.blocks],
        "merged": list(move.merged),
    }


def move_of(header: Json) -> Move:
    """Read that rows changed their place."""
    blocks = tuple(Block(*cells) for cells in header["blocks"])
    merged = tuple(header["merged"])
    return Move(header["q"], header["slice"], header["rows"], blocks, merged)


def block_to_json(block: Block) -> list[Any]:
    """Write where rows lie."""
    checks = [] if block.crc is None else [block.size, block.crc]
    return [block.path, block.rows, block.bytes, *checks]


def change_to_json(change: QueryChange) -> Json:
    """Write a change, all but the rows it adds."""
    counted = change.counted
    late = change.lateness
    return {
        **({} if late is None else {"late": lateness_change_to_json(late)}),
        "q": change.query,
        "at": _positions_to_json(change.positions),
        "wm": _watermarks_to_json(change.watermarks),
        "fired": list(change.fired.items()),
        "until": change.windows_gone_until_ms,
        "gone": list(change.slices_gone),
        "blocks": [
            [start, *block_to_json(block)]
            for start, blocks in change.blocks.items()
            for block in blocks
        ],
        "n": _counters_to_json(counted),
        **({} if change.sampling is None else {"sampling": change.sampling}),
        **({"slack": list(change.slack_ms.items())} if change.slack_ms else {}),
        "stages": [
            [
                list(stage.fired.items()),
                stage.windows_gone_until_ms,
                list(stage.sources_gone),
                list(stage.replaced),
            ]
            for stage in change.stages
        ],
        **(
            {}
            if change.keyed is None
            else {"keyed": [change.keyed.emissions, list(change.keyed.gone)]}
        ),
    }


def change_from_json(cells: Json, rows: StageRows) -> QueryChange:
    """Read a change."""
    return QueryChange(
        query=cells["q"],
        positions=_positions_from_json(cells["at"]),
        watermarks=_watermarks_from_json(cells["wm"]),
        fired=dict(cells["fired"]),
        windows_gone_until_ms=cells["until"],
        slices_gone=tuple(cells["gone"]),
        added=rows.get(0, {}),
        blocks=_blocks_from_json(cells["blocks"]),
        counted=Counters(*cells["n"]),
        lateness=lateness_change_from_json(cells["late"]) if "late" in cells else None,
        stages=tuple(
            StageChange(
                fired=dict(fired),
                windows_gone_until_ms=until_ms,
                sources_gone=tuple(gone),
                replaced={start: rows.get(number, {}).get(start) for start in replaced},
            )
            for number, (fired, until_ms, gone, replaced) in enumerate(cells["stages"], start=1)
        ),
        keyed=_keyed_from_json(cells.get("keyed"), rows),
        sampling=cells.get("sampling"),
        slack_ms=dict(cells.get("slack", ())),
    )


def _keyed_from_json(cells: Sequence[Any] | None, rows: StageRows) -> KeyedChange | None:
    if cells is None:
        return None
    emissions, gone = cells
    return KeyedChange(emissions, tuple(gone), rows.get(KEYED, {}).get(0))


def query_to_json(state: QueryState) -> Json:
    """Write a query's state for a snapshot, all but its rows."""
    return {
        "number": state.number,
        "name": state.name,
        "fingerprint": state.fingerprint,
        "at": _positions_to_json(state.positions),
        "wm": _watermarks_to_json(state.watermarks),
        "panes": list(state.panes.items()),
        "until": state.gone_until_ms,
        "blocks": [
            [start, *block_to_json(block)]
            for start, held in state.slices.items()
            for block in held.blocks
        ],
        "pending": None if state.pending is None else [range_to_json(r) for r in state.pending],
        "step": state.pending_step,
        "amends": state.pending_amends,
        "late": lateness_to_json(state.lateness),
        "wish": None if state.wish is None else wish_to_json(state.wish),
        "n": _counters_to_json(state.counters),
        "quarantined": state.quarantined,
        "sources": state.source_states,
        "sampling": state.sampling,
        "slack": list(state.slack_ms.items()),
        "stages": [
            [list(stage.panes.items()), stage.gone_until_ms, list(stage.sources)]
            for stage in state.stages
        ],
        "emissions": state.keyed.emissions,
        "first_pane": state.first_pane,
    }


def query_from_json(cells: Json, rows: StageRows) -> QueryState:
    """Read a query's state, with its rows."""
    state = QueryState(
        number=cells["number"],
        name=cells["name"],
        fingerprint=cells["fingerprint"],
        positions=_positions_from_json(cells["at"]),
        watermarks=_watermarks_from_json(cells["wm"]),
        panes=dict(cells["panes"]),
        gone_until_ms=cells["until"],
        counters=Counters(*cells["n"]),
        quarantined=cells["quarantined"],
        source_states=cells["sources"],
        sampling=cells.get("sampling"),
        slack_ms=dict(cells.get("slack", ())),
        first_pane=cells.get("first_pane", 0),
        stages=tuple(
            StageState(
                panes=dict(panes),
                gone_until_ms=until_ms,
                sources={start: rows.get(number, {}).get(start) for start in sources},
            )
            for number, (panes, until_ms, sources) in enumerate(cells["stages"], start=1)
        ),
        keyed=KeyedState(cells.get("emissions", 0), rows.get(KEYED, {}).get(0)),
    )
    if cells["pending"] is not None:
        state.pending = tuple(map(range_from_json, cells["pending"]))
        state.pending_step = cells.get("step")
        state.pending_amends = cells.get("amends", False)
    if "late" in cells:
        state.lateness = lateness_from_json(cells["late"])
    if cells.get("wish") is not None:
        state.wish = wish_from_json(cells["wish"])
    for start, table in rows.get(0, {}).items():
        state.slices[start] = SliceState().plus(chunk=table)
    for start, blocks in _blocks_from_json(cells["blocks"]).items():
        state.slices[start] = state.slices.get(start, SliceState()).plus(blocks=blocks)
    return state


def change_rows(change: QueryChange) -> Iterator[StoredRows]:
    """List the rows that a change keeps in the driver."""
    for start, table in change.added.items():
        yield StoredRows(0, change.query, start, table)
    if change.keyed is not None and change.keyed.added is not None:
        yield StoredRows(KEYED, change.query, 0, change.keyed.added)
    for number, stage in enumerate(change.stages, start=1):
        for start, rows in stage.replaced.items():
            if rows is not None:
                yield StoredRows(number, change.query, start, rows)


def query_rows(state: QueryState) -> Iterator[StoredRows]:
    """List the rows that a query's state holds in the driver."""
    for start, held in state.slices.items():
        for chunk in held.chunks:
            yield StoredRows(0, state.number, start, chunk)
    if state.keyed.rows is not None:
        yield StoredRows(KEYED, state.number, 0, state.keyed.rows)
    for number, stage in enumerate(state.stages, start=1):
        for start, rows in stage.sources.items():
            if rows is not None:
                yield StoredRows(number, state.number, start, rows)


def pack_stored(stored: Iterable[StoredRows]) -> tuple[bytes, list[list[int]]]:
    """Pack rows, those of a stage with the same columns together; return [stage, size] of each."""
    groups: dict[tuple[int, str], list[tuple[int, int, pa.Table]]] = {}
    for stage, query, start, table in stored:
        groups.setdefault((stage, str(table.schema)), []).append((query, start, table))
    packed = [(stage, pack_rows(tagged_rows(parts))) for (stage, _), parts in groups.items()]
    return b"".join(part for _, part in packed), [[stage, len(part)] for stage, part in packed]


def unpack_stored(payload: bytes, sizes: Sequence[Sequence[int]]) -> dict[int, StageRows]:
    """Read what `pack_stored` wrote: by query, stage, and slice or window."""
    found: dict[int, dict[int, dict[int, pa.Table]]] = {}
    offset = 0
    for stage, size in sizes:
        rows = unpack_rows(payload[offset : offset + size])
        offset += size
        for query, parts in rows_by_slice(rows).items():
            held = found.setdefault(query, {}).setdefault(stage, {})
            for start, table in parts.items():
                held[start] = pa.concat_tables([held[start], table]) if start in held else table
    return dict(found)


def pack_rows(table: pa.Table) -> bytes:
    """Write state rows (QUERY, SLICE, state columns) as one compressed Arrow stream."""
    if table.num_rows == 0:
        return b""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table.combine_chunks())
    return bytes(sink.getvalue())


def unpack_rows(payload: bytes) -> pa.Table | None:
    """Read state rows; None where there were none."""
    return pa.ipc.open_stream(payload).read_all() if payload else None


def rows_by_slice(table: pa.Table | None) -> dict[int, dict[int, pa.Table]]:
    """Cut state rows into tables per query and slice, without the columns that say which."""
    if table is None or table.num_rows == 0:
        return {}
    queries, slices = table[QUERY].to_numpy(), table[SLICE].to_numpy()
    order = np.lexsort((slices, queries))
    if (np.diff(order) != 1).any():
        table, queries, slices = table.take(order), queries[order], slices[order]
    edges = np.flatnonzero(np.diff(queries) | np.diff(slices)) + 1
    bounds = pairwise([0, *edges.tolist(), len(queries)])
    state = table.drop_columns([QUERY, SLICE]).combine_chunks()
    cut: dict[int, dict[int, pa.Table]] = {}
    for first, until in bounds:
        cut.setdefault(int(queries[first]), {})[int(slices[first])] = state.slice(
            first, until - first
        )
    return cut


def tagged_rows(parts: Iterable[tuple[int, int, pa.Table]]) -> pa.Table:
    """Put tables per (query, slice) together, with columns that say which; all share a schema."""
    tagged = []
    for query, start, table in parts:
        count = table.num_rows
        columns = {
            QUERY: pa.array(np.full(count, query, dtype=np.int32)),
            SLICE: pa.array(np.full(count, start, dtype=np.int64)),
        }
        tagged.append(
            pa.table({**columns, **dict(zip(table.column_names, table.columns, strict=True))})
        )
    return pa.concat_tables(tagged)


def _blocks_from_json(cells: Iterable[Sequence[Any]]) -> dict[int, tuple[Block, ...]]:
    """Read blocks by slice; earlier versions wrote neither memory nor checksums of their rows."""
    found: dict[int, tuple[Block, ...]] = {}
    for start, *block in cells:
        found[start] = (*found.get(start, ()), Block(*block))
    return found


def _positions_to_json(positions: Mapping[PartitionId, int]) -> list[list[int]]:
    return [[index, partition, at] for (index, partition), at in positions.items()]


def _positions_from_json(cells: Iterable[Sequence[int]]) -> dict[PartitionId, int]:
    return {(index, partition): at for index, partition, at in cells}


def _watermarks_to_json(watermarks: Watermarks) -> list[Any]:
    partitions = [[i, p, ms] for (i, p), ms in watermarks.partitions.items()]
    return [watermarks.current_ms, partitions]


def _watermarks_from_json(cells: Sequence[Any]) -> Watermarks:
    current_ms, partitions = cells
    return Watermarks({(i, p): ms for i, p, ms in partitions}, current_ms)


def _counters_to_json(counters: Counters) -> list[int]:
    return [
        counters.records,
        counters.rejected,
        counters.too_late_rows,
        counters.panes,
        counters.rows_out,
    ]
