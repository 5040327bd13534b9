from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.errors import SinkError
from slackwater.spark.sinks.kafka_written import OWNER, WrittenPanes
from slackwater.spark.sinks.pane_tables import PaneKey

# One write: windows of some queries, each with its next pane.
WRITES = st.lists(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9)), min_size=1, max_size=6),
    max_size=25,
)


def read_back(topic: list[tuple[bytes, bytes | None]]) -> WrittenPanes:
    """Read a topic as compaction may have left it: only the last record of each key."""
    compacted = {key: value for key, value in topic if value is not None}
    for key, value in topic:
        if value is None:
            compacted.pop(key, None)
        else:
            compacted.pop(key, None)
            compacted[key] = value
    written = WrittenPanes()
    for key, value in compacted.items():
        written.read(key, value, "topic t.panes")
    return written


@given(WRITES)
def test_a_successor_knows_what_the_last_write_of_each_query_held(
    writes: list[list[tuple[str, int]]],
) -> None:
    written, topic = WrittenPanes(), list[tuple[bytes, bytes | None]]()
    panes: dict[tuple[str, int], int] = {}
    last: dict[tuple[str, bool], set[PaneKey]] = {}
    for write in writes:
        content: set[PaneKey] = set()
        for window in dict.fromkeys(write):
            panes[window] = panes.get(window, -1) + 1
            content.add((*window, panes[window]))
        for query, first in {(query, not pane) for query, _, pane in content}:
            last[query, first] = {p for p in content if (p[0], not p[2]) == (query, first)}
        topic += written.records(content, content)
        written.add(content, content)
    found = read_back(topic)
    assert found == written
    for held in last.values():
        for pane in held:
            assert found.has(pane)
            assert not found.has((*pane[:2], panes[pane[:2]] + 1))
    assert len(found._newest) == sum(map(len, last.values()))


def test_an_early_pane_is_remembered_while_exact_ones_go_on() -> None:
    written, topic = WrittenPanes(), list[tuple[bytes, bytes | None]]()
    for pane in [("ads", 7, 0), *(("ads", start, 1) for start in range(3, 400))]:
        topic += written.records([pane], [pane])
        written.add([pane], [pane])
    assert read_back(topic).has(("ads", 7, 0))
    assert not read_back(topic).has(("ads", 8, 0))


def test_what_was_left_out_of_a_write_is_still_remembered() -> None:
    written = WrittenPanes()
    written.add([("ads", 1, 0)], [("ads", 1, 0)])
    written.add([("ads", 2, 0)], [("ads", 1, 0), ("ads", 2, 0)])
    assert written.has(("ads", 1, 0))


def test_notes_of_the_first_version_are_read() -> None:
    written = WrittenPanes()
    written.read(b'["ads", 7]', b'{"version": 1, "pane": 0, "rows": 5}', "topic t.panes")
    assert written.has(("ads", 7, 0))
    assert not written.has(("ads", 7, 1))


def test_the_owner_is_read_and_strangers_are_refused() -> None:
    written = WrittenPanes()
    written.read(OWNER, b"me", "topic t.panes")
    assert written.owner == "me"
    with pytest.raises(SinkError, match=r"t\.panes holds a record that Slackwater did not write"):
        written.read(b"else", b"{}", "topic t.panes")
    with pytest.raises(SinkError, match="newer Slackwater: upgrade"):
        written.read(b'["q", 1]', b'{"version": 3}', "topic t.panes")
