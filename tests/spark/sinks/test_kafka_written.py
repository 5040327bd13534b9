from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.errors import SinkError
from slackwater.spark.sinks import kafka_written
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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka_written, "REMEMBERED_WINDOWS", 2)
        written, topic = WrittenPanes(), list[tuple[bytes, bytes | None]]()
        panes: dict[tuple[str, int], int] = {}
        last: dict[str, dict[PaneKey, int]] = {}
        for write in writes:
            content: dict[PaneKey, int] = {}
            for window in dict.fromkeys(write):
                panes[window] = panes.get(window, -1) + 1
                content[*window, panes[window]] = panes[window] + 7
            for query in {query for query, _, _ in content}:
                last[query] = {key: rows for key, rows in content.items() if key[0] == query}
            topic += written.records(content)
            written.add(content)
        found = read_back(topic)
        assert found._windows == written._windows
        for content in last.values():
            for pane, rows in content.items():
                assert found.has(pane)
                assert found.rows(pane) == rows
                assert not found.has((*pane[:2], pane[2] + 1))
        for query, windows in found._windows.items():
            assert len(windows) <= 2 + len(last[query])


def test_the_owner_is_read_and_strangers_are_refused() -> None:
    written = WrittenPanes()
    written.read(OWNER, b"me", "topic t.panes")
    assert written.owner == "me"
    with pytest.raises(SinkError, match=r"t\.panes holds a record that Slackwater did not write"):
        written.read(b"else", b"{}", "topic t.panes")
    with pytest.raises(SinkError, match="newer Slackwater: upgrade"):
        written.read(b'["q", 1]', b'{"version": 2}', "topic t.panes")
