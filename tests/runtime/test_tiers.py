"""Moving window state: the rows stay the same, wherever they are, whatever happens meanwhile."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.errors import StateError
from slackwater.lateness.compacting import LEAST_BLOCKS, to_compact
from slackwater.lateness.state import LatenessWish
from slackwater.lateness.tier_policies import Bootstrap, BySize, Emergency, Standard, Together
from slackwater.lateness.tiering import TierDecision, TierPolicy, TierSnapshot
from slackwater.progress.grid import WindowGrid
from slackwater.progress.watermarks import Watermarks
from slackwater.runtime import compaction
from slackwater.runtime.block_files import LocalBlockFiles
from slackwater.runtime.blocks import BlockStore
from slackwater.runtime.deployed import DeployedQuery
from slackwater.runtime.io_lane import IoLane
from slackwater.runtime.ledger import Ledger
from slackwater.runtime.placing import Limits, Placer, own_memory
from slackwater.runtime.staged import StagedBlocks
from slackwater.runtime.state import Block, Counters, Move, QueryChange
from slackwater.runtime.tiers import Tiers
from slackwater.runtime.transfers import Transfers
from slackwater.spark.frames import ROWS

SIZE_MS = 1_000
# All that is asked of a template here: what its state rows are.
TEMPLATE = SimpleNamespace(keeps_rows=False, output=SimpleNamespace(by=["x"]), aggregates={})


class Rig:
    """Everything but Spark: a ledger, files, a lane, and one query over tumbling windows."""

    def __init__(self, directory: Path, policy: TierPolicy, *, budget: float = 1e9) -> None:
        self.directory = directory
        self.ledger = Ledger(directory, durable=False)
        self.files = LocalBlockFiles(directory / "blocks")
        self.blocks = BlockStore(self.files)
        self.staged = StagedBlocks(self.blocks)
        self.lane = IoLane()
        known = self.ledger.content.queries.get("q")
        self.state = known or self.ledger.introduce("q", {})
        self.state.wish = LatenessWish(100_000)
        self.query = DeployedQuery(
            row=0,
            state=self.state,
            template=cast(Any, TEMPLATE),
            readers=(),
            grid=WindowGrid(SIZE_MS, SIZE_MS),
        )
        transfers = Transfers(self.ledger, self.blocks, self.staged, self.lane)
        self.tiers = Tiers(transfers, self.staged, self.lane, policy, budget, lambda: [self.query])
        self.placer = Placer(
            self.blocks,
            self.staged,
            self.lane,
            Limits(journal_bytes=1_000),
            budget_bytes=budget,
            used_bytes=lambda: (
                sum(s.bytes_held for s in self.state.slices.values()) + self.staged.bytes
            ),
            tiered=True,
        )

    def step(
        self, arrived: dict[int, list[int]], watermark_ms: int, gone: tuple[int, ...] = ()
    ) -> None:
        """Commit a step that brings rows, and forgets slices."""
        placed = self.placer.place(self.query, {s: table(rows) for s, rows in arrived.items()})
        step, _ = self.ledger.plan({self.state.number: ()})
        change = QueryChange(
            query=self.state.number,
            positions={},
            watermarks=Watermarks({(0, 0): watermark_ms}, watermark_ms),
            fired={},
            windows_gone_until_ms=None,
            slices_gone=gone,
            added=placed.added,
            blocks=placed.blocks,
            counted=Counters(records=1),
        )
        _, obsolete = self.ledger.commit(step, [change], [])
        self.placer.discard(obsolete)

    def move(self) -> None:
        self.tiers.decide(0.0, 0.0)
        self.tiers.settle()

    def rows(self, start: int) -> list[int]:
        held = self.staged.in_memory(self.state.slices[start])
        return sorted(x for chunk in held.chunks for x in chunk["x"].to_pylist())

    def close(self) -> None:
        self.tiers.close()
        self.ledger.close()


def table(rows: list[int]) -> pa.Table:
    return pa.table({"x": pa.array(rows, pa.int64()), ROWS: pa.array([1] * len(rows), pa.int64())})


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path, Standard(small_bytes=0))
    yield made
    made.close()


def test_a_past_window_moves_to_storage_and_keeps_its_rows(rig: Rig) -> None:
    rig.step({0: [1, 2], 1_000: [3]}, watermark_ms=1_000)
    rig.step({0: [4]}, watermark_ms=1_000)
    rig.move()
    past, still_open = rig.state.slices[0], rig.state.slices[1_000]
    assert not past.chunks
    assert [block.rows for block in past.blocks] == [3]
    assert still_open.chunks
    assert not still_open.blocks
    assert rig.rows(0) == [1, 2, 4]


@pytest.mark.parametrize("snapshot", [False, True])
def test_moved_rows_are_found_after_a_restart(tmp_path: Path, snapshot: bool) -> None:
    rig = Rig(tmp_path, Standard(small_bytes=0))
    rig.step({0: [1]}, watermark_ms=0)
    rig.step({0: [2]}, watermark_ms=1_000)
    if snapshot:  # in which both chunks become one
        rig.ledger.begin_snapshot({})()
    rig.move()
    rig.step({0: [3]}, watermark_ms=1_000)
    rig.close()
    again = Rig(tmp_path, Standard(small_bytes=0))
    assert again.rows(0) == [1, 2, 3]
    assert again.blocks.tidy(again.ledger.block_paths()) == 0
    again.close()


def test_rows_that_come_during_a_move_stay(rig: Rig) -> None:
    rig.step({0: [1]}, watermark_ms=1_000)
    write = rig.files.write

    def write_late(path: str, content: pa.Buffer) -> None:
        rig.files.write = write  # type: ignore[method-assign]
        rig.step({0: [2]}, watermark_ms=1_000)
        write(path, content)

    rig.files.write = write_late  # type: ignore[method-assign]
    rig.move()
    assert [chunk["x"].to_pylist() for chunk in rig.state.slices[0].chunks] == [[2]]
    assert rig.rows(0) == [1, 2]


def test_a_window_forgotten_during_its_move_leaves_no_file(rig: Rig) -> None:
    rig.step({0: [1]}, watermark_ms=1_000)
    write = rig.files.write

    def forget_then_write(path: str, content: pa.Buffer) -> None:
        rig.step({}, watermark_ms=9_000, gone=(0,))
        write(path, content)

    rig.files.write = forget_then_write  # type: ignore[method-assign]
    rig.move()
    assert not rig.state.slices
    assert not rig.files.names()


def test_storage_that_fails_loses_nothing_and_is_tried_again(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.step({0: [1]}, watermark_ms=1_000)
    write = rig.files.write

    def full(path: str, content: pa.Buffer) -> None:
        raise OSError(28, "No space left on device")

    rig.files.write = full  # type: ignore[method-assign]
    rig.move()
    assert "No space left" in caplog.text
    assert rig.rows(0) == [1]
    rig.files.write = write  # type: ignore[method-assign]
    rig.move()
    assert rig.state.slices[0].blocks
    assert rig.rows(0) == [1]


def test_damaged_state_is_said_once_and_left_alone(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    for late in range(LEAST_BLOCKS):
        rig.step({0: [late] * 200}, watermark_ms=1_000)
    place = rig.directory / "blocks" / rig.state.slices[0].blocks[1].path
    good = place.read_bytes()
    place.write_bytes(good[:-9] + b"?" + good[-8:])
    for _ in range(3):
        rig.move()
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert place.name in caplog.text
    with pytest.raises(StateError, match=place.name):
        rig.rows(0)
    place.write_bytes(good)
    assert len(rig.rows(0)) == 200 * LEAST_BLOCKS


def test_large_pieces_go_to_storage_at_once_and_never_through_the_journal(rig: Rig) -> None:
    rig.step({0: list(range(1_000))}, watermark_ms=0)
    held = rig.state.slices[0]
    assert not held.chunks
    assert rig.staged.bytes == held.blocks[0].bytes  # and are read from memory
    journal = sum(path.stat().st_size for path in (rig.directory / "journal").iterdir())
    assert journal < 2_000


def test_late_rows_go_to_storage_and_not_into_memory(rig: Rig) -> None:
    rig.step({0: list(range(1_000))}, watermark_ms=1_000)
    rig.step({0: list(range(1_000))}, watermark_ms=1_000)
    assert rig.staged.bytes == rig.state.slices[0].blocks[0].bytes  # of when it was open


def test_a_full_budget_sends_even_small_pieces_to_storage(tmp_path: Path) -> None:
    rig = Rig(tmp_path, Standard(), budget=100)
    rig.step({0: list(range(100))}, watermark_ms=0)
    assert not rig.state.slices[0].chunks
    assert rig.staged.bytes == 0
    assert rig.rows(0) == list(range(100))
    rig.close()


def test_the_bootstrap_keeps_the_first_rows_in_memory(tmp_path: Path) -> None:
    rig = Rig(tmp_path, Bootstrap(small_bytes=0, keep_share=0.25))
    rig.step({0: list(range(60))}, watermark_ms=1_000)
    rig.move()
    first, rest = rig.state.slices[0].blocks
    assert (first.rows, rest.rows) == (15, 45)
    kept = rig.staged.table(first)
    assert kept is not None
    assert kept["x"].to_pylist() == list(range(15))
    assert rig.staged.table(rest) is None
    assert rig.rows(0) == list(range(60))
    rig.move()
    assert rig.state.slices[0].blocks == (first, rest)
    rig.close()


def test_forgotten_windows_leave_neither_files_nor_copies(rig: Rig) -> None:
    rig.step({0: list(range(1_000))}, watermark_ms=0)
    rig.step({}, watermark_ms=9_000, gone=(0,))
    assert not rig.files.names()
    assert rig.staged.bytes == 0


def test_a_failed_write_of_a_step_leaves_nothing_behind(rig: Rig) -> None:
    def full(path: str, content: pa.Buffer) -> None:
        raise OSError(28, "No space left on device")

    rig.files.write = full  # type: ignore[method-assign]
    with pytest.raises(OSError, match="No space"):
        rig.step({0: list(range(1_000))}, watermark_ms=0)
    assert rig.staged.bytes == 0


def test_a_slice_of_a_large_table_does_not_keep_it_alive() -> None:
    whole = pa.table({"x": pa.array(range(100_000)), "s": pa.array(["abc"] * 100_000)})
    part = own_memory(whole.slice(50_000, 10))
    assert part.equals(whole.slice(50_000, 10))
    assert part.get_total_buffer_size() < 10_000
    assert own_memory(whole) is whole


@pytest.mark.parametrize("snapshot", [False, True])
def test_many_small_blocks_become_one_with_the_same_rows(tmp_path: Path, snapshot: bool) -> None:
    rig = Rig(tmp_path, Standard(small_bytes=0))
    for late in range(LEAST_BLOCKS + 1):
        rig.step({0: [late, 1_000]}, watermark_ms=1_000)
        rig.tiers.decide(0.0, 0.0)
        rig.lane.settle()
    if snapshot:
        rig.ledger.begin_snapshot({})()
    rig.move()
    assert len(rig.state.slices[0].blocks) < LEAST_BLOCKS
    assert sorted(rig.files.names()) == sorted(rig.ledger.block_paths())
    assert counted(rig) == {**dict.fromkeys(range(LEAST_BLOCKS + 1), 1), 1_000: LEAST_BLOCKS + 1}
    assert len(rig.rows(0)) < 2 * (LEAST_BLOCKS + 1)  # partials of equal keys were merged
    rig.close()
    again = Rig(tmp_path, Standard(small_bytes=0))
    assert counted(again)[1_000] == LEAST_BLOCKS + 1
    again.close()


def counted(rig: Rig) -> dict[int, int]:
    """Count the rows behind each key."""
    found: Counter[int] = Counter()
    for chunk in rig.staged.in_memory(rig.state.slices[0]).chunks:
        for row in chunk.to_pylist():
            found[row["x"]] += row[ROWS]
    return dict(found)


def test_a_window_forgotten_while_it_is_compacted_leaves_no_file(rig: Rig) -> None:
    for late in range(LEAST_BLOCKS):
        rig.step({0: [late] * 200}, watermark_ms=1_000)
    read = rig.files.read

    def forget_after_reading(path: str) -> pa.Buffer:
        content = read(path)
        if rig.state.slices:
            rig.step({}, watermark_ms=9_000, gone=(0,))
        return content

    rig.files.read = forget_after_reading  # type: ignore[method-assign]
    rig.move()
    assert not rig.files.names()
    assert rig.staged.bytes == 0


arrivals = st.dictionaries(
    st.sampled_from([0, 1_000, 2_000]),
    st.integers(1, 3) | st.just(200),  # rows of a slice: a few for the journal, or a block
    max_size=3,
)
actions = st.lists(
    st.one_of(
        st.tuples(st.just("step"), arrivals),
        st.tuples(st.sampled_from(["move", "snapshot", "restart", "forget", "pass"]), st.none()),
    ),
    max_size=30,
)


@settings(max_examples=40, deadline=None)
@given(actions=actions, policy=st.sampled_from([0.0, 0.3, 1.0]), budget=st.sampled_from([1e9, 4e3]))
def test_rows_stay_the_same_wherever_they_are_moved(
    actions: list[tuple[str, Any]], policy: float, budget: float
) -> None:
    """Whatever happens in whatever order: each slice has its rows, and storage what is named."""
    with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "to_compact", partial(to_compact, least=2))

        def opened() -> Rig:
            tiering = Bootstrap(small_bytes=0, keep_share=policy)
            return Rig(Path(directory), Together((tiering, BySize(), Emergency())), budget=budget)

        rig, next_row, watermark_ms, number = opened(), 0, 0, 0
        model: dict[int, Counter[int]] = {}
        for action, given_rows in actions:
            if action == "step":
                arrived = {}
                for start, count in given_rows.items():
                    if start + SIZE_MS > watermark_ms - 2_000:  # others would be too late
                        arrived[start] = list(range(next_row, next_row + count))
                        next_row += count
                        model.setdefault(start, Counter()).update(arrived[start])
                rig.step(arrived, watermark_ms)
            elif action == "move":
                rig.move()
            elif action == "snapshot":
                rig.ledger.begin_snapshot({})()
            elif action == "restart":
                rig.close()
                rig = opened()
                assert rig.blocks.tidy(rig.ledger.block_paths()) == 0
            elif action == "pass":
                watermark_ms += 500
            elif model:
                number = min(model)
                model.pop(number)
                rig.step({}, watermark_ms, gone=(number,))
        rig.tiers.settle()
        assert set(rig.state.slices) == set(model)
        for start, rows in model.items():
            assert Counter(rig.rows(start)) == rows
        assert set(rig.files.names()) == rig.ledger.block_paths()
        memory = sum(held.bytes_held for held in rig.state.slices.values()) + rig.staged.bytes
        assert memory <= budget
        rig.close()


class Meddling:
    """Decide as another policy does, but let something happen after it was told how things are."""

    def __init__(self, policy: TierPolicy) -> None:
        self._policy = policy
        self.meanwhile: Callable[[], None] = lambda: None

    @property
    def name(self) -> str:
        return "meddling"

    def decide(self, snapshot: TierSnapshot) -> TierDecision:
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        return self._policy.decide(snapshot)


def test_a_move_that_ends_during_a_look_is_not_made_again(tmp_path: Path) -> None:
    policy = Meddling(Standard(small_bytes=0))
    rig = Rig(tmp_path, policy)
    rig.step({0: [1, 2, 3]}, watermark_ms=1_000)
    write, may_write = rig.files.write, threading.Event()

    def held_up(path: str, content: pa.Buffer) -> None:
        may_write.wait()
        write(path, content)

    rig.files.write = held_up  # type: ignore[method-assign]
    rig.tiers.decide(0.0, 0.0)

    def let_it_end() -> None:
        may_write.set()
        rig.lane.settle()
        rig.step({0: [7]}, watermark_ms=1_000)

    policy.meanwhile = let_it_end
    rig.move()
    assert rig.rows(0) == [1, 2, 3, 7]
    assert set(rig.files.names()) == rig.ledger.block_paths()
    rig.close()
    again = Rig(tmp_path, policy)
    assert again.rows(0) == [1, 2, 3, 7]
    again.close()


@pytest.mark.parametrize("how", ["moved", "remade", "reset"])
def test_a_move_of_rows_that_are_not_there_any_more_is_refused(rig: Rig, how: str) -> None:
    rig.step({0: [1, 2]}, watermark_ms=1_000)
    stale = rig.state.slices[0]
    if how == "moved":
        rig.move()
        rig.step({0: [3, 4]}, watermark_ms=1_000)
    elif how == "remade":
        rig.step({}, watermark_ms=1_000, gone=(0,))
        rig.step({0: [3, 4]}, watermark_ms=1_000)
    else:
        rig.ledger.reset("q")
    before, named = rig.state.slices[0], rig.ledger.block_paths()
    block = rig.blocks.write(rig.state.number, 0, table([1, 2]))
    move = Move(rig.state.number, 0, 2, (block,))
    assert rig.ledger.move(move, stale) == [block]
    assert rig.state.slices[0] is before
    assert rig.ledger.block_paths() == named


def test_a_compaction_of_blocks_that_are_not_there_any_more_is_refused(rig: Rig) -> None:
    for late in range(3):
        rig.step({0: [late] * 200}, watermark_ms=1_000)
    stale = rig.state.slices[0]
    one, two, three = stale.blocks
    first, second = (rig.blocks.write(rig.state.number, 0, table([0] * 400)) for _ in range(2))
    merged = Move(rig.state.number, 0, 0, (first,), (one.path, two.path))
    assert rig.ledger.move(merged, stale) == [one, two]
    again = Move(rig.state.number, 0, 0, (second,), (two.path, three.path))
    assert rig.ledger.move(again, stale) == [second]
    assert rig.state.slices[0].blocks == (three, first)


def test_rows_are_the_same_however_often_state_is_looked_at(tmp_path: Path) -> None:
    """Look without a pause while steps add to many slices, forget and remake them."""
    rig = Rig(tmp_path, Together((Bootstrap(small_bytes=0, keep_share=0.3), BySize(), Emergency())))
    expected: dict[int, Counter[int]] = {}
    over = threading.Event()
    failures: list[BaseException] = []

    def look() -> None:
        while not over.is_set():
            try:
                rig.tiers.decide(0.0, 0.0)
            except BaseException as error:
                failures.append(error)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "to_compact", partial(to_compact, least=3))
        watcher = threading.Thread(target=look)
        watcher.start()
        for step in range(200):
            start = step % 8 * SIZE_MS
            gone = ((step + 3) % 8 * SIZE_MS,) if step % 7 == 0 else ()
            rows = [step * 1_000 + n for n in range(150 if step % 5 == 0 else 3)]
            expected.setdefault(start, Counter()).update(rows)
            for forgotten in gone:
                expected.pop(forgotten, None)
            rig.step({start: rows}, watermark_ms=5_000, gone=gone)
        over.set()
        watcher.join()
        rig.tiers.settle()
    assert not failures
    assert {start: Counter(rig.rows(start)) for start in rig.state.slices} == expected
    assert set(rig.files.names()) == rig.ledger.block_paths()
    assert set(rig.staged._tables) <= rig.ledger.block_paths(), "a copy stays for ever"
    rig.close()
    again = Rig(tmp_path, Standard())
    assert {start: Counter(again.rows(start)) for start in again.state.slices} == expected
    again.close()


def test_copies_are_counted_once() -> None:
    staged = StagedBlocks(BlockStore(LocalBlockFiles(Path("unused"))))
    block = Block("a", 1, 100)
    staged.put(block, table([1]))
    staged.put(block, table([1]))
    assert staged.bytes == 100
    staged.drop([block, block])
    assert staged.bytes == 0
