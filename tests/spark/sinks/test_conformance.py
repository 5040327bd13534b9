"""What every sink holds to, whatever it writes to."""

from __future__ import annotations

import threading
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import get_args

import pyarrow as pa
import pytest

from slackwater.errors import SinkError
from slackwater.spark.kafka import client_calls
from slackwater.spark.sinks.base import PANE_COLUMNS, RETRACTED, Sink
from slackwater.spark.sinks.callback import callback
from slackwater.spark.sinks.console import console
from slackwater.spark.sinks.kafka import Mode, kafka_sink
from slackwater.spark.sinks.memory import MemorySink, memory
from slackwater.spark.sinks.pane_tables import PaneKey, _keys
from slackwater.spark.sinks.parquet import parquet, read_panes
from slackwater.testing.kafka_broker import KafkaBroker
from slackwater.testing.kafka_topics import read_topic

Make = Callable[..., pa.Table]


class Trial(ABC):
    """One sink, and what its readers see: rows of each pane."""

    sink: Sink
    survives = True  # whether what it remembers outlives the process that wrote it

    @abstractmethod
    def rows_seen(self) -> Counter[PaneKey]: ...


class FallibleTrial(Trial):
    """A sink that can fail, and be mended."""

    @abstractmethod
    def break_it(self) -> None: ...

    @abstractmethod
    def mend_it(self) -> None: ...


class ParquetTrial(FallibleTrial):
    def __init__(self, path: Path) -> None:
        self._path = path
        self.sink = parquet(path, roll_writes=3)

    def rows_seen(self) -> Counter[PaneKey]:
        return Counter(_keys(read_panes(self._path)))

    def break_it(self) -> None:
        self._path.rename(self._path.with_name("away"))
        self._path.touch()

    def mend_it(self) -> None:
        self._path.unlink()
        self._path.with_name("away").rename(self._path)


class MemoryTrial(Trial):
    sink: MemorySink

    def __init__(self) -> None:
        self.sink = memory()

    def rows_seen(self) -> Counter[PaneKey]:
        return Counter(_keys(self.sink.table()))


class CallbackTrial(FallibleTrial):
    survives = False

    def __init__(self) -> None:
        self._broken = False
        self._seen: Counter[PaneKey] = Counter()
        self.sink = callback(self._take)

    def _take(self, panes: pa.Table) -> None:
        if self._broken:
            raise RuntimeError("no line")
        self._seen.update(_keys(panes))

    def rows_seen(self) -> Counter[PaneKey]:
        return self._seen

    def break_it(self) -> None:
        self._broken = True

    def mend_it(self) -> None:
        self._broken = False


class ConsoleTrial(FallibleTrial):
    survives = False

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys, self._patch = capsys, monkeypatch
        self._printed = ""
        self.sink = console(rows=10_000)

    def rows_seen(self) -> Counter[PaneKey]:
        self._printed += self._capsys.readouterr().out
        lines = [line.split() for line in self._printed.splitlines()]
        rows = [line for line in lines if line[0] != "query"]
        return Counter((query, _us(start), int(pane)) for query, start, _, pane, *_ in rows)

    def break_it(self) -> None:
        def fail(*_: object) -> None:
            raise BrokenPipeError(32, "Broken pipe")

        self._patch.setattr("slackwater.spark.sinks.console._ConsoleWriter._print", fail)

    def mend_it(self) -> None:
        self._patch.undo()


class KafkaTrial(FallibleTrial):
    def __init__(self, broker: KafkaBroker, mode: Mode) -> None:
        self._broker = broker
        self._topic = f"conformance-{uuid.uuid4().hex}"
        self.survives = mode == "transactional"  # upserts may come a second time after a crash
        self.sink = kafka_sink(broker.servers, self._topic, mode=mode, key="campaign")

    def rows_seen(self) -> Counter[PaneKey]:
        records = read_topic(self._broker.servers, self._topic)
        told = [dict(record.headers() or {}) for record in records]
        # What a window that is taken back whole had before goes too, under no pane's name.
        rows = [{name: _text(value) for name, value in t.items()} for t in told if "pane" in t]
        return Counter((r["query"], _us(r["window_start"]), int(r["pane"])) for r in rows)

    def break_it(self) -> None:
        self._broker.stop()

    def mend_it(self) -> None:
        self._broker.start()


def _text(value: str | bytes | None) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _us(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1_000) * 1_000


KAFKA_MODES = [
    pytest.param(f"kafka, {mode}", marks=[pytest.mark.kafka, pytest.mark.slow])
    for mode in get_args(Mode)
]


@pytest.fixture(scope="module")
def breakable_broker(kafka_jars: None) -> Iterator[KafkaBroker]:
    with KafkaBroker() as broker:
        yield broker


@pytest.fixture(params=["parquet", "callback", "console", *KAFKA_MODES])
def fallible(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> FallibleTrial:
    trials: dict[str, Callable[[], FallibleTrial]] = {
        "parquet": lambda: ParquetTrial(tmp_path / "out"),
        "callback": CallbackTrial,
        "console": lambda: ConsoleTrial(capsys, monkeypatch),
    }
    if request.param in trials:
        return trials[request.param]()
    monkeypatch.setattr(client_calls, "CALL_S", 2.0)
    monkeypatch.setattr(client_calls, "PAUSE_S", 0.0)
    broker = request.getfixturevalue("breakable_broker")
    return KafkaTrial(broker, request.param.removeprefix("kafka, "))


@pytest.fixture(params=["parquet", "memory", "callback", "console", *KAFKA_MODES])
def trial(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Trial:
    trials: dict[str, Callable[[], Trial]] = {
        "parquet": lambda: ParquetTrial(tmp_path / "out"),
        "memory": MemoryTrial,
        "callback": CallbackTrial,
        "console": lambda: ConsoleTrial(capsys, monkeypatch),
    }
    if request.param in trials:
        return trials[request.param]()
    broker = request.getfixturevalue("kafka_broker")
    return KafkaTrial(broker, request.param.removeprefix("kafka, "))


def test_all_panes_of_a_write_are_seen_with_all_their_rows(trial: Trial, make_panes: Make) -> None:
    panes = [make_panes("ads", 0), make_panes("shop", 0, rows=2), make_panes("ads", 1, rows=3)]
    writer = trial.sink.open()
    writer.write(pa.concat_tables(panes), 0)
    assert trial.rows_seen() == Counter(_keys(pa.concat_tables(panes)))
    writer.close()


def test_a_pane_sent_again_is_seen_once_whatever_the_lane(trial: Trial, make_panes: Make) -> None:
    first, second = make_panes("ads", 0), make_panes("ads", 1)
    writer = trial.sink.open()
    writer.write(first, 0)
    writer.write(first, 0)
    writer.write(pa.concat_tables([second, first]), 1)
    assert trial.rows_seen() == Counter(_keys(pa.concat_tables([first, second])))
    writer.close()


def test_a_later_pane_of_a_window_is_another_pane(trial: Trial, make_panes: Make) -> None:
    panes = [make_panes("ads", 0, pane=number) for number in range(3)]
    writer = trial.sink.open()
    for pane in panes:
        writer.write(pane, 0)
    assert trial.rows_seen() == Counter(_keys(pa.concat_tables(panes)))
    writer.close()


def test_a_row_that_takes_a_window_back_has_no_values_and_is_seen(
    trial: Trial, make_panes: Make
) -> None:
    shown, later = make_panes("ads", 0), make_panes("ads", 0, pane=1, rows=1)
    columns = {name: later[name] for name in PANE_COLUMNS} | {"timing": pa.array([RETRACTED])}
    taken_back = pa.table(
        [
            columns[field.name] if field.name in columns else pa.nulls(1, field.type)
            for field in later.schema
        ],
        schema=later.schema,
    )
    writer = trial.sink.open()
    writer.write(shown, 0)
    writer.write(taken_back, 0)
    writer.write(taken_back, 1)
    assert trial.rows_seen() == Counter(_keys(pa.concat_tables([shown, taken_back])))
    writer.close()


def test_no_rows_are_no_trouble(trial: Trial, make_panes: Make) -> None:
    writer = trial.sink.open()
    writer.write(make_panes().slice(0, 0), 0)
    assert not trial.rows_seen()
    writer.write(make_panes(), 0)
    assert trial.rows_seen().total() == 5
    writer.close()


def test_a_failed_write_shows_nothing_and_works_once_mended(
    fallible: FallibleTrial, make_panes: Make
) -> None:
    before, failed, after = (make_panes("ads", window) for window in range(3))
    writer = fallible.sink.open()
    writer.write(before, 0)
    fallible.rows_seen()
    fallible.break_it()
    with pytest.raises(SinkError, match=r"resume|use another sink|cannot be written now") as caught:
        writer.write(failed, 0)
    assert caught.value.__cause__ is not None
    fallible.mend_it()
    assert fallible.rows_seen() == Counter(_keys(before))
    writer.write(after, 0)
    assert fallible.rows_seen() == Counter(_keys(pa.concat_tables([before, after])))
    writer.write(failed, 1)
    assert fallible.rows_seen() == Counter(_keys(pa.concat_tables([before, failed, after])))
    writer.close()


@pytest.mark.parametrize("again", ["alone", "with others", "in pieces"])
def test_a_pane_not_committed_is_seen_once_however_long_its_query_was_away(
    again: str, trial: Trial, make_panes: Make
) -> None:
    """A step is written, the process dies before its commit, and others go on for a long time."""
    away = [make_panes("away", 7), make_panes("away", 6, pane=1)]
    together, later = make_panes("other", 0), make_panes("away", 8)
    writer = trial.sink.open()
    writer.write(pa.concat_tables([*away, together]), 0)
    others = [make_panes(f"other{number % 3}", number, rows=1) for number in range(1, 31)]
    for number, panes in enumerate(others):
        if trial.survives and number % 10 == 9:
            writer.close()
            writer = trial.sink.open()
            writer.recall({"no such query": None})
        writer.write(panes, number % 2)
    if trial.survives:
        writer.close()
        writer = trial.sink.open()
        writer.recall({"away": int(away[1]["window_start"].cast(pa.int64())[0].as_py())})
    for _ in range(2):
        if again == "in pieces":
            with writer.stage(1) as step:
                for panes in away:
                    step.add(panes)
                step.publish()
        else:
            more = [make_panes("other0", 40)] if again == "with others" else []
            writer.write(pa.concat_tables([*away, *more]), 1)
    writer.write(later, 0)
    writer.close()
    expected = [*away, together, *others, later]
    if again == "with others":
        expected.append(make_panes("other0", 40))
    assert trial.rows_seen() == Counter(_keys(pa.concat_tables(expected)))


def test_the_pieces_of_a_step_are_seen_together_or_not_at_all(
    trial: Trial, make_panes: Make
) -> None:
    before, pieces = make_panes("ads", 0), [make_panes(f"q{n}", n, rows=n) for n in range(1, 4)]
    writer = trial.sink.open()
    writer.write(before, 0)
    with writer.stage(0) as step:  # whose computation fails, so that it is never published
        for piece in pieces:
            step.add(piece)
    assert trial.rows_seen() == Counter(_keys(before))
    with writer.stage(0) as step:
        for piece in pieces:
            step.add(piece)
        assert trial.rows_seen() == Counter(_keys(before))
        step.publish()
    assert trial.rows_seen() == Counter(_keys(pa.concat_tables([before, *pieces])))
    writer.close()


def test_a_step_in_pieces_that_cannot_be_published_shows_nothing(
    fallible: FallibleTrial, make_panes: Make
) -> None:
    before, pieces = make_panes("ads", 0), [make_panes("ads", 1), make_panes("shop", 2)]
    writer = fallible.sink.open()
    writer.write(before, 0)
    fallible.rows_seen()
    with writer.stage(0) as step:
        for piece in pieces:
            step.add(piece)
        fallible.break_it()
        with pytest.raises(SinkError):
            step.publish()
    fallible.mend_it()
    assert fallible.rows_seen() == Counter(_keys(before))
    with writer.stage(0) as step:
        for piece in pieces:
            step.add(piece)
        step.publish()
    assert fallible.rows_seen() == Counter(_keys(pa.concat_tables([before, *pieces])))
    writer.close()


def test_a_step_in_pieces_leaves_out_what_came_before_it_was_published(
    trial: Trial, make_panes: Make
) -> None:
    pieces = [make_panes("ads", 1), make_panes("ads", 2)]
    writer = trial.sink.open()
    with writer.stage(0) as step:
        for piece in pieces:
            step.add(piece)
        writer.write(pa.concat_tables(pieces), 1)  # by one that was given up and goes on
        step.publish()
    assert trial.rows_seen() == Counter(_keys(pa.concat_tables(pieces)))
    writer.close()


def test_lanes_write_at_the_same_time(trial: Trial, make_panes: Make) -> None:
    panes = {lane: [make_panes(f"q{lane}", w) for w in range(20)] for lane in range(4)}
    writer = trial.sink.open()
    failures: list[BaseException] = []

    def write(lane: int) -> None:
        try:
            for pane in panes[lane]:
                writer.write(pane, lane)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=write, args=(lane,)) for lane in panes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    assert not failures
    everything = pa.concat_tables([pane for lane in panes.values() for pane in lane])
    assert trial.rows_seen() == Counter(_keys(everything))
