"""Samples become panes: per group and in all, with bounds that a complete sample closes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import slackwater as sw
from slackwater.app.aggregates import Aggregate
from slackwater.app.windows import tumbling
from slackwater.errors import SlackwaterError
from slackwater.runtime.estimating import estimated_panes
from slackwater.runtime.panes import ClosingWindow
from slackwater.runtime.sample_facts import SampleFacts
from slackwater.runtime.samples import STEP
from slackwater.runtime.state import SliceState
from slackwater.sampling.delays import DelayCounts
from slackwater.sampling.targets import Target
from slackwater.spark.frames import ROWS
from slackwater.spark.sampled import ARRIVED, GROUP, SUBSTREAM, TAKEN
from slackwater.spark.shapes import ResultShape

AGGREGATES: dict[str, Aggregate] = {
    "n": sw.count(),
    "total": sw.sum("x"),
    "average": sw.mean("x"),
    "spread": sw.variance("x"),
    "most": sw.max("x"),
}
SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        (ROWS, pa.int64()),
        *(
            (f"{name}__{part}", pa.float64())
            for name in ("total", "average")
            for part in ("n", "s1", "s2")
        ),
        *((f"spread__{part}", pa.float64()) for part in ("n", "mean", "m2", "m3", "m4")),
        ("most__max", pa.float64()),
        (SUBSTREAM, pa.int64()),
        (ARRIVED, pa.int64()),
        (TAKEN, pa.int64()),
        (STEP, pa.int64()),
        (GROUP, pa.int64()),
    ]
)


def row(key: str, values: Any, substream: int, step: int = 0, *, group: int = 0) -> dict[str, Any]:
    x = np.asarray(values, dtype=np.float64)
    off = x - x.mean()
    sums = {"n": len(x), "s1": x.sum(), "s2": (x * x).sum()}
    moments = {"n": len(x), "mean": x.mean(), **{f"m{p}": (off**p).sum() for p in (2, 3, 4)}}
    return {
        "k": key,
        ROWS: len(x),
        **{f"{name}__{part}": v for name in ("total", "average") for part, v in sums.items()},
        **{f"spread__{part}": v for part, v in moments.items()},
        "most__max": x.max(),
        SUBSTREAM: substream,
        STEP: step,
        GROUP: group,
    }


def counted(
    arrived: int, taken: int, substream: int, step: int = 0, *, group: int = 0
) -> dict[str, Any]:
    return {SUBSTREAM: substream, STEP: step, ARRIVED: arrived, TAKEN: taken, GROUP: group}


def estimated(
    rows: list[dict[str, Any]],
    *,
    as_of_ms: float | None = None,
    group_share: float | None = None,
    extrapolates: bool = True,
    trusted: bool = True,
) -> tuple[list[dict[str, Any]], Any]:
    facts = SampleFacts(
        Target(0.05, 0.95, group_share),
        1.0,
        0.0,
        DelayCounts.of({64: (1e6, 2_550.0e6)}),
        as_of_ms,
        600,
        extrapolates,
        trusted,
    )
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    window = ClosingWindow("q", 0, 0, 3_000, 0, "early", (SliceState((table,)),), facts)
    shape = ResultShape(tumbling("3 s"), ("k",), AGGREGATES)
    panes, (lesson,) = estimated_panes(shape, [window])
    return panes.table.to_pylist(), lesson


def test_a_complete_sample_is_the_batch() -> None:
    one, two, three = [1.0, 2.0, 6.0], [4.0, 5.0], [7.0, 9.0]
    rows, lesson = estimated(
        [
            row("a", one, 0),
            row("b", two, 0),
            row("a", three, 600, step=1),
            counted(5, 5, 0),
            counted(4, 4, 600, step=1),
        ]
    )
    by_key = {each["k"]: each for each in rows}
    values = np.array(one + three)
    a = by_key["a"]
    assert (a["n"], a["total"], a["average"]) == pytest.approx((5, 25, 5))
    assert a["spread"] == pytest.approx(np.var(values, ddof=1))
    assert a["most"] == a["most_low"] == a["most_high"] == 9
    for name in AGGREGATES:
        assert a[f"{name}_low"] == pytest.approx(a[name]) == a[f"{name}_high"]
    assert (a["sampled"], a["population"], a["accuracy"], a["met"]) == (9, 9, 1.0, True)
    assert lesson.promised["n"] == pytest.approx((7, 7, 7))
    assert lesson.promised["average"][0] == pytest.approx(34 / 7)
    assert lesson.promised["spread"][0] == pytest.approx(np.var(one + two + three, ddof=1))
    assert lesson.missing == 0.0


def test_each_stratum_counts_by_its_own_rate() -> None:
    rng = np.random.default_rng(3)
    rows, _ = estimated(
        [
            row("a", rng.normal(10, 1, 50), 0),
            row("a", rng.normal(30, 1, 50), 600, step=1),
            counted(1_000, 50, 0),
            counted(100, 50, 600, step=1),
        ]
    )
    (a,) = rows
    assert a["n"] == pytest.approx(1_100)
    assert a["average"] == pytest.approx((1_000 * 10 + 100 * 30) / 1_100, rel=0.03)
    assert a["average_low"] < a["average"] < a["average_high"]
    assert a["most_high"] is None
    assert (a["sampled"], a["population"]) == (100, 1_100)


def test_records_under_way_are_estimated_from_the_delays() -> None:
    """All delays are 2,550 ms: at 3,000, a quarter of the first 600 ms is still under way."""
    rows, lesson = estimated([row("a", [1.0] * 450, 0), counted(450, 450, 0)], as_of_ms=3_000)
    assert rows[0]["n"] == pytest.approx(600)
    assert rows[0]["n_low"] < 600 < rows[0]["n_high"]
    assert rows[0]["population"] == 600
    assert lesson.missing == pytest.approx(0.25)


def test_no_bounds_are_claimed_where_what_is_missing_is_left_out() -> None:
    rows, lesson = estimated(
        [row("a", [1.0] * 450, 0), counted(450, 450, 0)], as_of_ms=3_000, extrapolates=False
    )
    assert rows[0]["n"] == 450
    assert (rows[0]["n_low"], rows[0]["n_high"], rows[0]["met"]) == (None, None, None)
    assert not lesson.promised


def test_groups_have_bounds_of_their_own_where_that_is_asked() -> None:
    rng = np.random.default_rng(4)
    strata = [row("big", rng.normal(10, 0.5, 900), 0), row("small", rng.normal(10, 0.5, 4), 0)]
    rows, lesson = estimated([*strata, counted(4_000, 1_000, 0)], group_share=0.1)
    met = {each["k"]: each["met"] for each in rows}
    assert met["small"] is False
    assert set(lesson.promised) == {f"{name} of big" for name in AGGREGATES if name != "most"}


def test_met_is_said_of_each_row_also_where_the_total_has_the_bound() -> None:
    rng = np.random.default_rng(4)
    strata = [row("big", rng.normal(10, 0.5, 900), 0), row("small", rng.normal(10, 0.5, 4), 0)]
    rows, lesson = estimated([*strata, counted(4_000, 1_000, 0)])
    for each in rows:
        widest = max(
            max(each[f"{name}_high"] - each[name], each[name] - each[f"{name}_low"]) / each[name]
            for name in AGGREGATES
            if name != "most"
        )
        assert each["met"] == (widest <= 0.05), (each["k"], widest)
    assert {each["k"]: each["met"] for each in rows}["small"] is False
    assert set(lesson.promised) == {name for name in AGGREGATES if name != "most"}


def test_no_row_says_that_the_error_is_kept_where_audits_found_otherwise() -> None:
    sample = [row("a", [1.0] * 9, 0), counted(9, 9, 0)]
    trusted, _ = estimated(sample)
    doubted, _ = estimated(sample, trusted=False)
    assert [each["met"] for each in (*trusted, *doubted)] == [True, False]
    assert doubted[0]["n_low"] == trusted[0]["n_low"]


def test_a_row_from_nowhere_tells_of_a_changed_event_time() -> None:
    with pytest.raises(SlackwaterError, match="changes the event time"):
        estimated([row("a", [1.0], 1_200), counted(5, 1, 0)])


def test_each_group_counts_by_its_own_rate() -> None:
    rng = np.random.default_rng(6)
    rows, lesson = estimated(
        [
            row("small", rng.normal(10, 1, 80), 0, group=11),
            row("large", rng.normal(30, 1, 100), 0, group=22),
            row("rest", rng.normal(20, 1, 50), 0, group=33),
            counted(100, 80, 0, group=11),
            counted(10_000, 100, 0, group=22),
            counted(100, 50, 0),
        ],
        group_share=0.005,
    )
    by_key = {each["k"]: each for each in rows}
    # All of a group's records that arrived are counted, however few are sampled.
    assert [by_key[key]["n"] for key in ("small", "large", "rest")] == pytest.approx(
        [100, 10_000, 100]
    )
    assert by_key["large"]["n_low"] == pytest.approx(10_000) == by_key["large"]["n_high"]
    assert by_key["large"]["total"] == pytest.approx(300_000, rel=0.03)
    assert by_key["small"]["total"] == pytest.approx(1_000, rel=0.05)
    assert set(lesson.groups) == {11, 22, 33}
    assert lesson.groups[22].share == pytest.approx(10_000 / 10_200)
    # The variance's own spread is the widest: how far one record moves it, relative to it.
    assert 0.5 < lesson.groups[22].spread.sampling < 10.0


def test_a_group_that_has_all_but_vanished_is_counted_among_the_rest() -> None:
    rows, _ = estimated(
        [
            row("gone", [5.0], 0, group=11),
            row("rest", [5.0] * 50, 0, group=33),
            counted(3, 1, 0, group=11),
            counted(100, 50, 0),
        ],
        group_share=0.3,
    )
    by_key = {each["k"]: each for each in rows}
    gone = by_key["gone"]
    assert gone["n_low"] < gone["n"] < gone["n_high"]  # nothing is claimed of a single record
    assert sum(each["n"] for each in rows) == pytest.approx(103)


def test_groups_without_a_name_teach_no_rates_of_their_own() -> None:
    _, lesson = estimated([row("a", [1.0, 2.0], 0), counted(2, 2, 0)], group_share=0.1)
    assert not lesson.groups
