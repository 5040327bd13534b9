from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from slackwater.spark.sinks.base import PANE_FIELDS
from slackwater.spark.sinks.pane_tables import PaneKey, RecentPanes, _keys, last_panes, pane_keys

Make = Callable[..., pa.Table]
NAMES = st.tuples(st.sampled_from(["ads", "shop", "é"]), st.integers(-3, 3), st.integers(0, 4))


def table_of(keys: list[PaneKey]) -> pa.Table:
    columns = {
        "query": [query for query, _, _ in keys],
        "window_start": [start for _, start, _ in keys],
        "window_end": [start + 1 for _, start, _ in keys],
        "pane": [pane for _, _, pane in keys],
        "timing": ["late"] * len(keys),
        "accuracy": [1.0] * len(keys),
    }
    fields = [pa.array(columns[field.name]).cast(field.type) for field in PANE_FIELDS]
    return pa.table(fields, schema=pa.schema(PANE_FIELDS))


@given(keys=st.lists(NAMES), cut=st.integers(0, 20))
def test_last_panes_keeps_the_highest_pane_of_each_window_in_order(
    keys: list[PaneKey], cut: int
) -> None:
    highest: dict[tuple[str, int], int] = {}
    for query, start, pane in keys:
        highest[query, start] = max(pane, highest.get((query, start), 0))
    expected = [key for key in keys if highest[key[0], key[1]] == key[2]]
    chunked = pa.concat_tables([table_of(keys[:cut]), table_of(keys[cut:])])
    assert list(_keys(last_panes(chunked))) == expected


@given(written=st.lists(NAMES), found=st.lists(NAMES), sent=st.lists(NAMES))
def test_only_panes_not_written_are_left(
    written: list[PaneKey], found: list[PaneKey], sent: list[PaneKey]
) -> None:
    recent = RecentPanes(found)
    recent.add(written)
    fresh, keys = recent.leave_out(table_of(sent))
    expected = [key for key in sent if key not in {*written, *found}]
    assert list(_keys(fresh)) == expected
    assert keys == set(expected) == pane_keys(fresh)


def test_the_oldest_are_forgotten_first_and_those_found_at_opening_never() -> None:
    names: list[PaneKey] = [("ads", start, 0) for start in range(5)]
    recent = RecentPanes(names[:1], remember=2)
    recent.add(names[1:])
    assert [name in recent for name in names] == [True, False, False, True, True]
