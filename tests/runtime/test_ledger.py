"""The ledger: what was committed is there after any restart, and age costs nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from slackwater import disk
from slackwater.errors import JournalError, JournalLockedError, StateError
from slackwater.lateness.cleanup import Cover
from slackwater.lateness.observed import Seen
from slackwater.lateness.state import Amendment, LatenessChange, LatenessWish
from slackwater.lateness.triggers import Staleness
from slackwater.progress.watermarks import Watermarks
from slackwater.runtime import ledger as ledger_module
from slackwater.runtime.ledger import DeadLetterDuty, Ledger
from slackwater.runtime.state import (
    Block,
    Counters,
    KeyedChange,
    Move,
    PlannedRange,
    QueryChange,
    QueryState,
    SliceState,
    StageChange,
)
from slackwater.spark.sources.base import Range

ROWS = pa.table({"key": ["a", "b"], "_sw_rows": [1, 2], "n__n": [1, 2]})


def planned(first: int) -> tuple[PlannedRange, ...]:
    return ((0, Range(0, first, first + 10, 10, first * 100, detail={"files": ["x"]})),)


def change(query: int, step: int, **parts: object) -> QueryChange:
    settings: dict[str, object] = {
        "query": query,
        "positions": {(0, 0): step * 10 + 10},
        "watermarks": Watermarks({(0, 0): step * 100}, step * 100),
        "fired": {step * 1_000: 1},
        "windows_gone_until_ms": (step - 3) * 1_000,
        "slices_gone": (step - 3,),
        "added": {step: ROWS},
        "blocks": {},
        "counted": Counters(records=10, panes=1, rows_out=2),
    }
    return QueryChange(**{**settings, **parts})  # type: ignore[arg-type]


def run_step(ledger: Ledger, query: int, step: int, **parts: object) -> None:
    number, position = ledger.plan({query: planned(step * 10)})
    ledger.sync(position)
    position, _ = ledger.commit(number, [change(query, step, **parts)], [])
    ledger.sync(position)


def seen(state: QueryState) -> object:
    slices = {
        start: (pa.concat_tables(held.chunks).to_pylist() if held.chunks else [], held.blocks)
        for start, held in state.slices.items()
    }
    stages = [
        (
            stage.panes,
            stage.gone_until_ms,
            {start: rows and rows.to_pylist() for start, rows in stage.sources.items()},
        )
        for stage in state.stages
    ]
    return (
        stages,
        state.number,
        state.name,
        state.fingerprint,
        state.positions,
        state.watermarks,
        state.panes,
        slices,
        state.pending,
        state.counters,
        state.quarantined,
        state.source_states,
        state.lateness,
        state.wish,
        state.pending_amends,
    )


@pytest.mark.parametrize("snapshot", [False, True])
def test_everything_committed_is_there_after_a_restart(tmp_path: Path, snapshot: bool) -> None:
    ledger = Ledger(tmp_path)
    one = ledger.introduce("one", {"windows": 3})
    two = ledger.introduce("two", {"windows": 4})
    ledger.remember_sources(one.number, [{"start_ms": 5}])
    for step in range(6):
        run_step(ledger, one.number, step)
    run_step(ledger, one.number, 6, added={}, blocks={6: (Block("block-6.parquet", 7),)})
    if snapshot:
        ledger.begin_snapshot({one.number: [{"start_ms": 5}]})()
    ledger.quarantine(two.number, "it broke")
    ledger.plan({two.number: planned(0)})
    before = [seen(one), seen(two)]
    ledger.close()

    again = Ledger(tmp_path)
    after = [seen(again.content.queries[name]) for name in ("one", "two")]
    assert after == before
    assert again.content.queries["two"].pending == planned(0)
    again.close()


LATE = LatenessChange(
    seen=Seen(7, {12: 3, 900: 1}, 5),
    since_ms=40,
    bounds=((100, 5_000), (900, 300)),
    amendments={0: Amendment(1_000, 4, 4), 1_000: Amendment(2_100, 0, 9)},
)
WISH = LatenessWish(Cover(0.99, 0.9, 60_000), Staleness(0.05))


@pytest.mark.parametrize("snapshot", [False, True])
def test_what_is_known_of_late_events_is_there_after_a_restart(
    tmp_path: Path, snapshot: bool
) -> None:
    ledger = Ledger(tmp_path)
    one = ledger.introduce("one", {"windows": 3})
    ledger.remember_wish(one.number, WISH)
    run_step(ledger, one.number, 0, lateness=LATE)
    run_step(ledger, one.number, 1, lateness=LatenessChange(Seen(1, {12: 1}, 4), settled=(1_000,)))
    run_step(ledger, one.number, 9, windows_gone_until_ms=5_000)
    assert one.panes == {0: 1, 9_000: 1}  # a last pane of the window at 0 is still to come
    assert one.lateness.observed.late == {12: 4, 900: 1}  # nine windows: a generation is full
    ledger.plan({one.number: planned(90)}, amending={one.number})
    if snapshot:
        ledger.begin_snapshot({})()
    before = seen(one)
    ledger.close()
    again = Ledger(tmp_path)
    assert seen(again.content.queries["one"]) == before
    assert again.content.queries["one"].pending_amends
    again.close()


def test_a_pending_plan_is_done_by_the_wish_that_it_was_planned_with(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    one = ledger.introduce("one", {"windows": 3})
    ledger.remember_wish(one.number, WISH)
    number, _ = ledger.plan({one.number: planned(0)})
    ledger.remember_wish(one.number, LatenessWish(5_000))  # redeployed after a crash
    assert one.wish == WISH
    ledger.commit(number, [change(one.number, 0)], [])
    assert one.wish == LatenessWish(5_000)
    ledger.close()
    again = Ledger(tmp_path)
    assert again.content.queries["one"].wish == LatenessWish(5_000)
    again.close()


def test_slices_that_were_over_early_are_part_of_a_duty(tmp_path: Path) -> None:
    for snapshot in (False, True):
        directory = tmp_path / str(snapshot)
        ledger = Ledger(directory)
        one = ledger.introduce("one", {"windows": 3})
        number, _ = ledger.plan({one.number: planned(0)})
        duty = DeadLetterDuty(number, one.number, planned(0), False, None, (3_000, 9_000))
        ledger.commit(number, [change(one.number, 0)], [duty])
        if snapshot:
            ledger.begin_snapshot({})()
        ledger.close()
        again = Ledger(directory)
        assert again.open_duties() == [duty]
        again.close()


@pytest.mark.parametrize("snapshot", [False, True])
def test_rows_of_each_key_s_windows_come_and_go_by_their_places(
    tmp_path: Path, snapshot: bool
) -> None:
    ledger = Ledger(tmp_path)
    query = ledger.introduce("keyed", {})
    expected: list[int] = []
    for step in range(8):
        gone = tuple(range(0, len(expected), 3))
        numbers = list(range(step * 10, step * 10 + step % 4))
        expected = [n for place, n in enumerate(expected) if place not in gone] + numbers
        keyed = KeyedChange(step + 1, gone, pa.table({"n": numbers}) if numbers else None)
        run_step(ledger, query.number, step, keyed=keyed)
        if snapshot and step == 4:
            ledger.begin_snapshot({})()
    ledger.close()

    again = Ledger(tmp_path)
    keyed_state = again.content.queries["keyed"].keyed
    assert keyed_state.emissions == 8
    assert keyed_state.rows is not None
    assert keyed_state.rows["n"].to_pylist() == expected
    assert again.content.queries["keyed"].rows_held >= len(expected)
    again.close()


def staged(step: int) -> tuple[StageChange, ...]:
    """Replace the rows of a window twice, then forget it; the second stage has other columns."""
    fired, until_ms = {step * 1_000: 1}, (step - 3) * 1_000
    rows = pa.table({"key": [str(step)], "total__sum": [float(step)]})
    odd = rows if step % 2 else None  # a window may come to have no rows
    first = StageChange(fired, until_ms, (step - 5,), {step - 1: ROWS, step: ROWS})
    return first, StageChange(fired, until_ms, (step - 4,), {step - 1: odd, step: rows})


@pytest.mark.parametrize("snapshot", [False, True])
def test_the_stages_of_a_chain_are_there_after_a_restart(tmp_path: Path, snapshot: bool) -> None:
    ledger = Ledger(tmp_path)
    query = ledger.introduce("q", {})
    plain = ledger.introduce("plain", {})
    for step in range(8):
        run_step(ledger, query.number, step, stages=staged(step))
        run_step(ledger, plain.number, step)
    if snapshot:
        ledger.begin_snapshot({})()
        run_step(ledger, query.number, 8, stages=staged(8))
    before = [seen(query), seen(plain)]
    last = 8 if snapshot else 7
    assert sorted(query.stages[0].sources) == list(range(last - 4, last + 1))
    assert query.stages[1].sources[last - 1 if last % 2 == 0 else last - 2] is None
    assert query.stages[0].rows_held == 5 * ROWS.num_rows
    ledger.close()

    again = Ledger(tmp_path)
    assert [seen(again.content.queries[name]) for name in ("q", "plain")] == before
    again.close()


def test_a_step_number_is_never_used_twice(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    query = ledger.introduce("q", {})
    first, position = ledger.plan({query.number: planned(0)})
    ledger.sync(position)
    ledger.begin_snapshot({})()
    ledger.close()
    again = Ledger(tmp_path)
    assert again.plan({query.number: planned(0)})[0] > first
    again.close()


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_step_is_committed_once_and_only_while_it_is_planned(
    tmp_path: Path, snapshot: bool
) -> None:
    ledger = Ledger(tmp_path)
    one, two = (ledger.introduce(name, {}) for name in ("one", "two"))
    both, _ = ledger.plan({one.number: planned(0), two.number: planned(0)})
    for state in (one, two):  # each alone, as after a failure of both
        ledger.commit(both, [change(state.number, 0)], [])
    later, position = ledger.plan({one.number: planned(10)})
    ledger.sync(position)
    before = [seen(one), seen(two), ledger._journal.records_since_snapshot]
    for step, state in ((both, one), (both, two), (later, two), (later + 1, one)):
        with pytest.raises(StateError, match=f"step {step} of query {state.name} is not planned"):
            ledger.require_pending(step, [state.number])
        with pytest.raises(StateError, match="is not planned"):
            ledger.commit(step, [change(state.number, 1)], [])
    with pytest.raises(StateError, match="number 77"):
        ledger.commit(later, [change(77, 1)], [])
    with pytest.raises(StateError, match="query two"):  # all or nothing
        ledger.commit(later, [change(one.number, 1), change(two.number, 1)], [])
    assert [seen(one), seen(two), ledger._journal.records_since_snapshot] == before
    if snapshot:
        ledger.begin_snapshot({})()
    ledger.close()
    again = Ledger(tmp_path)
    assert again.content.queries["one"].pending_step == later
    again.require_pending(later, [one.number])
    anew, _ = again.plan({one.number: planned(10)})
    with pytest.raises(StateError, match="is not planned"):
        again.commit(later, [change(one.number, 1)], [])
    again.commit(anew, [change(one.number, 1)], [])
    again.close()


def test_what_an_earlier_version_committed_twice_stops_its_query_alone(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    one, two, three = (ledger.introduce(name, {}) for name in ("one", "two", "three"))
    for state in (one, two, three):
        run_step(ledger, state.number, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "_require_pending", lambda *_: None)
        ledger.commit(0, [change(one.number, 0)], [])
        patch.setattr(SliceState, "can_move", lambda *_: True)
        ledger.move(Move(two.number, 0, 99, (Block("b", 99),)), SliceState())
    ledger.close()
    again = Ledger(tmp_path)
    for name, found in (("one", "committed without its plan"), ("two", "was not there")):
        assert found in str(again.content.queries[name].quarantined)
        assert "reset=True" in str(again.content.queries[name].quarantined)
    assert again.content.queries["three"].quarantined is None
    again.close()


@pytest.mark.parametrize("change_it", ["introduce", "plan", "quarantine", "wish", "reset", "batch"])
def test_what_the_journal_did_not_take_did_not_happen(
    tmp_path: Path, change_it: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path, durable=False)
    one = ledger.introduce("one", {})
    run_step(ledger, one.number, 0)
    changes: dict[str, Callable[[], object]] = {
        "introduce": lambda: ledger.introduce("two", {}),
        "plan": lambda: ledger.plan({one.number: planned(10)}),
        "quarantine": lambda: ledger.quarantine(one.number, "broken"),
        "wish": lambda: ledger.remember_wish(one.number, WISH),
        "reset": lambda: ledger.reset("one"),
        "batch": lambda: ledger.plan_dead_letters([]),
    }
    before = repr(ledger.content)
    with monkeypatch.context() as patch:

        def full(*_: object) -> int:
            raise OSError(28, "No space left on device")

        patch.setattr(disk.current, "write", full)
        with pytest.raises(JournalError, match="No space left"):
            changes[change_it]()
    assert repr(ledger.content) == before
    ledger.close()


def test_nobody_goes_on_from_a_record_that_could_not_be_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path)
    one = ledger.introduce("one", {})
    number, _ = ledger.plan({one.number: planned(0)})
    with monkeypatch.context() as patch:

        def broken(*_: object) -> None:
            raise ValueError("a fault of ours")

        patch.setattr(QueryState, "apply", broken)
        with pytest.raises(JournalError, match="could not be applied: a fault of ours"):
            ledger.commit(number, [change(one.number, 0)], [])
    with pytest.raises(JournalError, match="start again"):
        ledger.commit(number, [change(one.number, 0)], [])
    ledger.close()
    again = Ledger(tmp_path)
    assert again.content.queries["one"].positions == {(0, 0): 10}
    again.close()


def test_a_reset_query_is_forgotten_and_its_number_is_not_reused(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    old = ledger.introduce("q", {"a": 1})
    run_step(ledger, old.number, 0)
    ledger.reset("q")
    new = ledger.introduce("q", {"a": 2}, first_pane=1_000)
    assert new.number != old.number
    ledger.close()
    for _ in range(2):  # from the records, and from a snapshot of them
        again = Ledger(tmp_path)
        assert seen(again.content.queries["q"]) == seen(new)
        assert again.content.resets == {"q": 1}
        assert again.content.queries["q"].first_pane == 1_000
        again.begin_snapshot({})()
        again.close()


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_dead_letter_duty_survives_until_its_batch_is_filed(
    tmp_path: Path, snapshot: bool
) -> None:
    ledger = Ledger(tmp_path)
    query = ledger.introduce("q", {})
    number, _ = ledger.plan({query.number: planned(0)})
    duty = DeadLetterDuty(number, query.number, planned(0), True, 500)
    ledger.commit(number, [change(query.number, 0)], [duty])
    batch = ledger.plan_dead_letters([duty])
    if snapshot:
        ledger.begin_snapshot({})()
    ledger.close()

    again = Ledger(tmp_path)
    assert again.open_batches() == [(batch, [duty])]
    assert again.open_duties() == []
    again.dead_letters_filed(batch)
    again.close()
    last = Ledger(tmp_path)
    assert last.open_batches() == []
    assert not last.has_duties
    last.close()


def test_dead_letters_that_the_journal_does_not_know_show_that_records_are_missing(
    tmp_path: Path,
) -> None:
    ledger = Ledger(tmp_path)
    ledger.require_batch(-1, tmp_path / "dead-letters")
    batch = ledger.plan_dead_letters([])
    ledger.require_batch(batch, tmp_path / "dead-letters")
    with pytest.raises(JournalError, match=r"dead-letters has batch 1 .* knows of 1: records"):
        ledger.require_batch(batch + 1, tmp_path / "dead-letters")
    ledger.close()


def test_a_second_runtime_on_one_journal_is_refused(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    with pytest.raises(JournalLockedError):
        Ledger(tmp_path)
    ledger.close()


def test_a_commit_cut_off_anywhere_leaves_the_plan_pending(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "whole")
    query = ledger.introduce("q", {})
    run_step(ledger, query.number, 0)
    step, position = ledger.plan({query.number: planned(10)})
    ledger.sync(position)
    (segment,) = (tmp_path / "whole" / "journal").glob("*segment*")
    intact = segment.stat().st_size
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")  # before the commit was flushed
    ledger.commit(step, [change(query.number, 1)], [])
    content = segment.read_bytes()
    ledger.close()
    for size in range(intact, len(content), 3):
        shutil.rmtree(tmp_path / "cut", ignore_errors=True)
        shutil.copytree(tmp_path / "killed", tmp_path / "cut")
        (tmp_path / "cut" / "journal" / segment.name).write_bytes(content[:size])
        again = Ledger(tmp_path / "cut", durable=False)
        state = again.content.queries["q"]
        assert state.pending == planned(10)
        assert state.positions == {(0, 0): 10}
        again.close()


def test_large_state_is_not_written_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "SNAPSHOT_BYTES", 1_000)
    ledger = Ledger(tmp_path, durable=False)
    query = ledger.introduce("q", {})
    noise = np.random.default_rng(1)
    snapshots = written = state = 0
    for step in range(200):  # nothing is ever forgotten: the state grows with each step
        rows = pa.table({"x": noise.random(100)})
        run_step(ledger, query.number, step, added={step: rows}, slices_gone=())
        state += rows.nbytes
        if ledger.snapshot_due:
            ledger.begin_snapshot({})()
            snapshots += 1
            written += state
    ledger.close()
    assert 3 <= snapshots < 20
    assert written < 4 * state


def test_age_costs_neither_disk_nor_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "SNAPSHOT_RECORDS", 1_000)
    ledger = Ledger(tmp_path, durable=False)
    query = ledger.introduce("q", {})
    largest = 0
    for step in range(10_000):
        run_step(ledger, query.number, step)
        if ledger.snapshot_due:
            ledger.begin_snapshot({})()
            files = list((tmp_path / "journal").iterdir())
            largest = max(largest, sum(file.stat().st_size for file in files))
            assert len(files) <= 4
    ledger.close()
    assert largest < 64_000
    again = Ledger(tmp_path)
    assert len(again.content.planned_since.get(query.number, [])) <= 1_000
    assert again.content.queries["q"].positions == {(0, 0): 100_000}
    assert len(again.content.queries["q"].slices) == 3
    again.close()


def test_a_snapshot_keeps_what_was_planned_for_queries_that_are_not_deployed(
    tmp_path: Path,
) -> None:
    ledger = Ledger(tmp_path)
    away = ledger.introduce("away", {})
    ledger.remember_sources(away.number, [{"files": []}])
    run_step(ledger, away.number, 0)
    run_step(ledger, away.number, 1)
    ledger.close()
    for _ in range(2):  # processes that do not deploy it
        ledger = Ledger(tmp_path)
        ledger.begin_snapshot({})()
        ledger.close()
    ledger = Ledger(tmp_path)
    since = ledger.content.planned_since[away.number]
    ledger.close()
    assert since == [*planned(0), *planned(10)]


@pytest.mark.parametrize("snapshot", [False, True])
def test_the_journal_names_a_block_by_its_bytes_if_they_are_known(
    tmp_path: Path, snapshot: bool
) -> None:
    ledger = Ledger(tmp_path)
    one = ledger.introduce("one", {})
    blocks = (Block("a", 2, 16, 400, 0xFEDCBA98), Block("b", 2, 16), Block("c", 2))
    run_step(ledger, one.number, 0, blocks={0: blocks})
    moved = Block("d", 4, 32, 500, 1)
    ledger.move(Move(one.number, 0, 0, (moved,), ("b", "c")), one.slices[0])
    if snapshot:
        ledger.begin_snapshot({})()
    ledger.close()
    again = Ledger(tmp_path)
    assert again.content.queries["one"].slices[0].blocks == (blocks[0], moved)
    again.close()
