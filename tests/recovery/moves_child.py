"""A process without Spark that kills itself while window state is moved.

    python moves_child.py DIRECTORY POINT NUMBER MOMENT

commits steps that bring known rows, moves and forgets state between them, and ends by SIGKILL as
tier_child.py does. Each start checks what the one before has left.
"""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from slackwater.lateness.compacting import to_compact
from slackwater.lateness.tier_policies import Bootstrap
from slackwater.runtime import compaction
from slackwater.spark.frames import ROWS

STEPS = 60
KEPT = 4  # slices, before they are forgotten


def loaded(name: str, place: Path) -> ModuleType:
    """Load a module by its path."""
    spec = importlib.util.spec_from_file_location(name, place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


here = Path(__file__).parent
faults = loaded("tier_child", here / "tier_child.py")
rigs = loaded("test_tiers", here.parent / "runtime" / "test_tiers.py")


def brought(step: int) -> dict[int, list[int]]:
    """Tell which rows a step brings: some on time, some late, few or many."""
    newest = step // 5 * rigs.SIZE_MS
    late = max(newest - 2 * rigs.SIZE_MS, 0)
    return {newest: [step * 1_000 + n for n in range(3)], late: [-step] * (1 + 150 * (step % 2))}


def gone(step: int) -> tuple[int, ...]:
    """Tell which slices a step forgets."""
    start = (step // 5 - KEPT) * rigs.SIZE_MS
    return (start,) if step % 5 == 0 and start >= 0 else ()


def expected(steps: int) -> dict[int, Counter[int]]:
    """Work out what so many steps leave."""
    slices: dict[int, Counter[int]] = {}
    for step in range(steps):
        for start, rows in brought(step).items():
            slices.setdefault(start, Counter()).update(rows)
        for start in gone(step):
            slices.pop(start, None)
    return slices


def check(rig: Any, steps: int) -> None:
    """Compare all state with what it must be, and storage with what the journal names."""
    found: dict[int, Counter[int]] = {}
    for start, state in rig.state.slices.items():
        rows = (row for chunk in rig.staged.in_memory(state).chunks for row in chunk.to_pylist())
        found[start] = Counter()
        for row in rows:  # of which compaction has made fewer
            found[start][row["x"]] += row[ROWS]
    assert found == expected(steps), f"after {steps} steps"
    assert set(rig.files.names()) == rig.ledger.block_paths()


def main(directory: Path, point: str, number: int, moment: str) -> None:
    """Go on where the last process was killed."""
    setattr(compaction, "to_compact", partial(to_compact, least=3))  # noqa: B010
    tiering = Bootstrap(small_bytes=0, keep_share=0.2)
    rig = rigs.Rig(directory, tiering)
    rig.blocks.tidy(rig.ledger.block_paths())
    check(rig, rig.state.counters.records)
    if point != "none":
        faults.kill_at(point, number, moment)
    for step in range(rig.state.counters.records, STEPS):
        rig.step(brought(step), step // 5 * rigs.SIZE_MS, gone(step))
        rig.tiers.decide(0.0, 0.0)
        if step % 3 == 0:
            rig.tiers.settle()
        if step % 7 == 0:
            rig.ledger.begin_snapshot({})()
    rig.tiers.settle()
    check(rig, STEPS)
    rig.close()
    print("finished", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4])
