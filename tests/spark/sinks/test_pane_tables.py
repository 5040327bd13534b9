from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from slackwater.spark.sinks.base import PANE_FIELDS, PANES_OF_A_LIFE, RETRACTED
from slackwater.spark.sinks.pane_tables import (
    PaneKey,
    RecentPanes,
    _keys,
    last_panes,
    pane_keys,
    with_window_keys,
)

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


KEYED = st.tuples(
    st.integers(-2, 2), st.integers(0, 4), st.sampled_from(["a", "b", None]), st.booleans()
)


@given(rows=st.lists(KEYED))
def test_of_windows_that_each_key_has_for_itself_the_highest_pane_of_each_key_holds(
    rows: list[tuple[int, int, str | None, bool]],
) -> None:
    table = table_of([("ads", start, pane) for start, pane, _, _ in rows])
    timing = pa.array([RETRACTED if gone else "late" for *_, gone in rows], pa.string())
    table = table.set_column(table.schema.get_field_index("timing"), "timing", timing)
    table = table.append_column("user", pa.array([key for _, _, key, _ in rows], pa.string()))
    table = table.append_column("row", pa.array(range(len(rows)), pa.int64()))
    highest: dict[tuple[int, str | None], int] = {}
    for start, pane, key, _ in rows:
        highest[start, key] = max(pane, highest.get((start, key), 0))
    expected = [
        number
        for number, (start, pane, key, gone) in enumerate(rows)
        if pane == highest[start, key] and not gone
    ]
    assert last_panes(table, by=["user"])["row"].to_pylist() == expected
    told = table.cast(with_window_keys(table.schema, ["user"]))
    assert last_panes(told)["row"].to_pylist() == expected


@given(written=st.lists(NAMES), found=st.lists(NAMES), sent=st.lists(NAMES))
def test_only_panes_not_written_are_left(
    written: list[PaneKey], found: list[PaneKey], sent: list[PaneKey]
) -> None:
    recent = RecentPanes()
    recent.add(written)
    recent.recall(found)
    fresh, new, names = recent.leave_out(table_of(sent))
    expected = [key for key in sent if key not in {*written, *found}]
    assert list(_keys(fresh)) == expected
    assert new == set(expected) == pane_keys(fresh)
    assert names == set(sent)


def test_a_query_that_is_away_is_remembered_whatever_others_write() -> None:
    away: list[PaneKey] = [("away", 1, 0), ("away", 2, 0)]
    recent = RecentPanes()
    recent.add(away)
    for query in range(3):
        recent.add([(f"other{query}", start, 0) for start in range(100_000)])
    assert all(name in recent for name in away)
    recent.add([("away", 3, 0)])  # the step before is committed
    assert [name in recent for name in away] == [False, False]
    assert sum(map(len, recent._last.values())) == 300_001


def test_early_and_exact_panes_of_one_name_are_remembered_apart() -> None:
    early, exact = ("ads", 7, 0), ("ads", 3, 1)
    recent = RecentPanes()
    recent.add([exact])
    recent.add([early])
    recent.add([("ads", 8, 0)])
    assert exact in recent
    assert early not in recent
    reset = ("ads", 9, PANES_OF_A_LIFE)
    recent.add([reset])
    assert exact in recent


def test_what_was_left_out_of_a_write_is_remembered_with_the_rest_of_it() -> None:
    known, more = ("ads", 1, 0), ("ads", 2, 0)
    recent = RecentPanes()
    recent.add([known])
    _, new, sent = recent.leave_out(table_of([known, more]))
    assert new == {more}
    recent.add(sent)
    assert known in recent
    assert more in recent
